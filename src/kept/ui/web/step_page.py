"""The page of a step: what was proposed and why, what became of it, and what that rests on."""

import json
from collections.abc import Mapping, Sequence

from kept.core.event import StepClosed
from kept.core.proposal import Proposal, Skip
from kept.core.score import Evaluation
from kept.store.glance import Glance
from kept.store.reader import Run
from kept.store.step_index import answered_step, closed_step
from kept.ui.report.changes import sides_of
from kept.ui.report.step import StepDetail, StepRollout, step_detail
from kept.ui.web.charts import differences, race_chart
from kept.ui.web.diffing import side_by_side
from kept.ui.web.figures import figure, signed, span
from kept.ui.web.links import Links
from kept.ui.web.run_page import step_line

BLOCK = 10
"""Draws of a block."""
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
    """All there is of a step, closed or open."""
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
        "cases": _cases(detail.rollouts),
    }


def _number(name: str, numbers: Mapping[str, float]) -> str:
    value = numbers[name]
    if name in ("low", "high", "gain"):
        return signed(value, numbers.get("low"), numbers.get("high"))
    if name.endswith(_WHOLE) or value == int(value):
        return f"{value:,.0f}"
    return figure(value)


def evidence(closed: StepClosed, told: Glance, links: Links) -> list[dict[str, object]]:
    """By purpose, both sides and how each case fared; what decides first."""
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
    """What a candidate was judged against for a purpose, and the step that drew it.

    That is the incumbent, whose draws may be shared with an earlier step; a final has rivals
    beside it, which are none. Only where the incumbent itself is proven it is the other one.
    """
    there = [one for one in closed.evaluations if one.purpose == purpose]
    others = [one for one in there if one.candidate != closed.candidate]
    if closed.incumbent == closed.candidate:
        return (others[0], closed.step) if others else (None, None)
    own = next((one for one in others if one.candidate == closed.incumbent), None)
    return (own, closed.step) if own else _earlier_bar(told, closed, purpose)


def rivals(told: Glance, closed: StepClosed, purpose: str) -> list[tuple[int | None, Evaluation]]:
    """The others of a final, each with the step that proposed it."""
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
    """What the incumbent did for a purpose in an earlier step, whose draws this one shares."""
    for row in reversed(told.rows[: closed.step]):
        if any((one.candidate, one.purpose) == (closed.incumbent, purpose) for one in row.told):
            for one in closed_step(told.folder, row).evaluations:
                if (one.candidate, one.purpose) == (closed.incumbent, purpose):
                    return one, row.step
    return None, None


def _rank(purpose: str) -> int:
    return ORDER.index(purpose) if purpose in ORDER else len(ORDER)


def paired(mine: Evaluation | None, theirs: Evaluation | None) -> dict[str, float]:
    """By case, how much less the challenger loses than what it is judged against."""
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
    """The mean gain after each block of draws on the cases that decide.

    Each draw of the challenger is held against the incumbent's mean on the same case, for its draws
    are shared among challengers and may stand in an earlier step.
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


def _cases(rollouts: Sequence[StepRollout]) -> list[str]:
    return list(dict.fromkeys(one.job.case_id for one in rollouts))[:500]


def open_words(detail: StepDetail) -> str:
    """What an open step is at."""
    if not detail.reply:
        return "the proposer is at work"
    return f"{len(detail.rollouts)} rollouts so far" if detail.rollouts else "about to be tried"


def as_json(value: object) -> str:
    """Raw data, for people."""
    return json.dumps(value, indent=1, ensure_ascii=False, default=str)
