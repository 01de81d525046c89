"""Proposers of skill training: for steps on a batch of rollouts, and for ends of epochs."""
