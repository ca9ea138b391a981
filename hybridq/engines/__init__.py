"""Engines: the code that runs a pipeline on a chunk."""
