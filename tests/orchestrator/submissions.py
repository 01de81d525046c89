"""Submissions to be checked, each right but for what a test changes."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any

from kept.core.ports import Scope
from kept.core.rollout import Failure
from kept.orchestrator.checks.base import CheckResult, Ran, Submission
from kept.orchestrator.record import (
    BudgetSnapshot,
    Critique,
    Defect,
    Delegation,
    Limits,
    Subtask,
    Used,
)


class NoScope:
    """A scope in which nothing is written down: a check makes no call by itself."""

    def __init__(self, path: str = "check") -> None:
        self.path = path

    async def call(
        self,
        request: object,
        reply: type[Any],
        do: Callable[[], Awaitable[Any]],
        worst_usd: float | None = None,
    ) -> Any:
        raise AssertionError("no check asks anybody")

    def branch(self, name: str) -> "NoScope":
        return NoScope(f"{self.path}/{name}")


class Commands:
    """Stands for the sandbox: says how each command ends, and which were run."""

    def __init__(self, ends: Mapping[str, Ran | Failure] | None = None) -> None:
        self.ends = ends or {}
        self.ran: list[tuple[str, ...]] = []

    async def __call__(self, command: Sequence[str], seconds: float, scope: Scope) -> Ran | Failure:
        self.ran.append(tuple(command))
        return self.ends.get(command[-1], Ran(0, ""))


def budget(remaining: float = 0.9) -> BudgetSnapshot:
    phase = "ample" if remaining else "exhausted"
    return BudgetSnapshot(used=Used(), remaining=remaining, scarcest="loops", phase=phase)


def subtask(*outputs: str, **more: Any) -> Subtask:
    given: dict[str, Any] = {"id": "s1", "description": "do it", **more}
    return Subtask(required_outputs=outputs, **given)


def submission(files: Mapping[str, bytes | str] | None = None, **more: Any) -> Submission:
    held = {"report.md": "# Report\n\nAll is said.\n"} if files is None else files
    given: dict[str, Any] = {
        "task": "Write a report to report.md",
        "plan": (),
        "previous": {},
        "final_result": {"summary": "done"},
        "confidence": 0.9,
        "critiques": (),
        "delegations": (),
        "rejections": (),
        "limits": Limits(),
        "budget": budget(),
        "run": Commands(),
        **more,
    }
    data = {path: one.encode() if isinstance(one, str) else one for path, one in held.items()}
    return Submission(files=data, **given)


def scored(*scores: float, **defect: str) -> tuple[tuple[str, Critique], ...]:
    defects = (Defect(**defect),) if defect else ()  # type: ignore[arg-type]
    return tuple((f"w{n}", Critique(score=one, defects=defects)) for n, one in enumerate(scores))


def delegation(**more: Any) -> Delegation:
    return Delegation(worker_id="w1", subtask_id="s1", instructions="do it", **more)


def ask(check: Any, of: Submission) -> CheckResult | Failure:
    """What a check says, pure or not."""
    said = check(of, NoScope()) if hasattr(check, "name") else check(of)
    return asyncio.run(said) if asyncio.iscoroutine(said) else said
