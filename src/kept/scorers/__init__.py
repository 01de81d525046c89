"""Scorers: each turns what a rollout brought back into named measures."""
