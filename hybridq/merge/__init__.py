"""Merging of partial results, on the CPU."""
