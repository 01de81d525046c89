"""Whether what was made runs: the smoke test that a plan names, and scripts that say they are some.

A test that was named must end well and in time. A script that nobody named a test for may want
arguments or run for long, so only one that breaks down is refused.
"""

from collections.abc import Iterator
from typing import NamedTuple

from kept.core.ports import Scope
from kept.core.rollout import Failure
from kept.orchestrator.checks.base import CheckResult, Passed, Ran, Rejected, Submission
from kept.orchestrator.checks.naming import below_output
from kept.orchestrator.checks.texts import flaw, suffix_of, told
from kept.orchestrator.record import Finding

SECONDS = 10.0

LAST_WORDS = 300
"""Characters of what a test said last."""

_BY = {".py": "python3", ".sh": "sh"}
_BROKEN_DOWN = ("Traceback (most recent call last)", "SyntaxError", "syntax error")
_NOT_FOUND = (126, 127)


class Trial(NamedTuple):
    """One thing to run."""

    name: str
    command: tuple[str, ...]
    named: bool
    """Whether a plan asks for it."""


class Smoke:
    """Implements `kept.orchestrator.checks.base.Check`."""

    name = "smoke"

    async def __call__(self, submission: Submission, scope: Scope) -> CheckResult | Failure:
        """Run each, in a scope of its own."""
        found: list[Finding] = []
        notes: list[Finding] = []
        for number, trial in enumerate(trials(submission)):
            ran = await submission.run(trial.command, SECONDS, scope.branch(f"smoke{number}"))
            if isinstance(ran, Failure):
                return ran
            wrong = trouble(ran)
            if wrong is not None:
                refused = trial.named or broke_down(ran)
                (found if refused else notes).append(flaw(trial.name, wrong, "smoke"))
        if not found:
            return Passed(notes=tuple(notes))
        words = "; ".join(map(told, found))
        return Rejected(reason=f"what was made does not run: {words}", findings=tuple(found))


def trials(submission: Submission) -> Iterator[Trial]:
    """The tests that the plan names, then scripts that begin like programs; each once."""
    seen: set[tuple[str, ...]] = set()
    for part in submission.plan:
        if part.smoke_test:
            trial = Trial(part.smoke_test, _command(part.smoke_test, submission), True)
            seen.add(trial.command)
            yield trial
    if seen:
        return
    for path in sorted(submission.files):
        if suffix_of(path) in _BY and submission.files[path].startswith(b"#!"):
            yield Trial(path, (_BY[suffix_of(path)], path), False)


def _command(test: str, submission: Submission) -> tuple[str, ...]:
    path = below_output(test)
    if path in submission.files:
        return (_BY.get(suffix_of(path), "sh"), path)
    return ("sh", "-c", test)


def trouble(ran: Ran) -> str | None:
    """What is wrong with an end; None where nothing is."""
    last = " ".join(ran.output[-LAST_WORDS:].split())
    said = f": {last}" if last else ""
    if ran.timed_out:
        return f"still running after {SECONDS:g} s{said}"
    return f"exit {ran.exit_code}{said}" if ran.exit_code else None


def broke_down(ran: Ran) -> bool:
    """Whether an end is the program's own fault, whatever it was called with."""
    words = any(sign in ran.output for sign in _BROKEN_DOWN)
    return not ran.timed_out and (words or ran.exit_code in _NOT_FOUND or ran.exit_code < 0)
