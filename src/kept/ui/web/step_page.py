"""Step page: proposal, reason, result, evidence, text diff, and conversations of rollouts.

A diff shows two versions of a text side by side, with changed words marked.
"""

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, cast

from kept.core.event import StepClosed
from kept.core.llm import CASE, EXPECTED, FAILURE, FINAL
from kept.core.proposal import Proposal, Skip
from kept.core.rollout import TraceItem
from kept.core.score import Evaluation
from kept.core.text import Change, changes
from kept.results.diffs import sides_of
from kept.results.steps import StepRollout, step_detail
from kept.store.overview import Glance
from kept.store.reader import Run
from kept.store.step_index import answered_step, closed_step
from kept.ui.web.charts import differences, race_chart
from kept.ui.web.run_page import step_line
from kept.ui.web.templates import Links, figure, signed, span

CONTEXT = 3
"""Unchanged lines shown around a change."""
MOST = 1200
"""Maximum rows of one file; readers do not go further on a page."""
LONGEST = 4000
"""Maximum characters of two lines whose words are compared."""

_WORDS = re.compile(r"\s+|\w+|[^\w\s]")


class Piece(NamedTuple):
    """Characters of a line; marked if the other side lacks them."""

    text: str
    marked: bool


@dataclass(frozen=True, slots=True)
class Row:
    """One line of each side; None if that side has none."""

    old: tuple[Piece, ...] | None
    new: tuple[Piece, ...] | None
    at: tuple[int, int]
    """Line numbers; 0 if there is none."""
    kind: str
    """One of `same`, `changed`, `gone`, `added` or `skipped`."""


@dataclass(frozen=True, slots=True)
class FileChange:
    """One file before and after."""

    path: str
    rows: tuple[Row, ...]
    left_out: int
    """Number of rows beyond the maximum."""


def side_by_side(old: Mapping[str, str], new: Mapping[str, str]) -> list[FileChange]:
    """Every file that differs."""
    found: list[FileChange] = []
    for path in sorted(old.keys() | new.keys()):
        before, after = old.get(path, ""), new.get(path, "")
        if before != after:
            rows = list(_rows(before.splitlines(), after.splitlines()))
            found.append(FileChange(path, tuple(rows[:MOST]), max(0, len(rows) - MOST)))
    return found


def _rows(old: Sequence[str], new: Sequence[str]) -> Iterator[Row]:
    for group in _groups(changes(old, new)):
        first, last = group[0], group[-1]
        above = min(CONTEXT, first.start)
        if first.start > above or first.new_start > above:
            yield Row(None, None, (0, 0), "skipped")
        a, b = first.start - above, first.new_start - above
        for change in group:
            yield from _same(old[a : change.start], (a, b))
            a, b = change.end, change.new_end
            at = (change.start, change.new_start)
            yield from _changed(old[change.start : a], new[change.new_start : b], at)
        yield from _same(old[last.end : last.end + CONTEXT], (last.end, last.new_end))


def _groups(found: Iterator[Change]) -> Iterator[list[Change]]:
    """Changes grouped for display: in a group, the contexts of neighbors touch or overlap."""
    group: list[Change] = []
    for change in found:
        if group and change.start - group[-1].end > 2 * CONTEXT:
            yield group
            group = []
        group.append(change)
    if group:
        yield group


def _same(lines: Sequence[str], at: tuple[int, int]) -> Iterator[Row]:
    for n, line in enumerate(lines, 1):
        yield Row(_plain(line), _plain(line), (at[0] + n, at[1] + n), "same")


def _changed(old: Sequence[str], new: Sequence[str], at: tuple[int, int]) -> Iterator[Row]:
    for n in range(max(len(old), len(new))):
        one = old[n] if n < len(old) else None
        other = new[n] if n < len(new) else None
        lines = (at[0] + n + 1 if one is not None else 0, at[1] + n + 1 if other is not None else 0)
        if one is None or other is None:
            kind = "added" if one is None else "gone"
            marked = tuple(None if s is None else (Piece(s, True),) for s in (one, other))
            yield Row(marked[0], marked[1], lines, kind)
        else:
            yield Row(*_words(one, other), lines, "changed")


def _words(old: str, new: str) -> tuple[tuple[Piece, ...], tuple[Piece, ...]]:
    # a very long line is marked as a whole: comparing its words takes too long
    if len(old) + len(new) > LONGEST:
        return (Piece(old, True),), (Piece(new, True),)
    one, other = _WORDS.findall(old), _WORDS.findall(new)
    left: list[Piece] = []
    right: list[Piece] = []
    a = b = 0
    for change in (*changes(one, other), Change(len(one), len(one), len(other), len(other))):
        start, end, new_start, new_end = change
        for side, words, at, to, upto in (
            (left, one, a, start, end),
            (right, other, b, new_start, new_end),
        ):
            side.extend([Piece("".join(words[at:to]), False)] if to > at else [])
            side.extend([Piece("".join(words[to:upto]), True)] if upto > to else [])
        a, b = end, new_end
    return tuple(left), tuple(right)


def _plain(line: str) -> tuple[Piece, ...]:
    return (Piece(line, False),)


BLOCK = 10
"""Rollouts per block."""
ORDER = ("decide", "promote", "test", "measure", "screen")
ASKED = {
    "feedback": "shown to a proposer",
    "probe": "tried by a proposer",
    "screen": "worth paying for? (train cases)",
    "decide": "better on the cases that decide?",
    "promote": "better for cases nobody has seen?",
    "test": "by how much? (sealed cases)",
    "measure": "measured",
}
SPLITS = {
    **dict.fromkeys(("feedback", "probe", "screen"), "train"),
    **dict.fromkeys(("decide", "promote"), "deciding"),
    "test": "sealed",
    "measure": "measured",
}
_WHOLE = ("rollouts", "cases", "passes", "draws")


def step_view(run: Run, told: Glance, step: int, links: Links) -> dict[str, object]:
    """Template values of a step, closed or open."""
    detail = step_detail(run, step)
    found: dict[str, object] = {
        "step": step,
        "last": len(told.rows) + len(told.open) - 1,
        "detail": detail,
        "line": step_line(told.rows[step], told) if detail.row else None,
        "about": "",
        "changes": [],
        "evidence": [],
        "numbers": {},
        "race": None,
        "calls": 0,
    }
    if detail.row is None:
        return found
    row, closed = told.rows[step], run.closed(step)
    answer = answered_step(run.folder, row)
    reply = answer.reply if answer else None
    about = reply.about if isinstance(reply, Proposal | Skip) else None
    old, new = sides_of(run, closed) if closed.candidate is not None else (None, None)
    return found | {
        "about": json.dumps(about, indent=1, ensure_ascii=False, default=str) if about else "",
        "cites": reply.cites if isinstance(reply, Proposal) else (),
        "changes": side_by_side(old.texts, new.texts) if old and new else [],
        "evidence": evidence(closed, told, links),
        "numbers": {name: _number(name, row.numbers) for name in row.numbers},
        "race": race_of(detail.rollouts, closed, told),
        "spend": row.spend,
        "took": row.closed - row.opened,
        "cases": list(dict.fromkeys(one.job.case_id for one in detail.rollouts))[:500],
    }


def _number(name: str, numbers: Mapping[str, float]) -> str:
    value = numbers[name]
    if name in ("low", "high", "gain"):
        return signed(value, numbers.get("low"), numbers.get("high"))
    if name.endswith(_WHOLE) or value == int(value):
        return f"{value:,.0f}"
    return figure(value)


def evidence(closed: StepClosed, told: Glance, links: Links) -> list[dict[str, object]]:
    """Evidence by purpose: both sides and the result on each case; deciding purposes first."""
    found: list[dict[str, object]] = []
    by_purpose: dict[str, dict[str, Evaluation]] = {}
    for one in closed.evaluations:
        by_purpose.setdefault(one.purpose, {})[one.candidate] = one
    for purpose in sorted(by_purpose, key=_rank):
        mine = by_purpose[purpose].get(closed.candidate or "")
        theirs, drawn = bar_of(told, closed, purpose)
        gains = paired(mine, theirs)
        found.append(
            {
                "asked": ASKED.get(purpose, purpose),
                "split": SPLITS.get(purpose, purpose),
                "mine": _side(mine, told),
                "theirs": (_side(theirs, told) or {}) | {"step": drawn} if theirs else None,
                "rivals": [
                    {"step": step, **(_side(one, told) or {})}
                    for step, one in rivals(told, closed, purpose)
                ],
                "gains": gains,
                "chart": differences(gains, lambda case: links.case(told.id, closed.step, case)),
                "better": sum(gain > 0 for gain in gains.values()),
                "worse": sum(gain < 0 for gain in gains.values()),
            }
        )
    return found


def bar_of(told: Glance, closed: StepClosed, purpose: str) -> tuple[Evaluation | None, int | None]:
    """Evaluation that a candidate was compared with for a purpose, and the step that requested it.

    Usually that is the incumbent, whose rollouts may come from an earlier step. Rivals in a final
    do not count. Only if the incumbent itself is the candidate, it is the other evaluation.
    """
    there = [one for one in closed.evaluations if one.purpose == purpose]
    others = [one for one in there if one.candidate != closed.candidate]
    if closed.incumbent == closed.candidate:
        return (others[0], closed.step) if others else (None, None)
    own = next((one for one in others if one.candidate == closed.incumbent), None)
    return (own, closed.step) if own else _earlier_bar(told, closed, purpose)


def rivals(told: Glance, closed: StepClosed, purpose: str) -> list[tuple[int | None, Evaluation]]:
    """Other candidates of a final, each with the step that proposed it."""
    sides = (closed.candidate, closed.incumbent)
    there = (one for one in closed.evaluations if one.purpose == purpose)
    others = [one for one in there if one.candidate not in sides]
    if closed.candidate == closed.incumbent or not others:
        return []
    made = {row.candidate: row.step for row in told.rows[: closed.step] if row.candidate}
    return [(made.get(one.candidate), one) for one in others]


def _earlier_bar(
    told: Glance, closed: StepClosed, purpose: str
) -> tuple[Evaluation | None, int | None]:
    """Evaluation of the incumbent in an earlier step, whose rollouts this step shares."""
    for row in reversed(told.rows[: closed.step]):
        if any((one.candidate, one.purpose) == (closed.incumbent, purpose) for one in row.told):
            for one in closed_step(told.folder, row).evaluations:
                if (one.candidate, one.purpose) == (closed.incumbent, purpose):
                    return one, row.step
    return None, None


def _rank(purpose: str) -> int:
    return ORDER.index(purpose) if purpose in ORDER else len(ORDER)


def paired(mine: Evaluation | None, theirs: Evaluation | None) -> dict[str, float]:
    """Loss difference by case: positive if the challenger is better."""
    if mine is None or theirs is None:
        return {}
    both = [case for case in mine.cases if case in theirs.cases]
    return {case: theirs.cases[case].mean - mine.cases[case].mean for case in both}


def _side(side: Evaluation | None, told: Glance) -> dict[str, object] | None:
    if side is None:
        return None
    return {
        "candidate": side.candidate,
        "value": told.value(side.loss),
        "asked": side.asked,
        "failed": side.failed,
        "missing": side.missing,
        "cases": len(side.cases),
        "usd": side.usd,
        "first_failure": side.first_failure,
    }


def race_of(
    rollouts: Sequence[StepRollout], closed: StepClosed, told: Glance
) -> dict[str, object] | None:
    """Mean gain after each block of rollouts on the deciding cases.

    Each rollout of the challenger is compared with the incumbent's mean on the same case. The
    incumbent's rollouts are shared among challengers and may be of an earlier step.
    """
    mine = [one for one in rollouts if one.side == "challenger"]
    purpose = next((p for p in ("decide", "promote") if any(o.job.purpose == p for o in mine)), "")
    against = bar_of(told, closed, purpose)[0] if purpose else None
    if against is None:
        return None
    total, drawn, after, left = 0.0, 0, list[float](), 0
    for one in mine:
        if one.job.purpose != purpose:
            continue
        bar, value = against.cases.get(one.job.case_id), one.outcome.metrics.get(told.metric)
        # failed rollouts and cases without a counterpart are left out, and counted
        if one.outcome.failure is not None or bar is None or value is None:
            left += 1
            continue
        loss = value if told.direction == "minimize" else -value
        total, drawn = total + bar.mean - loss, drawn + 1
        if drawn % BLOCK == 0:
            after.append(total / drawn)
    if drawn and drawn % BLOCK:
        after.append(total / drawn)
    if not drawn:
        return None
    numbers = closed.verdict.numbers
    return {
        "chart": race_chart(after, f"blocks of {BLOCK}"),
        "draws": drawn,
        "left_out": left,
        "after": [signed(gain) for gain in after],
        "span": span(numbers.get("low"), numbers.get("high")),
    }


def as_json(value: object) -> str:
    """Raw data as indented JSON."""
    return json.dumps(value, indent=1, ensure_ascii=False, default=str)


LONG = 20_000
"""Maximum characters of one item; the raw trace has all of it."""

_TITLES = {
    "system": "instructions",
    "user": "user",
    "assistant": "assistant",
    "tool": "tool",
    CASE: "input of the case",
    EXPECTED: "expected",
    FAILURE: "failed",
    "metric": "measured",
    "tools": "tools expected",
    "stdout": "printed",
    "stderr": "printed as errors",
    "info": "note",
}


@dataclass(frozen=True, slots=True)
class Use:
    """A tool call of an assistant."""

    name: str
    arguments: str


@dataclass(frozen=True, slots=True)
class Said:
    """One item of a conversation."""

    role: str
    """Style class: one of the known roles, else `other`."""
    title: str
    text: str
    uses: tuple[Use, ...] = ()
    wrong: bool = False
    final: bool = False
    details: str = ""
    """Further data of the item as JSON; empty if there is none."""
    cut: int = 0
    """Number of characters left out."""


def conversation(trace: Sequence[TraceItem]) -> list[Said]:
    """Conversation of a trace in display form."""
    return [_said(item) for item in trace]


def _said(item: TraceItem) -> Said:
    data = cast("Mapping[str, Any]", item.data)
    role = item.role if item.role in _TITLES else "other"
    title = _TITLES.get(item.role, item.role)
    if item.role == "tool":
        title = f"tool {data.get('name', '')}".strip()
    if item.role == "metric":
        score = data.get("score")
        value = f"{score:.3g}" if isinstance(score, int | float) else "not measured"
        title = f"measured {data.get('metric', '')} {value}"
    shown = ("tool_calls", "name", "wrong", FINAL)
    rest = {name: value for name, value in data.items() if name not in shown}
    return Said(
        role=role,
        title=title,
        text=item.text[:LONG],
        uses=_uses(data.get("tool_calls")),
        wrong=bool(data.get("wrong")) or item.role == FAILURE or data.get("passed") is False,
        final=bool(data.get(FINAL)),
        details=json.dumps(rest, indent=1, ensure_ascii=False, default=str) if rest else "",
        cut=max(0, len(item.text) - LONG),
    )


def _uses(calls: object) -> tuple[Use, ...]:
    if not isinstance(calls, list):
        return ()
    found: list[Use] = []
    for call in cast("list[object]", calls):
        if isinstance(call, Mapping):
            given = cast("Mapping[str, object]", call)
            arguments = given.get("arguments", "")
            words = arguments if isinstance(arguments, str) else json.dumps(arguments, default=str)
            found.append(Use(str(given.get("name", "")), words))
    return tuple(found)
