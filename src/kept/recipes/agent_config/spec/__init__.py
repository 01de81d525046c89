"""Schemas of agent.yaml."""
