"""Chain of checks that a completion must pass, cheap ones first.

Each is a function of the submission. Only `smoke` and the user's own tests run commands, and no
check calls a model. No check is skipped when the budget is used up: an unchecked submission is not
complete.
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
"""Total size that any check reads within a second, whatever the content."""

MOST_SECONDS = 60.0
"""Time limit of one check of larger files: parsers and patterns may take quadratic time."""

_CALLS = BoundedCalls("kept.orchestrator.checks.chain:judge_apart")
_KINDS: dict[str, type[CheckResult | Failure]] = {
    kind.__name__: kind for kind in (Passed, Rejected, Failure)
}


@dataclass(frozen=True, slots=True)
class Pure:
    """A check that runs no command. Implements `kept.orchestrator.checks.base.Check`."""

    name: str
    judge: Judge

    async def __call__(self, submission: Submission, scope: Scope) -> CheckResult | Failure:
        """Check in bounded time: files of workers may be crafted to slow a check down."""
        if sum(map(len, submission.files.values())) <= SMALL_BYTES:
            return self.judge(submission)
        # the child process runs no commands, so `run` is not sent to it
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
    """Run a check in the child process, on the arguments that `Pure` pickled."""
    judge, submission = pickle.loads(base64.b64decode(pickled))  # our own data
    said = judge(submission)
    return {"kind": type(said).__name__, "value": msgspec.to_builtins(said)}


async def _run_nothing(command: Sequence[str], seconds: float, scope: Scope) -> Ran | Failure:
    raise AssertionError("a check that only looks runs nothing")


def chain(evaluation: Evaluation | None = None) -> tuple[Check, ...]:
    """Return all checks, in the order in which they run."""
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
    """Result of the chain for one submission."""

    outcomes: tuple[CheckOutcome, ...]
    """Outcomes in order; the last one refused, if any did."""
    refusal: Rejected | Failure | None = None
    """Refusal by the last check; a `Failure` if it is undecided."""
    evaluation: Evaluated | None = None

    @property
    def complete(self) -> bool:
        """True if no check refused the submission."""
        return self.refusal is None


async def judge(submission: Submission, scope: Scope, checks: Sequence[Check]) -> Judged:
    """Run the checks one by one, up to the first that refuses."""
    outcomes: list[CheckOutcome] = []
    evaluation: Evaluated | None = None
    for check in checks:
        # a branch per check keeps the journal keys of their commands apart
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
