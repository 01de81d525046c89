"""User functions as metrics, each in sandboxed processes of its own.

A grader that raises, hangs or returns nonsense says nothing about the answer. That is a failure of
the harness; the candidate is not blamed.
"""

import math
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from kept.core.rollout import Failure
from kept.core.text import one_line
from kept.evaluators.metrics.config import CodeMetric, Measured, Subject
from kept.evaluators.scorers.function import Function, problem_with
from kept.evaluators.scorers.judge.sheet import LONGEST
from kept.evaluators.workers.pool import FunctionPool
from kept.sandbox.capabilities import abilities
from kept.sandbox.worker_pool import MAX_WAITING
from kept.settings import processors

ENOUGH = 0.5
"""Passing score if neither the grader nor a threshold decides."""


def problem_with_grader(grader: str, folder: Path, passed_on: tuple[str, ...] = ()) -> str | None:
    """Import `module:function` in a process; return why it cannot be a grader, else None."""
    if not all(grader.partition(":")):
        return f"`{grader}` is not `module:function`"
    return problem_with(_function(grader, folder, passed_on))


def grader_warnings(graders: Iterable[str]) -> Iterator[str]:
    """Warnings about graders that cannot be confined on this machine."""
    for grader in graders:
        if not (able := abilities()).walls:
            words = f"nothing keeps the grader `{grader}` from writing to your files"
            yield f"{words}: {able.why_not}"


class Graders:
    """Worker processes of all graders of a folder, started on demand and reused."""

    def __init__(self, folder: Path, passed_on: tuple[str, ...] = ()) -> None:
        self._folder = folder
        self._passed_on = passed_on
        self._pools: dict[str, FunctionPool] = {}

    async def measure(
        self, settings: CodeMetric, subject: Subject, seconds: float
    ) -> tuple[Measured | Failure, int]:
        """Call a grader, with retries; return its measurement and the number of calls."""
        pool = self._pools.get(settings.grader)
        if pool is None:
            function = _function(settings.grader, self._folder, self._passed_on)
            pool = self._pools[settings.grader] = function.pool(max(MAX_WAITING, processors()))
        tries = 0
        while True:
            tries += 1
            result = await pool.result({"context": _context(subject)}, seconds, "timeout")
            said = result if isinstance(result, Failure) else _read(settings, result)
            if isinstance(said, Measured) or tries > settings.retry_on_failure:
                return said, tries

    def close(self) -> None:
        """End the processes."""
        for one in self._pools.values():
            one.close()


def _function(grader: str, folder: Path, passed_on: tuple[str, ...]) -> Function:
    top = grader.partition(":")[0].partition(".")[0]
    return Function(grader, _home(folder, top), passed_on=passed_on, kind="grader")


def _home(folder: Path, top: str) -> Path:
    """Working directory of a grader: the real folder of its module, links resolved.

    A candidate of a tuned agent links only the named modules, not what they import.
    """
    for entry in (folder / f"{top}.py", folder / top):
        if entry.is_symlink():
            return entry.resolve().parent
    return folder.resolve()


def _context(subject: Subject) -> Mapping[str, object]:
    uses = [
        {
            "name": use.name,
            "args": dict(use.arguments),
            "result": use.result,
            "bytes": len(use.result.encode("utf-8", "surrogatepass")),
            "duration_ms": round(use.seconds * 1000),
            "error": use.result if use.wrong else None,
        }
        for use in subject.uses
    ]
    return {
        "turn_input": subject.input,
        "agent_response": subject.response,
        "ground_truth": subject.ground_truth,
        "tool_invocations": uses,
        "retrieval_context": list(subject.context) or None,
        "turn_index": subject.index,
        "test_case_name": subject.case_name,
        "turn_config": dict(subject.turn_config),
    }


def _read(settings: CodeMetric, result: Mapping[str, Any]) -> Measured | Failure:
    score: float = result["score"]
    if not math.isfinite(score):
        message = f"`{settings.grader}` returned {score}, which is no score"
        return Failure("harness", "infrastructure", message)
    within = min(1.0, max(0.0, score))
    least = ENOUGH if settings.threshold is None else settings.threshold
    passed: bool | None = result["passed"]
    reason = one_line(result.get("reason") or "", LONGEST)
    if within != score:
        reason = f"it said {score:g}, which counts as {within:g}{': ' if reason else ''}{reason}"
    details: Mapping[str, object] = result.get("details") or {}
    return Measured(within, within >= least if passed is None else passed, reason, "", details)
