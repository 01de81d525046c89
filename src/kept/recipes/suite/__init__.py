"""Prompt artifacts of agent runs, improved by a suite of tasks."""
