"""agent.yaml: test an agent, and tune its values and texts."""
