"""Whose fault an exception inside a module is, and what a module used before it."""

from dataclasses import replace
from typing import Any

from kept.core.rollout import Blame, Failure, FailureKind, Usage
from kept.evaluators.runners.function import failure_of

_CODES: dict[str, tuple[FailureKind, Blame]] = {
    "adapter_parse_error": ("parse", "candidate"),
    "context_window_exceeded": ("context", "candidate"),
    "rate_limit": ("rate_limit", "infrastructure"),
    "timeout": ("network", "infrastructure"),
    "server": ("server", "infrastructure"),
    "transport": ("network", "infrastructure"),
    "lock_timeout": ("network", "infrastructure"),
    # nothing that a text could do about these, and no retry either
    "auth": ("harness", "infrastructure"),
    "billing": ("harness", "infrastructure"),
    "configuration": ("harness", "infrastructure"),
    "not_configured": ("harness", "infrastructure"),
    "unsupported_model": ("harness", "infrastructure"),
    "unsupported_feature": ("harness", "infrastructure"),
}
"""By the code that errors of dspy's carry."""


def trouble_of(error: BaseException) -> Failure:
    """The failure that an exception stands for."""
    tame = error if isinstance(error, Exception) else RuntimeError(f"SystemExit: {error}")
    failure = failure_of(tame)
    if not type(error).__module__.startswith("dspy."):
        return failure
    code = getattr(error, "code", None)
    if code == "unexpected" and error.__cause__ is not None:
        return trouble_of(error.__cause__)
    kind, blame = _CODES.get(str(code), (failure.kind, failure.blame))
    return replace(failure, kind=kind, blame=blame)


def usage_of(module: Any, tracker: Any) -> Usage:  # noqa: ANN401 # dspy's
    """What the calls of one rollout used: tokens as dspy tracks them, money as its history says.

    What came out of a cache was paid for before.
    """
    entries = [entry for entries in tracker.usage_data.values() for entry in entries]
    paid = [row for row in module.history if not getattr(row["response"], "cache_hit", False)]
    return Usage(
        calls=len(entries),
        tokens_in=sum(int(entry.get("prompt_tokens") or 0) for entry in entries),
        tokens_out=sum(int(entry.get("completion_tokens") or 0) for entry in entries),
        usd=sum(float(row.get("cost") or 0.0) for row in paid),
    )
