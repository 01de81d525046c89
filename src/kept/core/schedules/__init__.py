"""Schedules: which proposer takes the next turn."""
