"""Adapters for users of gepa, dspy, Inspect, promptfoo and pytest."""
