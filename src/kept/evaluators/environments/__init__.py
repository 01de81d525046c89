"""Environments of skill training: cases, rollouts and scoring."""
