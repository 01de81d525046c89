"""Runners: each runs a candidate on one case."""
