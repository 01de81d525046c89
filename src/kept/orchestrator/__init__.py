"""Agent runs: a manager model, its workers, and checks of what they deliver."""
