"""Counts of failures inside rollouts, and hints for failures due to the sandbox.

The hints go by the words of a failed command's output.
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from kept.core.text import one_line
from kept.results.summary import Summary
from kept.settings import is_set
from kept.store import codec
from kept.store.reader import Run

SHOWN_CASES = 5


@dataclass(slots=True)
class FailureGroup:
    """Failures that read the same."""

    kind: str
    blame: str
    message: str
    times: int
    cases: list[str]
    """The first few of them."""
    steps: list[int]


def failures(run: Run) -> list[FailureGroup]:
    """The failures of all rollouts, the most frequent first.

    Only lines that hold one are read as records: of a million rollouts few fail.
    """
    groups: dict[tuple[str, str, str], FailureGroup] = {}
    for row in run.all_lines(b'"failure":{'):
        if not isinstance(row, codec.RolloutLine) or row.failure is None:
            continue
        failure = row.failure
        key = (failure.kind, failure.blame, one_line(failure.message, 200))
        group = groups.setdefault(key, FailureGroup(*key, 0, [], []))
        group.times += 1
        if row.case not in group.cases and len(group.cases) < SHOWN_CASES:
            group.cases.append(row.case)
        if row.step not in group.steps:
            group.steps.append(row.step)
    return sorted(groups.values(), key=lambda group: -group.times)


def measure_is_broken(told: Summary, run: Run) -> bool:
    """Whether a run ended since not even its seed could be measured, and waiting will not help.

    What mends that is a change of the task, and with it goes a new run.
    """
    if told.stopped is None or told.stopped.kind != "error" or told.seed_value is not None:
        return False
    found = failures(run)
    return any(g.kind in ("harness", "parse") or g.blame == "candidate" for g in found)


def may_pass(run: Run) -> bool:
    """Whether anything of what went wrong is asked for again when the run goes on."""
    return any(group.blame == "infrastructure" for group in failures(run))


_NO_NETWORK = re.compile(
    r"network is unreachable|name or service not known|temporary failure in name resolution"
    r"|could not resolve host|getaddrinfo|nodename nor servname",
    re.IGNORECASE,
)
_BY_KEPT = re.compile(r"`[\w-]+/[^`]+` (?:answered \d{3}|failed|did not answer)")
"""Words about a model that Kept asks itself, which has no walls round it."""

_NAME = re.compile(r"\b[A-Z][A-Z0-9]*_[A-Z0-9_]+\b")


def held_back(message: str, sandbox: Mapping[str, Any]) -> Iterator[str]:
    """What to write into the task, where that is what was missing."""
    if _BY_KEPT.search(message):
        return
    if sandbox.get("network") != "on" and _NO_NETWORK.search(message):
        yield "commands have no network here: `sandbox: {network: on}` in the task opens it"
    passed = sandbox.get("env") or ()
    for name in dict.fromkeys(_NAME.findall(message)):
        if is_set(name) and name not in passed and not name.startswith("KEPT_"):
            yield f"`{name}` is set here, and commands do not get it: `sandbox: {{env: [{name}]}}`"
