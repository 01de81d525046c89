"""Experiments: tasks that belong together, each with its runs and the best of them."""
