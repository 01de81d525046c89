"""Checks of a completion, from cheap to expensive."""
