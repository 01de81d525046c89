"""Formats of numbers, times and counts, shared by all views."""

import time
from collections import Counter
from collections.abc import Iterable
from typing import TYPE_CHECKING

from kept.core.plan import (
    AGENT_CONFIG,
    AGENT_RUN,
    COMPARE,
    EVALUATE,
    FUNCTION,
    REFINE,
    SKILL,
    SUITE,
    TASK,
)
from kept.core.text import count, no_better, one_line
from kept.core.verdict import FOLLOWED
from kept.ui.report.compare import title

if TYPE_CHECKING:
    from kept.core.budget import Spend
    from kept.results.summary import Summary

LIMITS = {
    "max_iterations": "iteration",
    "max_failures": "crashed step",
    "max_minutes": "minute",
    "max_rollouts": "rollout",
}
VERDICTS = {"keep": "kept", "discard": "discarded", "crash": "crashed", "skip": "skipped"}


RECIPES = {
    TASK: "artifact",
    FUNCTION: "function",
    AGENT_CONFIG: "coordinate",
    SKILL: "skill",
    AGENT_RUN: "agent run",
    REFINE: "refine",
    SUITE: "suite",
    EVALUATE: "eval",
    COMPARE: "compare",
}
"""Names of recipes in pages and documents."""


def recipe_word(name: str) -> str:
    """Name of a recipe in pages and documents."""
    return RECIPES.get(name, name)


def number(value: float | None) -> str:
    """Measured value, in the same format as in verdicts."""
    # adding zero turns the −0 of a negated loss into 0
    return "no score" if value is None else f"{value + 0.0:.6g}"


def change(summary: "Summary") -> str:
    """`0.62 → 0.71`, or the seed's value alone if nothing beat it."""
    if not summary.improved:
        return number(summary.seed_value)
    return f"{number(summary.seed_value)} → {number(summary.best_value)}"


def headline_words(summary: "Summary") -> str:
    """Outcome in one line."""
    if summary.comparison is not None:
        return title(summary.comparison)
    if summary.improved:
        return f"{summary.metric} {change(summary)}{on_cases(summary)}"
    if not summary.steps:
        return f"nothing was judged{'' if summary.status == 'finished' else ' yet'}"
    if summary.seed_value is None and summary.never_judged:
        return f"nothing was judged: {one_line(summary.never_judged, 100)}"
    if summary.seed_value is None:
        return "nothing was kept, and the seed has no score"
    if summary.leading is not None and summary.status != "finished":
        seed = f"the seed has {summary.metric} {change(summary)}"
        return f"nothing is proven yet: step {summary.leading} leads, and {seed}"
    return f"{no_better(summary.status)}: {summary.metric} {change(summary)}{on_cases(summary)}"


def on_cases(summary: "Summary") -> str:
    """` on 12 test cases`: cases behind the figures of the headline."""
    return f" on {summary.measured}" if summary.measured else ""


def verdict_counts(summary: "Summary") -> str:
    """`2 kept, 3 discarded`; behind a semicolon turns and steps without a verdict."""
    judged = Counter(
        FOLLOWED if row.code == FOLLOWED else VERDICTS[row.outcome]
        for row in summary.steps
        if row.proposed
    )
    words = (*VERDICTS.values(), FOLLOWED)
    verdicts = ", ".join(f"{judged[word]} {word}" for word in words if judged[word])
    empty = summary.empty_turns
    rest = [f"{count(empty, 'turn')} proposed nothing"] if empty else []
    rest += [f"{count(len(summary.open), 'step')} open"] if summary.open else []
    return "; ".join(part for part in (verdicts, *rest) if part)


def merges_words(summary: "Summary") -> str:
    """` and 2 merges`: merges tried besides proposals; empty without any."""
    return f" and {count(summary.merges, 'merge')}" if summary.merges else ""


def lost_words(turns: int) -> str:
    """Number of proposals lost to an outage, or to a scorer without results."""
    what = "1 proposal was" if turns == 1 else f"{turns} proposals were"
    return f"{what} never measured: there was no answer that counts"


def duration(seconds: float) -> str:
    """Duration in seconds, as `0.4 s`, `12 s`, `3 m 20 s`, `2 h 05 m` or `4 days`."""
    if seconds < 10:
        return f"{seconds:.1f} s"
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    minutes, rest = divmod(whole, 60)
    if minutes < 60:
        return f"{minutes} m {rest:02} s"
    hours, minutes = divmod(minutes, 60)
    if hours < 48:
        return f"{hours} h {minutes:02} m"
    return f"{round(hours / 24):,} days"


def clock(t: float) -> str:
    """Point in time as local date and time."""
    return time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(t))


def budget_words(summary: "Summary") -> str:
    """Limits of the budget in words."""
    limits = summary.budget
    named = [count(limits[name], one) for name, one in LIMITS.items() if name in limits]
    named += [f"${limits['max_usd']:g}"] if "max_usd" in limits else []
    rollouts = limits.get("max_rollouts_usd")
    named += [] if rollouts is None else [f"${rollouts:g} for all rollouts together"]
    return ", ".join(named) or "no limit"


def cases_words(summary: "Summary") -> str:
    """Number of cases per split in words."""
    counts = [f"{n} {split}" for split, n in summary.cases.items() if n]
    return ", ".join(counts) or "none: the whole evaluator is one case"


def spend_words(spend: "Spend") -> str:
    """Spend in words, without the parts that are zero."""
    return ", ".join(_spend_parts(spend))


def _spend_parts(spend: "Spend") -> Iterable[str]:
    yield count(spend.rollouts, "rollout")
    if spend.moot:
        yield f"{spend.moot} of them moot"
    if spend.cancelled:
        yield f"{spend.cancelled} more cancelled"
    if spend.retries:
        yield count(spend.retries, "retry", "retries")
    if spend.calls:
        yield count(spend.calls, "model call")
        yield f"{spend.tokens_in:,} tokens in and {spend.tokens_out:,} out"
    if spend.usd:
        yield f"${spend.usd:.4f}"
