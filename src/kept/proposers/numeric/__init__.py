"""Numeric search: the space, TPE, and when a phase ends."""
