"""Kept improves text against evidence, and keeps only what measures better.

Names are loaded at first use, so that importing the package is cheap.
"""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from kept._version import __version__
    from kept.api import Compared, Result, compare, optimize
    from kept.core.artifact import Artifact, Candidate, Heading, Region, Rules
    from kept.core.budget import Budget, Spend, StopReason
    from kept.core.case import Case, Cases, split_cases
    from kept.core.edit import Append, Delete, InsertAfter, Replace, SetValue, Write
    from kept.core.guards import EmptyGuard, LengthGuard, SectionsGuard, StuffingGuard, copy_guard
    from kept.core.objective import Constraint, Objective, TieBreaker
    from kept.core.ports import Gate, Guard, Proposer, Runner, Scope, Scorer, Sink
    from kept.core.proposal import Ask, Brief, Note, Proposal, Skip
    from kept.core.rollout import Failure, Job, Pair, Rollout, TraceItem, Usage
    from kept.core.score import Evaluation, Finding, Score
    from kept.core.verdict import Verdict
    from kept.errors import JournalError, KeptError, RunError, SetupError, SpecError
    from kept.gates.seed_rules import Follow, Selection, Strict
    from kept.gates.sigma import Sigma
    from kept.recipes.function.proposers import edit, reflect, rewrite, simplify
    from kept.run import read_run
    from kept.store.reader import Run

_HOMES = {
    "_version": ("__version__",),
    "api": (
        "Compared",
        "Result",
        "compare",
        "optimize",
    ),
    "core.artifact": (
        "Artifact",
        "Candidate",
        "Heading",
        "Region",
        "Rules",
    ),
    "core.budget": (
        "Budget",
        "Spend",
        "StopReason",
    ),
    "core.case": (
        "Case",
        "Cases",
        "split_cases",
    ),
    "core.edit": (
        "Append",
        "Delete",
        "InsertAfter",
        "Replace",
        "SetValue",
        "Write",
    ),
    "core.guards": (
        "EmptyGuard",
        "LengthGuard",
        "SectionsGuard",
        "StuffingGuard",
        "copy_guard",
    ),
    "core.objective": (
        "Constraint",
        "Objective",
        "TieBreaker",
    ),
    "core.ports": (
        "Gate",
        "Guard",
        "Proposer",
        "Runner",
        "Scope",
        "Scorer",
        "Sink",
    ),
    "core.proposal": (
        "Ask",
        "Brief",
        "Note",
        "Proposal",
        "Skip",
    ),
    "core.rollout": (
        "Failure",
        "Job",
        "Pair",
        "Rollout",
        "TraceItem",
        "Usage",
    ),
    "core.score": (
        "Evaluation",
        "Finding",
        "Score",
    ),
    "core.verdict": ("Verdict",),
    "errors": (
        "JournalError",
        "KeptError",
        "RunError",
        "SetupError",
        "SpecError",
    ),
    "gates.seed_rules": (
        "Follow",
        "Selection",
        "Strict",
    ),
    "gates.sigma": ("Sigma",),
    "recipes.function.proposers": (
        "edit",
        "reflect",
        "rewrite",
        "simplify",
    ),
    "run": ("read_run",),
    "store.reader": ("Run",),
}
_HOME = {name: home for home, names in _HOMES.items() for name in names}

__all__ = [
    "Append",
    "Artifact",
    "Ask",
    "Brief",
    "Budget",
    "Candidate",
    "Case",
    "Cases",
    "Compared",
    "Constraint",
    "Delete",
    "EmptyGuard",
    "Evaluation",
    "Failure",
    "Finding",
    "Follow",
    "Gate",
    "Guard",
    "Heading",
    "InsertAfter",
    "Job",
    "JournalError",
    "KeptError",
    "LengthGuard",
    "Note",
    "Objective",
    "Pair",
    "Proposal",
    "Proposer",
    "Region",
    "Replace",
    "Result",
    "Rollout",
    "Rules",
    "Run",
    "RunError",
    "Runner",
    "Scope",
    "Score",
    "Scorer",
    "SectionsGuard",
    "Selection",
    "SetValue",
    "SetupError",
    "Sigma",
    "Sink",
    "Skip",
    "SpecError",
    "Spend",
    "StopReason",
    "Strict",
    "StuffingGuard",
    "TieBreaker",
    "TraceItem",
    "Usage",
    "Verdict",
    "Write",
    "__version__",
    "compare",
    "copy_guard",
    "edit",
    "optimize",
    "read_run",
    "reflect",
    "rewrite",
    "simplify",
    "split_cases",
]


def __getattr__(name: str) -> object:
    home = _HOME.get(name)
    if home is None:
        raise AttributeError(f"module 'kept' has no attribute {name!r}")
    value = getattr(import_module(f"kept.{home}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return list(__all__)
