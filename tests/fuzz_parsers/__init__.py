"""Hands hostile files to everything that parses what a user gives: only errors of hybridq's may come out."""
