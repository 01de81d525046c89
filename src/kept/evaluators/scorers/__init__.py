"""Scorers: each turns a rollout into a score."""
