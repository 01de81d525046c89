"""Skill training: a config and an environment become a plan."""
