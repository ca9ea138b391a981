"""Breaks things while queries run: files, workers, schedulers, disks, answers that are too large."""
