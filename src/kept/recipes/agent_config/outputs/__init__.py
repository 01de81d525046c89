"""Files that a tuning of an agent.yaml writes."""
