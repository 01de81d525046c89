"""Agents: an agent.yaml, its cases, its tools and its metrics as a plan that measures."""

from kept.recipes.agent.compile import compile_agent

__all__ = ["compile_agent"]
