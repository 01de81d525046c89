"""Refinement of a finished agent run."""
