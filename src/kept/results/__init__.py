"""Typed figures of a run, read by everything that shows or returns one."""
