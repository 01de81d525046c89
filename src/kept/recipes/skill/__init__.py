"""Skill training."""
