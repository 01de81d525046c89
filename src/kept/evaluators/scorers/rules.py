"""Rules as scorer: what can be checked without running anything.

Every rule emits what it measured under its own name. `score` is the weighted share of the rules
that hold, `violation_count` the number of those that do not, and a finding names each of these.
"""

from dataclasses import dataclass
from typing import Literal, NamedTuple

from kept.core.artifact import Candidate
from kept.core.case import Case
from kept.core.ports import Scope
from kept.core.rollout import Failure, Job, Rollout
from kept.core.score import Finding, Score
from kept.core.text import all_text
from kept.evaluators.scorers.bounded import BOUNDED, Bounded, Patience
from kept.evaluators.scorers.checks import Check, Measured

TIMEOUT = 10.0
"""Seconds that all rules may take together; honest ones take thousandths of one."""

Kind = Literal["candidate", "output", "file"]


class Target(NamedTuple):
    """The text that a rule looks at."""

    kind: Kind = "candidate"
    """The candidate itself, what the runner printed, or a file that the runner left."""
    path: str | None = None
    """Which file; all of a candidate's, one after another, without it."""


CANDIDATE = Target()


@dataclass(frozen=True, slots=True)
class Rule:
    """Something that ought to hold."""

    name: str
    check: Check
    weight: float = 1.0
    target: Target = CANDIDATE


class RulesScorer:
    """Checks rules; `seed` is what growth is measured against."""

    def __init__(self, rules: tuple[Rule, ...], seed: Candidate, timeout: float = TIMEOUT) -> None:
        """A candidate whose rules together take longer than `timeout` seconds is to blame."""
        self._rules = rules
        self._seed = seed
        self._timeout = timeout
        self._total = sum(rule.weight for rule in rules)
        self._bounded = Bounded()

    async def score(
        self, job: Job, rollout: Rollout, candidate: Candidate, case: Case, scope: Scope
    ) -> Score | Failure:
        """Check every rule once."""
        metrics = dict(rollout.metrics)
        findings: list[Finding] = []
        held = 0.0
        patience = Patience(self._timeout)
        for rule in self._rules:
            measured = await self._measure(rule, rollout, candidate, patience)
            if isinstance(measured, Failure):
                return measured
            metrics[rule.name] = measured.value
            if measured.broken is None:
                held += rule.weight
            else:
                findings.append(Finding(f"{rule.name}: {measured.broken}", metric=rule.name))
        metrics["score"] = held / self._total
        metrics["violation_count"] = len(findings)
        return Score(metrics, tuple(findings))

    async def close(self) -> None:
        """End the processes that measure."""
        self._bounded.close()

    async def _measure(
        self, rule: Rule, rollout: Rollout, candidate: Candidate, patience: Patience
    ) -> Measured | Failure:
        text = text_of(rule.target, rollout, candidate)
        if text is None:
            return Measured(0, f"there is no text `{rule.target.path}`")
        if isinstance(rule.check, BOUNDED) and not rule.check.quick(text):
            return await self._bounded.measure(rule.name, rule.check, text, patience)
        seed = text_of(rule.target, Rollout(), self._seed) or ""
        return rule.check.measure(text, seed)


def text_of(target: Target, rollout: Rollout, candidate: Candidate) -> str | None:
    """The text that a target names; None where there is none."""
    kind, path = target
    if kind == "output":
        return rollout.output
    if kind == "candidate":
        return all_text(candidate.texts) if path is None else candidate.texts.get(path)
    try:
        return rollout.files[path or ""].decode()
    except (KeyError, UnicodeDecodeError):
        return None
