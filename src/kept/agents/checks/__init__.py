"""The checks that a completion has to pass, in order, the cheap ones first.

Each is a function of the submission; only `smoke` and tests of the user's own run anything, and no
check ever asks a model. None is left out because the budget has run out: what was not checked is
not complete.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from kept.agents.check import Check, CheckResult, Passed, Rejected, Submission
from kept.agents.checks.broken import file
from kept.agents.checks.critique import critique
from kept.agents.checks.evaluation import Evaluation
from kept.agents.checks.first import l0
from kept.agents.checks.placeholder import placeholder
from kept.agents.checks.presence import deliverable, deliverable_presence
from kept.agents.checks.references import cross_reference
from kept.agents.checks.schema import schema
from kept.agents.checks.smoke import Smoke
from kept.agents.checks.structure import structural_integrity
from kept.agents.checks.syntax import syntax
from kept.agents.record import CheckOutcome, Evaluated
from kept.core.ports import Scope
from kept.core.rollout import Failure


@dataclass(frozen=True, slots=True)
class Pure:
    """A check that only looks. Implements `kept.agents.check.Check`."""

    name: str
    judge: Callable[[Submission], CheckResult | Failure]

    async def __call__(self, submission: Submission, scope: Scope) -> CheckResult | Failure:
        """Look."""
        return self.judge(submission)


def chain(evaluation: Evaluation | None = None) -> tuple[Check, ...]:
    """All checks, in the order in which they are asked."""
    return (
        Pure("l0", l0),
        Pure("critique", critique),
        Pure("deliverable_presence", deliverable_presence),
        Pure("placeholder", placeholder),
        Pure("file", file),
        Pure("deliverable", deliverable),
        Pure("syntax", syntax),
        Pure("schema", schema),
        Pure("cross_reference", cross_reference),
        Smoke(),
        Pure("structural_integrity", structural_integrity),
        evaluation or Evaluation(),
    )


@dataclass(frozen=True, slots=True)
class Judged:
    """What the chain said of one submission."""

    outcomes: tuple[CheckOutcome, ...]
    """In order; the last is the one that refused, if any did."""
    refusal: Rejected | Failure | None = None
    """What the last one said; a failure where nobody can tell."""
    evaluation: Evaluated | None = None

    @property
    def complete(self) -> bool:
        """Whether nothing speaks against it."""
        return self.refusal is None


async def judge(submission: Submission, scope: Scope, checks: Sequence[Check]) -> Judged:
    """Ask the checks one by one, up to the first that refuses."""
    outcomes: list[CheckOutcome] = []
    evaluation: Evaluated | None = None
    for check in checks:
        said = await check(submission, scope.branch(check.name))
        if isinstance(said, Failure):
            reason = f"cannot tell: {said.message}"
            outcomes.append(CheckOutcome(check=check.name, passed=False, reason=reason))
            return Judged(tuple(outcomes), said, evaluation)
        evaluation = said.evaluation or evaluation
        if isinstance(said, Rejected):
            outcomes.append(
                CheckOutcome(
                    check=check.name, passed=False, reason=said.reason, findings=said.findings
                )
            )
            return Judged(tuple(outcomes), said, evaluation)
        outcomes.append(CheckOutcome(check=check.name, passed=True, findings=said.notes))
    return Judged(tuple(outcomes), None, evaluation)


__all__ = ["Judged", "Passed", "Pure", "Rejected", "chain", "judge"]
