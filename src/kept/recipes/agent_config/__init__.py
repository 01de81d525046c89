"""agent.yaml: test an agent, and tune its numbers and texts."""
