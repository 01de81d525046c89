"""Typed figures of a run, for the CLI, reports and the Python API."""
