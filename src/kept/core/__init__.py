"""Data and pure functions: what every recipe is made of.

Standard library only. No files, clock, randomness, logging or async in here.
"""
