"""Metrics of agent tests: how each exchange of a conversation is measured, one file a kind."""
