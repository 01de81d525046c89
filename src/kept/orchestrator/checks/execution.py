"""Checks that execute or evaluate: critic, deterministic phases, metrics, smoke tests.

Critic: its opinion of the latest result must be good enough. No number of rejections and no file
disables this check. A missing critique is never made up; the check is then undecided.

Deterministic phase (rule R33): it runs a command and reaches no model. It has no scope, key,
network or secrets, and a time limit. Six kinds of invariants must hold afterwards; one of an
unknown kind does not hold.

Metrics, the last check: weighted metrics against thresholds, with all parts recorded. The four
usual ones are those of the source and use the run's own reports. A test of the user looks at the
deliverable, and weighs more than all of them.

Smoke tests: those named in the plan, and scripts that declare themselves as such. A named test
must exit with 0 in time. Other scripts may need arguments or run long, so only a crash counts.
"""

import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from shlex import join
from typing import Literal, NamedTuple, Protocol

from kept.core.artifact import is_safe_path
from kept.core.ports import Scope
from kept.core.rollout import Failure
from kept.orchestrator.checks.base import CheckResult, Passed, Ran, Rejected, Submission
from kept.orchestrator.checks.files import below_output
from kept.orchestrator.checks.text import flaw, suffix_of, told
from kept.orchestrator.record import Evaluated, Finding
from kept.sandbox.command import Exit

LEAST = 0.6
"""Minimum mean score of the last iteration's critiques for a complete run."""

MOST = 5
"""Maximum number of defects reported to the manager."""

_RANK = {"critical": 0, "warning": 1, "info": 2}


def critique(submission: Submission) -> CheckResult | Failure:
    """Require a sufficient mean score, and a critique of every part."""
    # a critique that failed leaves the check undecided, not passed
    for delegation in submission.delegations:
        if delegation.critique is None and delegation.critique_failure is not None:
            return delegation.critique_failure
    unseen = [
        f"{one.worker_id} ({one.subtask_id or 'no subtask'}) failed"
        for one in submission.delegations
        if one.critique is None and one.failure is not None
    ]
    if unseen:
        words = "and no critic has seen that part: have it done again"
        return Rejected(reason=f"{', '.join(unseen)}, {words}")
    said = submission.critiques
    if not said:
        return Passed()
    mean = sum(one.score for _, one in said) / len(said)
    if mean >= LEAST:
        return Passed()
    found = [
        flaw(f"{worker}: {defect.location}", defect.description, defect.severity)
        for worker, one in said
        for defect in sorted(one.defects, key=lambda defect: _RANK[defect.severity])
    ]
    words = "; ".join(f"{one.file}: {one.detail}" for one in found[:MOST])
    reason = f"critics give {mean:.2f}, and {LEAST:g} is needed" + (f": {words}" if words else "")
    return Rejected(reason=reason, findings=tuple(found))


COMMAND_SECONDS = 60.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Invariant:
    """One condition that must hold after a phase."""

    kind: str
    """`file_exists`, `file_size_range`, `regex_absent`, `regex_present`, `exit_code` or
    `python_predicate`."""
    path: str = ""
    pattern: str = ""
    least: int = 0
    most: int | None = None
    equals: int = 0
    expression: str = ""
    """Python expression of a `python_predicate`, evaluated in the folder of the phase."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DeterministicPhase:
    """A command, and the invariants that must hold after it."""

    command: str
    name: str = ""
    invariants: tuple[Invariant, ...] = ()
    seconds: float = COMMAND_SECONDS


@dataclass(frozen=True, slots=True, kw_only=True)
class PhaseEnd:
    """Result of a phase."""

    status: Literal["complete", "partial", "failed"]
    reason: str = ""
    violations: tuple[str, ...] = ()
    code: int | None = None
    output: str = field(default="", repr=False)
    files: Mapping[str, bytes] = field(default_factory=dict[str, bytes], repr=False)
    """Files after the phase, by path."""


class RunsOn(Protocol):
    """Runs a shell line on a copy of some files, without network and keys."""

    async def __call__(
        self, line: str, files: Mapping[str, bytes], seconds: float
    ) -> tuple[Exit | Failure, Mapping[str, bytes]]:
        """Run it; return its exit and the files afterwards."""
        ...


async def run_phase(
    phase: DeterministicPhase, files: Mapping[str, bytes], run: RunsOn
) -> PhaseEnd | Failure:
    """Run a phase and check its invariants; a `Failure` is one of infrastructure."""
    ended, left = await run(phase.command, files, phase.seconds)
    if isinstance(ended, Failure):
        if ended.blame == "infrastructure":
            return ended
        return PhaseEnd(status="failed", reason=ended.message, files=files)
    output = (ended.stdout + ended.stderr)[-4000:]
    end = PhaseEnd(status="complete", code=ended.code, output=output, files=left)
    if ended.timed_out:
        reason = f"still running after {phase.seconds:g} s"
        return replace(end, status="partial", reason=reason)
    # an exit code other than 0 fails the phase, unless an invariant states the expected code
    codes = [one for one in phase.invariants if one.kind == "exit_code"]
    if ended.code and not codes:
        return replace(end, status="failed", reason=str(ended))
    broken: list[str] = []
    for one in phase.invariants:
        wrong = await _violation(one, end, run, phase.seconds)
        if isinstance(wrong, Failure):
            return wrong
        broken += [] if wrong is None else [wrong]
    if not broken:
        return end
    return replace(end, status="partial", reason="; ".join(broken), violations=tuple(broken))


async def _violation(
    one: Invariant, end: PhaseEnd, run: RunsOn, seconds: float
) -> str | Failure | None:
    """Return the violation of an invariant; None if it holds, a `Failure` if undecided."""
    if one.kind == "exit_code":
        return None if end.code == one.equals else f"exit {end.code}, not {one.equals}"
    if one.kind == "python_predicate":
        # in its own process: an expression may never end, or call exit
        code = f"import sys; sys.exit(0 if ({one.expression}) else 1)"
        held, _ = await run(join([sys.executable, "-I", "-c", code]), end.files, seconds)
        if isinstance(held, Failure) and held.blame == "infrastructure":
            return held
        holds = isinstance(held, Exit) and held.ok
        return None if holds else f"`{one.expression}` does not hold"
    if one.kind not in (*_LOOKS, *_SEARCHES):
        return f"`{one.kind}` is no kind of invariant"
    if not is_safe_path(one.path):
        return f"`{one.path}` is no path below the folder of the phase"
    if one.kind in _SEARCHES:
        return await _search(one, end.files, run, seconds)
    return _LOOKS[one.kind](one, end.files.get(one.path))


async def _search(
    one: Invariant, files: Mapping[str, bytes], run: RunsOn, seconds: float
) -> str | Failure | None:
    """Search a pattern in the sandbox, with a time limit: a regex may never finish."""
    wanted = one.kind == "regex_present"
    if one.path not in files:
        return f"`{one.path}` is not there" if wanted else None
    line = join([sys.executable, "-I", "-c", _FIND, one.pattern, one.path])
    ended, _ = await run(line, {one.path: files[one.path]}, seconds)
    if isinstance(ended, Failure):
        return ended
    if ended.timed_out:
        return f"looking for `{one.pattern}` in `{one.path}` takes more than {seconds:g} s"
    if ended.code not in (_FOUND, _NOT_FOUND):
        return f"cannot look for `{one.pattern}` in `{one.path}`: {ended}"
    if (ended.code == _FOUND) == wanted:
        return None
    return f"`{one.path}` {'lacks' if wanted else 'has'} `{one.pattern}`"


def _exists(one: Invariant, data: bytes | None) -> str | None:
    return f"`{one.path}` is not there" if data is None else None


def _size(one: Invariant, data: bytes | None) -> str | None:
    if data is None:
        return f"`{one.path}` is not there"
    fits = len(data) >= one.least and (one.most is None or len(data) <= one.most)
    limits = f"{one.least} to {'any' if one.most is None else one.most}"
    return None if fits else f"`{one.path}` has {len(data)} bytes, not {limits}"


_LOOKS: Mapping[str, Callable[[Invariant, bytes | None], str | None]] = {
    "file_exists": _exists,
    "file_size_range": _size,
}
_SEARCHES = ("regex_absent", "regex_present")
# distinct from 0 and 1, with which Python itself exits
_FOUND, _NOT_FOUND = 10, 11
_FIND = f"""
import re, sys
text = open(sys.argv[2], "rb").read().decode("utf-8", "replace")
sys.exit({_FOUND} if re.search(sys.argv[1], text, re.MULTILINE) else {_NOT_FOUND})
"""


class Metric(Protocol):
    """One measure of a submission, from 0 to 1."""

    @property
    def name(self) -> str:
        """Name, unique among the metrics of a run."""
        ...

    @property
    def weight(self) -> float:
        """Weight relative to the other metrics."""
        ...

    @property
    def threshold(self) -> float | None:
        """Value to reach; None if a low value is no fault."""
        ...

    async def measure(self, submission: Submission, scope: Scope) -> float | Failure:
        """Measure a submission."""
        ...


@dataclass(frozen=True, slots=True)
class Assertion:
    """A metric that is a function of the submission."""

    name: str
    weight: float
    threshold: float | None
    of: Callable[[Submission], float]

    async def measure(self, submission: Submission, scope: Scope) -> float | Failure:
        """Apply the function to the submission."""
        return self.of(submission)


@dataclass(frozen=True, slots=True)
class ByCommand:
    """A metric by a command: 0 if it fails, else the number on its last line, else 1."""

    name: str
    command: tuple[str, ...]
    weight: float = 5.0
    threshold: float | None = 1.0
    seconds: float = 60.0

    async def measure(self, submission: Submission, scope: Scope) -> float | Failure:
        """Run the command beside the deliverables."""
        ran = await submission.run(self.command, self.seconds, scope.branch(self.name))
        if isinstance(ran, Failure):
            return ran
        if ran.timed_out or ran.exit_code:
            return 0.0
        lines = ran.output.strip().splitlines()
        try:
            return min(1.0, max(0.0, float(lines[-1]))) if lines else 1.0
        except ValueError:
            # the last line is no number: the exit code decides
            return 1.0


def confidence_of(submission: Submission) -> float:
    """Return the manager's confidence, else the mean of its workers', else 0."""
    if submission.confidence is not None:
        return submission.confidence
    said = [one.confidence for one in submission.delegations if one.confidence is not None]
    return sum(said) / len(said) if said else 0.0


def _has_result(submission: Submission) -> float:
    result = submission.final_result
    there = bool(result) or bool(submission.files)
    return float(there and not result.get("error") and confidence_of(submission) > 0.3)


def _not_empty(submission: Submission) -> float:
    return float(any(submission.files.values()))


def _efficiency(submission: Submission) -> float:
    return min(1.0, max(0.0, submission.budget.remaining))


USUAL: tuple[Metric, ...] = (
    Assertion("has_result", 2.0, 1.0, _has_result),
    Assertion("confidence", 1.5, 0.6, confidence_of),
    Assertion("not_empty", 1.0, 1.0, _not_empty),
    Assertion("efficiency", 0.5, None, _efficiency),
)


@dataclass(frozen=True, slots=True)
class Evaluation:
    """Check by weighted metrics; implements `kept.orchestrator.checks.base.Check`."""

    metrics: tuple[Metric, ...] = USUAL
    accept: float = 0.75
    """Minimum score of an accepted completion."""
    fail: float = 0.2
    """Score below which the run ends as failed."""
    name: str = "eval"

    async def __call__(self, submission: Submission, scope: Scope) -> CheckResult | Failure:
        """Measure all metrics, and compare their weighted mean with `accept`."""
        measured: dict[str, float] = {}
        for metric in self.metrics:
            value = await metric.measure(submission, scope)
            if isinstance(value, Failure):
                return value
            measured[metric.name] = value
        found = evaluated(self.metrics, measured, self.accept, self.fail)
        if found.action == "accept":
            return Passed(evaluation=found)
        gaps = {
            name: found.thresholds[name] - found.per_metric[name]
            for name in found.thresholds
            if found.per_metric[name] < found.thresholds[name]
        }
        words = ", ".join(f"{name} lacks {gap:.2f}" for name, gap in gaps.items())
        reason = f"the evaluation gives {found.score:.2f}, and {self.accept:g} is needed"
        reason += f": {words}" if words else ""
        return Rejected(reason=reason, evaluation=found, hopeless=found.action == "fail")


def evaluated(
    metrics: tuple[Metric, ...], measured: Mapping[str, float], accept: float, fail: float
) -> Evaluated:
    """Return the weighted mean of all metrics, with its parts and the resulting action."""
    total = sum(metric.weight for metric in metrics)
    # a measure that reaches its threshold counts in full
    pairs = ((metric, measured[metric.name]) for metric in metrics)
    score = sum(
        metric.weight * (min(1.0, value / metric.threshold) if metric.threshold else value)
        for metric, value in pairs
    )
    score = score / total if total else 0.0
    action = "accept" if score >= accept else "fail" if score < fail else "retry_with_repair"
    return Evaluated(
        score=round(score, 4),
        per_metric={name: round(value, 4) for name, value in measured.items()},
        thresholds={m.name: m.threshold for m in metrics if m.threshold is not None},
        action=action,
    )


SMOKE_SECONDS = 10.0

LAST_WORDS = 300
"""Maximum characters quoted from the end of a test's output."""

_BY = {".py": "python3", ".sh": "sh"}
_BROKEN_DOWN = ("Traceback (most recent call last)", "SyntaxError", "syntax error")
# exit codes of a shell: not executable, not found
_COMMAND_NOT_FOUND = (126, 127)


class Trial(NamedTuple):
    """One smoke test to run."""

    name: str
    command: tuple[str, ...]
    named: bool
    """True if the plan names it."""


class Smoke:
    """Check by smoke tests; implements `kept.orchestrator.checks.base.Check`."""

    name = "smoke"

    async def __call__(self, submission: Submission, scope: Scope) -> CheckResult | Failure:
        """Run each test in its own scope."""
        found: list[Finding] = []
        notes: list[Finding] = []
        for number, trial in enumerate(trials(submission)):
            ran = await submission.run(trial.command, SMOKE_SECONDS, scope.branch(f"smoke{number}"))
            if isinstance(ran, Failure):
                return ran
            wrong = trouble(ran)
            if wrong is not None:
                words = any(sign in ran.output for sign in _BROKEN_DOWN)
                ended = words or ran.exit_code in _COMMAND_NOT_FOUND or ran.exit_code < 0
                # scripts that no plan names fail only by a crash: they may need arguments
                refused = trial.named or (not ran.timed_out and ended)
                (found if refused else notes).append(flaw(trial.name, wrong, "smoke"))
        if not found:
            return Passed(notes=tuple(notes))
        words = "; ".join(map(told, found))
        return Rejected(reason=f"what was made does not run: {words}", findings=tuple(found))


def trials(submission: Submission) -> Iterator[Trial]:
    """Yield the tests that the plan names; if it names none, scripts that begin with `#!`."""
    seen: set[tuple[str, ...]] = set()
    for part in submission.plan:
        if part.smoke_test:
            path = below_output(part.smoke_test)
            command = ("sh", "-c", part.smoke_test)
            if path in submission.files:
                command = (_BY.get(suffix_of(path), "sh"), path)
            trial = Trial(part.smoke_test, command, True)
            seen.add(trial.command)
            yield trial
    # a plan that names tests says what to run; guess only without one
    if seen:
        return
    for path in sorted(submission.files):
        if suffix_of(path) in _BY and submission.files[path].startswith(b"#!"):
            yield Trial(path, (_BY[suffix_of(path)], path), False)


def trouble(ran: Ran) -> str | None:
    """Return the problem with a finished command; None if it succeeded."""
    last = " ".join(ran.output[-LAST_WORDS:].split())
    said = f": {last}" if last else ""
    if ran.timed_out:
        return f"still running after {SMOKE_SECONDS:g} s{said}"
    return f"exit {ran.exit_code}{said}" if ran.exit_code else None
