"""Runners, scorers, metrics, tools and environments: how a candidate is run and scored."""
