"""Runners: each executes a candidate on a case in its own way."""
