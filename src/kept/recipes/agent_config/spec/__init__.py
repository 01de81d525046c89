"""The models of agent.yaml."""
