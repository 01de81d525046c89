"""Proposers of skill training: what a batch of rollouts suggests, and what whole epochs do."""
