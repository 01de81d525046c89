"""Agent CLIs: each described by a table, all run by one harness.

An agent gets a workspace with the files of its errand, skill and instructions where its CLI looks
for them, and brings back what it said and did as a trace, and the files that it left.
"""

from kept.sandbox.coding_agents.claude import CLAUDE
from kept.sandbox.coding_agents.cli import Cli
from kept.sandbox.coding_agents.codex import CODEX
from kept.sandbox.coding_agents.errand import Errand, Session
from kept.sandbox.coding_agents.opencode import OPENCODE
from kept.sandbox.coding_agents.result import session_of
from kept.sandbox.coding_agents.run import Harness

CLIS = {cli.name: cli for cli in (CODEX, CLAUDE, OPENCODE)}
"""By the name that a spec has for each."""

__all__ = ["CLIS", "Cli", "Errand", "Harness", "Session", "session_of"]
