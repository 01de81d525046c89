"""The loop: it opens steps, runs rollouts, and closes steps in order."""
