"""Metrics of agent tests."""
