"""Assertions on an answer, as promptfoo and agent.yaml write them."""
