"""Runs side by side: headlines, what differs in how they were asked, which cases flip."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import NamedTuple, cast

from kept.gates.subsets import bounds
from kept.store.glance import Glance
from kept.store.step_index import closed_step
from kept.ui.report.difference import LEVEL
from kept.ui.report.format import duration
from kept.ui.web.figures import figure, gained, money, share, signed, span, thousands
from kept.ui.web.kinds import Kind
from kept.ui.web.run_page import state_of
from kept.ui.web.step_page import ORDER

MOST_FLIPS = 200
_INPUTS = "inputs."
_NOISE = ("resumed", "stages")
"""Facts that are the same of all runs, or of no interest."""


@dataclass(frozen=True, slots=True)
class Side:
    """One run."""

    told: Glance
    kind: Kind
    headline: str
    cases: Mapping[str, "CaseValue"]
    """What its best came to, by case."""

    @property
    def facts(self) -> list[tuple[str, str]]:
        """Its figures."""
        told, spend = self.told, self.told.spend
        first, last = told.values
        gain = told.gain
        shown = "not bounded"
        if gain is not None:
            shown = gained(gain.mean, gain.low, gain.high)
        return [
            ("state", state_of(told.status)),
            ("kind", self.kind.word),
            (told.metric, f"{figure(first)} → {figure(last)}" if told.keeps else figure(last)),
            *([("gain", shown)] if told.proposals else []),
            *([("kept", f"{told.keeps} of {told.proposals}")] if told.proposals else []),
            ("rollouts", thousands(spend.rollouts)),
            ("cost", money(spend.usd)),
            ("at work", duration(told.elapsed)),
        ]


class CaseValue(NamedTuple):
    """What a candidate came to on a case."""

    value: float
    """Of the metric."""
    step: int
    """That asked for it."""


def case_values(told: Glance) -> dict[str, CaseValue]:
    """What the best of a run came to on each case, by the draws that say most."""
    wanted = told.best
    found: dict[str, tuple[int, CaseValue]] = {}
    rows = [row for row in told.rows if any(one.candidate == wanted for one in row.told)]
    for row in rows[-8:]:
        for one in closed_step(told.folder, row).evaluations:
            if one.candidate != wanted or one.purpose not in ORDER:
                continue
            rank = ORDER.index(one.purpose)
            for case, tally in one.cases.items():
                value = told.value(tally.mean)
                if value is not None and (case not in found or found[case][0] >= rank):
                    found[case] = (rank, CaseValue(value, row.step))
    return {case: value for case, (_, value) in found.items()}


def compare_view(sides: Sequence[Side]) -> dict[str, object]:
    """All that the page shows."""
    names = list(dict.fromkeys(name for side in sides for name, _ in side.facts))
    tables = [dict(side.facts) for side in sides]
    differ = config_differences([side.told for side in sides])
    return {
        "sides": sides,
        "figures": [(name, [table.get(name, "–") for table in tables]) for name in names],
        "config": [row for row in differ if not row[0].startswith(_INPUTS)],
        "inputs": [
            (row[0].removeprefix(_INPUTS), row[1]) for row in differ if row[0].startswith(_INPUTS)
        ],
        "against": [_against(sides[0], side) for side in sides[1:]],
    }


def config_differences(runs: Sequence[Glance]) -> list[tuple[str, list[str]]]:
    """Facts and inputs that are not the same, each with its value in every run."""
    flats = [_flat({**told.begun.facts, "inputs": dict(told.begun.inputs)}) for told in runs]
    names = dict.fromkeys(name for flat in flats for name in flat)
    rows = [(name, [flat.get(name, "–") for flat in flats]) for name in names]
    return [(name, values) for name, values in rows if len(set(values)) > 1]


def _flat(value: object, path: str = "") -> dict[str, str]:
    if isinstance(value, Mapping):
        found: dict[str, str] = {}
        for name, inner in cast("Mapping[str, object]", value).items():
            if path or name not in _NOISE:
                found |= _flat(inner, f"{path}.{name}" if path else str(name))
        return found
    if isinstance(value, list):
        parts = [str(part) for part in cast("list[object]", value)]
        if not any(parts):
            return {}
        return {path: ", ".join(parts) if len(parts) <= 20 else f"{len(parts)} entries"}
    # what nobody said is no difference
    return {} if value is None or value == "" else {path: str(value)}


def _against(first: Side, other: Side) -> dict[str, object]:
    """What changed from the first run to another, case by case."""
    alike = (first.told.metric, first.told.direction) == (other.told.metric, other.told.direction)
    both = [case for case in other.cases if case in first.cases] if alike else []
    sign = -1.0 if first.told.direction == "minimize" else 1.0
    gains = {case: sign * (other.cases[case].value - first.cases[case].value) for case in both}
    better = sorted((c for c in both if gains[c] > 0), key=lambda c: -gains[c])
    worse = sorted((c for c in both if gains[c] < 0), key=lambda c: gains[c])
    return {
        "run": other.told.id,
        "alike": alike,
        "both": len(both),
        "apart": len(set(first.cases) ^ set(other.cases)),
        "words": _words(list(gains.values())) if gains else "",
        "better": [_flip(case, first, other) for case in better[:MOST_FLIPS]],
        "worse": [_flip(case, first, other) for case in worse[:MOST_FLIPS]],
        "other_cases": first.told.begun.inputs.get("cases") != other.told.begun.inputs.get("cases"),
        "chosen": first.told.keeps > 0 or other.told.keeps > 0,
    }


def _words(gains: Sequence[float]) -> str:
    mean = fmean(gains)
    low, high = bounds(gains, LEVEL) if any(gains) else (0.0, 0.0)
    same = "the same on every case" if not any(gains) else ""
    answer = "better" if low > 0 else "worse" if high < 0 else same or "cannot tell"
    better = share(sum(gain > 0 for gain in gains) / len(gains))
    where = f"{span(_finite(low), _finite(high))}" if any(gains) else ""
    return f"{answer}: {signed(mean)}{f' ({where})' if where else ''}, better on {better} of cases"


def _finite(value: float) -> float | None:
    return value if abs(value) != float("inf") else None


def _flip(case: str, first: Side, other: Side) -> dict[str, object]:
    return {"case": case, "was": first.cases[case], "now": other.cases[case]}
