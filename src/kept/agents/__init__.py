"""Agent runs: a manager that plans and delegates, workers with tools, checks on what they made."""
