"""Measurements on GPUs at scale: past a card's memory, under a cap, again and again, on several cards."""
