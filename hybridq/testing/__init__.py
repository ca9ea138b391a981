"""Helpers for tests, shipped for users too."""
