"""Edits of an agent, tried before anything is spent: applied, and the agent read again."""

from collections.abc import Sequence

from kept.core.artifact import Artifact, Candidate, Rules
from kept.core.edit import Edit, apply_edits
from kept.errors import Problem
from kept.recipes.agent_config.spec.read import ParsedAgent, ReadAgent, parse_agent
from kept.recipes.agent_config.tools import tool_problems
from kept.spec.locate.locate import locate_or_insert

TOLD = 3
"""Problems that a message tells."""


def try_edits(read: ReadAgent, edits: Sequence[Edit]) -> ParsedAgent | str:
    """The agent that edits make; what is wrong with it in words."""
    texts = read.agent.texts
    rules = Rules({name: Artifact(name) for name in texts})
    made = apply_edits(Candidate(texts), edits, rules, locate_or_insert)
    for report in made.reports:
        if report.fate not in ("applied", "no change"):
            return report.detail
    parsed = parse_agent(read.place, made.candidate.texts)
    if isinstance(parsed, tuple):
        return "; ".join(map(_words, parsed[:TOLD]))
    folder = read.place.folder
    before = {*tool_problems(read.agent.spec, folder)}
    new = [problem for problem in tool_problems(parsed.spec, folder) if problem not in before]
    if new:
        return "; ".join(words for _, words, _ in new[:TOLD])
    return parsed


def _words(problem: Problem) -> str:
    return f"{problem.path}: {problem.message}" if problem.path else problem.message
