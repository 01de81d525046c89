"""Frozen data and pure functions: no I/O, clock, randomness or log."""
