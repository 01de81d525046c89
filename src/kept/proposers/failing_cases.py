"""Failing train cases for a diagnosing model, and detection of outages in a brief.

Each case is shown whole: conversation, expected output, tool calls, answer, and comments of
metrics and graders. Other fields are never shown. If an outage leaves no usable cases, the turn
is lost and repeated later. Pure.
"""

import random
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

from kept.core.case import Case
from kept.core.llm import PASSED, Exchange, exchanges_of
from kept.core.objective import Objective
from kept.core.proposal import Brief
from kept.core.rollout import FREE, Failure, TraceItem
from kept.core.score import Outcome
from kept.core.untyped import is_dict
from kept.proposers.prompt_items import Item, as_text

NOTHING = 1e-9
"""Tolerance of a loss that counts as none: sums of thirds are not exact in floats."""


class Row(NamedTuple):
    """A case with its outcome and trace."""

    case: Case
    outcome: Outcome
    trace: tuple[TraceItem, ...]


class Looked(NamedTuple):
    """Train cases of a brief, split by result."""

    failing: list[Row]
    passing: list[Row]
    missing: int
    """Number of cases without an answer, not by the candidate's fault."""


def look(brief: Brief) -> Looked:
    """Split the train cases of a brief into failing, passing and missing."""
    told: dict[str, tuple[Outcome, tuple[TraceItem, ...]]] = {}
    for answer in brief.answers:
        for pair, outcome in answer.outcomes.items():
            # a later sweep is only requested if an earlier one showed no failure
            told[pair.case] = (outcome, answer.traces.get(pair, ()))
    looked = Looked([], [], 0)
    missing = 0
    for case in brief.train:
        outcome, trace = told.get(case.id, (None, ()))
        if outcome is None or (outcome.failure and outcome.failure.blame != "candidate"):
            missing += 1
        elif is_failing(outcome, brief.objective):
            looked.failing.append(Row(case, outcome, trace))
        else:
            looked.passing.append(Row(case, outcome, trace))
    return looked._replace(missing=missing)


def is_failing(outcome: Outcome, objective: Objective) -> bool:
    """True if a case did not pass; if no pass is measured, if its loss is above the best."""
    if outcome.failure is not None:
        return outcome.failure.blame == "candidate"
    if PASSED in outcome.metrics:
        return outcome.metrics[PASSED] < 1.0
    least = 0.0
    if objective.bounds is not None:
        least = min(objective.loss({objective.metric: end}) for end in objective.bounds)
    return objective.loss(outcome.metrics) > least + NOTHING


def failing_items(rows: Sequence[Row], most: int, seed: int) -> list[Item]:
    """Sample of failing cases, drawn by the seed.

    The longest come last, and so are the first to be dropped if the context window is too small.
    Otherwise one very long case would take the room of all others. The shortest is always shown.
    """
    drawn = random.Random(seed).sample(rows, min(most, len(rows)))
    items: list[Item] = []
    for row in drawn:
        failure = row.outcome.failure
        how = "did not pass" if failure is None else f"failed: {failure.kind}"
        items.append(Item("failing case", f"# Case `{row.case.id}` {how}", "\n".join(_lines(row))))
    items.sort(key=lambda item: item.tokens)
    if items:
        first = items[0]
        items[0] = Item(first.what, first.title, first.text, needed=True)
    return items


def turns_of(case: Case) -> Sequence[Mapping[str, Any]]:
    """Turns of a case, each with its input and expected output."""
    data: Any = case.data
    if not is_dict(data):
        return ({"input": data},)
    return data.get("turns") or (data,)


def _lines(row: Row) -> Iterator[str]:
    exchanges, turns = exchanges_of(row.trace), turns_of(row.case)
    for n, turn in enumerate(turns):
        if len(turns) > 1:
            yield f"--- turn {n + 1} of {len(turns)}"
        yield from _turn(turn, exchanges[n] if n < len(exchanges) else None)
    if not exchanges:
        yield from (f"[{item.role}] {item.text}" for item in row.trace)
    failure = row.outcome.failure
    if failure is not None:
        yield f"[ended by] {failure.kind}: {failure.message}"
    for finding in row.outcome.findings:
        yield f"[finding] {finding.text}"


def _turn(turn: Mapping[str, Any], exchange: Exchange | None) -> Iterator[str]:
    yield f"[input] {exchange.input if exchange else as_text(turn.get('input', ''))}"
    if turn.get("ground_truth") is not None:
        yield f"[expected answer] {as_text(turn['ground_truth'])}"
    if turn.get("expected_tools") is not None:
        yield f"[expected tools] {as_text(turn['expected_tools'])}"
    if exchange is None:
        return
    for use in exchange.uses:
        wrong = " (the call was wrong)" if use.wrong else ""
        call = f"{use.name}({as_text(dict(use.arguments))})"
        yield f"[tool call] {call}\n[tool result]{wrong} {use.result}"
    yield f"[answer] {exchange.response}" if exchange.answered else "[answer] there was none"


def outage_of(brief: Brief) -> Failure | None:
    """Infrastructure failure of the first rollout that has one; None without."""
    outcomes = [one for answer in brief.answers for one in answer.outcomes.values()]
    found = (one.failure for one in outcomes if one.failure is not None)
    return next((replace(one, usage=FREE) for one in found if one.blame == "infrastructure"), None)
