"""The checks that a completion has to pass, in order, the cheap ones first.

Each is a function of the submission; only `smoke` and tests of the user's own run anything, and no
check ever asks a model. None is left out because the budget has run out: what was not checked is
not complete.
"""

import base64
import pickle
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import msgspec

from kept.core.ports import Scope
from kept.core.rollout import Failure
from kept.orchestrator.checks import l0
from kept.orchestrator.checks.base import Check, CheckResult, Passed, Ran, Rejected, Submission
from kept.orchestrator.checks.execution import Evaluation, Smoke, critique
from kept.orchestrator.checks.files import deliverable, deliverable_presence, file
from kept.orchestrator.checks.syntax import schema, syntax
from kept.orchestrator.checks.text import cross_reference, placeholder, structural_integrity
from kept.orchestrator.record import CheckOutcome, Evaluated
from kept.sandbox.worker import ChildEnded
from kept.sandbox.worker_pool import MEMORY, BoundedCalls, CallRaised

Judge = Callable[[Submission], CheckResult | Failure]

SMALL_BYTES = 20_000
"""Deliverables that a check reads in a second at worst, whatever they hold."""

MOST_SECONDS = 60.0
"""For one check of larger ones: parsers and patterns may take the square of their size."""

_CALLS = BoundedCalls("kept.orchestrator.checks.chain:judge_apart")
_KINDS: dict[str, type[CheckResult | Failure]] = {
    kind.__name__: kind for kind in (Passed, Rejected, Failure)
}


@dataclass(frozen=True, slots=True)
class Pure:
    """A check that only looks. Implements `kept.orchestrator.checks.base.Check`."""

    name: str
    judge: Judge

    async def __call__(self, submission: Submission, scope: Scope) -> CheckResult | Failure:
        """Look, in bounded time: what workers write may be made to hold a check up."""
        if sum(map(len, submission.files.values())) <= SMALL_BYTES:
            return self.judge(submission)
        # what runs commands stays here
        asked = pickle.dumps((self.judge, replace(submission, run=_run_nothing)))
        given = {"pickled": base64.b64encode(asked).decode()}
        try:
            said: dict[str, Any] = await _CALLS.ask(given, MOST_SECONDS)
        except TimeoutError:
            return self._beyond(f"takes more than {MOST_SECONDS:g} seconds")
        except MemoryError:
            return self._beyond(f"takes more than {MEMORY // 2**30} GiB")
        except ChildEnded as error:
            return self._beyond(f"does not survive them: its process {error}")
        except (CallRaised, OSError) as error:
            message = f"the check `{self.name}` cannot be made: {error}"
            return Failure("harness", "infrastructure", message, getattr(error, "detail", ""))
        return msgspec.convert(said["value"], _KINDS[said["kind"]])

    def _beyond(self, what: str) -> Rejected:
        return Rejected(reason=f"the deliverables cannot be read: the check `{self.name}` {what}")


def judge_apart(pickled: str) -> dict[str, object]:
    """What a check says; called in the other process with what `Pure` packed."""
    judge, submission = pickle.loads(base64.b64decode(pickled))  # from ourselves
    said = judge(submission)
    return {"kind": type(said).__name__, "value": msgspec.to_builtins(said)}


async def _run_nothing(command: Sequence[str], seconds: float, scope: Scope) -> Ran | Failure:
    raise AssertionError("a check that only looks runs nothing")


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
