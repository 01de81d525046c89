"""Matrix of candidates and cases with cell details, and comparison of runs.

The comparison shows headlines, different settings, and flipped cases.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from statistics import fmean
from typing import NamedTuple, cast

from kept.core.event import RunStarted
from kept.core.rollout import Job
from kept.core.score import Evaluation, Outcome, Tally
from kept.errors import SetupError
from kept.gates._statistics import bounds
from kept.results.diffs import LEVEL
from kept.store import codec
from kept.store.jsonl import rollout_lines
from kept.store.overview import Glance
from kept.store.reader import Run
from kept.store.step_index import StepRow, closed_step
from kept.ui.report.format import duration
from kept.ui.web.kinds import Kind
from kept.ui.web.run_page import state_of, step_line
from kept.ui.web.step_page import ASKED, ORDER, SPLITS, Said, as_json, bar_of, conversation
from kept.ui.web.templates import figure, gained, money, share, signed, span, thousands

COLUMNS = 12
"""Maximum number of candidates side by side."""
ROWS = 200
"""Maximum number of cases on a page."""
FILTERS = ("all", "broke", "fixed", "flaky", "always failing")
SHOW = ("kept", "all")
MOST_EARLIER = 20
"""Maximum number of earlier steps searched for rollouts that a later one shares."""
MOST_ROLLOUTS = 60
"""Maximum number of rollouts of one cell that are shown with traces."""


class Cell(NamedTuple):
    """One candidate on one case."""

    value: float
    """Mean of its rollouts, in the metric's own units."""
    n: int
    failed: int
    flip: int
    """1 if better than the candidate it was compared with, -1 if worse, else 0."""
    flaky: bool
    """True if its own rollouts differ."""
    purpose: str
    level: int
    """Grade from 0 for the worst value on the page to 4 for the best."""
    fails: bool = False
    """True if the value is the worst possible; without a zero, the worst on the page."""


@dataclass(frozen=True, slots=True)
class Column:
    """One candidate: the step that judged it, and its results."""

    row: StepRow
    line: Mapping[str, object]
    cells: Mapping[str, Cell]
    theirs: Mapping[str, Cell]


def matrix(told: Glance, show: str, only: str, before: int | None, page: int) -> dict[str, object]:
    """Template values: columns of candidates up to a step, rows of cases that pass the filter."""
    eligible = [row for row in told.rows if _has_cases(row, show)]
    if before is not None:
        eligible = [row for row in eligible if row.step <= before]
    chosen = eligible[-COLUMNS:]
    columns = _graded([_column(row, told) for row in chosen], told.direction == "minimize")
    cases = list(dict.fromkeys(case for column in columns for case in column.cells))
    kept = [case for case in cases if _passes(case, columns, only)]
    pages = max(1, -(-len(kept) // ROWS))
    page = min(max(1, page), pages)
    shown = kept[(page - 1) * ROWS : page * ROWS]
    return {
        "columns": columns,
        "rows": [_row(case, columns) for case in shown],
        "cases": len(cases),
        "kept": len(kept),
        "page": page,
        "pages": pages,
        "show": show,
        "only": only,
        "filters": FILTERS,
        "shows": SHOW,
        "earlier": chosen[0].step - 1 if len(eligible) > len(chosen) else None,
        "before": before,
    }


def _has_cases(row: StepRow, show: str) -> bool:
    mine = any(one.candidate == row.candidate and one.asked for one in row.told)
    return mine and (show == "all" or row.kept or row.best or row.code in ("claim", "measured"))


def _column(row: StepRow, told: Glance) -> Column:
    closed = closed_step(told.folder, row)
    mine = [e for e in closed.evaluations if e.candidate == row.candidate]
    cells: dict[str, Cell] = {}
    bar_cells: dict[str, Cell] = {}
    # in the order of purposes; the first evaluation that has a case provides its cell
    for one in sorted(mine, key=_rank):
        bar = bar_of(told, closed, one.purpose)[0]
        for case, tally in one.cases.items():
            other = bar.cases.get(case) if bar else None
            cells.setdefault(case, _cell(tally, other, one.purpose, told))
            if other is not None:
                bar_cells.setdefault(case, _cell(other, None, one.purpose, told))
    return Column(row, step_line(row, told), cells, bar_cells)


def _rank(evaluation: Evaluation) -> int:
    return ORDER.index(evaluation.purpose) if evaluation.purpose in ORDER else len(ORDER)


def _cell(tally: Tally, other: Tally | None, purpose: str, told: Glance) -> Cell:
    # tallies hold losses, so a smaller mean is better
    gain = 0.0 if other is None else other.mean - tally.mean
    flip = (gain > 1e-9) - (gain < -1e-9)
    value = told.value(tally.mean)
    assert value is not None, "a tally has a mean"
    return Cell(value, tally.n, tally.failed, flip, tally.std > 1e-9, purpose, 0)


def _graded(columns: Sequence[Column], minimize: bool) -> list[Column]:
    """Columns with a grade for each cell, by the range of values on the page."""
    values = [
        c.value for column in columns for c in (*column.cells.values(), *column.theirs.values())
    ]
    low, high = (min(values), max(values)) if values else (0.0, 1.0)

    def level(cell: Cell) -> Cell:
        # 4 is the better end, whichever direction the metric has
        part = (cell.value - low) / (high - low) if high > low else 1.0
        grade = round(4 * (1.0 - part if minimize and high > low else part))
        fails = grade == 0 if minimize or low < 0 else cell.value <= 0
        return cell._replace(level=grade, fails=fails or cell.failed >= cell.n)

    return [
        Column(
            one.row,
            one.line,
            {case: level(cell) for case, cell in one.cells.items()},
            {case: level(cell) for case, cell in one.theirs.items()},
        )
        for one in columns
    ]


def _passes(case: str, columns: Sequence[Column], only: str) -> bool:
    cells = [column.cells[case] for column in columns if case in column.cells]
    match only:
        case "broke":
            return any(cell.flip < 0 for cell in cells)
        case "fixed":
            return any(cell.flip > 0 for cell in cells)
        case "flaky":
            return any(cell.flaky for cell in cells)
        case "always failing":
            return all(cell.fails for cell in cells)
        case _:
            return True


def _row(case: str, columns: Sequence[Column]) -> dict[str, object]:
    cells = [column.cells.get(case) for column in columns]
    known = next(cell for cell in cells if cell is not None)
    before = next((c.theirs[case] for c in columns if case in c.theirs), None)
    return {
        "case": case,
        "cells": list(zip(columns, cells, strict=True)),
        "split": SPLITS.get(known.purpose, known.purpose),
        "before": before,
    }


@dataclass(frozen=True, slots=True)
class Shown:
    """One rollout of a cell."""

    drawn: int
    """Step that requested it."""
    job: Job
    side: str
    asked: str
    outcome: Outcome
    said: list[Said]
    raw: str

    @property
    def anchor(self) -> str:
        """Anchor of the rollout on the page."""
        return f"{self.side}-{self.job.purpose}-{self.job.repeat}-{self.drawn}"


def cell_view(run: Run, told: Glance, step: int, case: str) -> dict[str, object]:
    """Template values: every rollout of a case in a step."""
    if not 0 <= step < len(told.rows) + len(told.open):
        raise SetupError(f"run {told.id} has no step {step}", hint="its page lists the steps")
    row = told.rows[step] if step < len(told.rows) else None
    found: list[Shown] = []
    left_out = 0
    for drawn, job, outcome in _drawn(told, step, case):
        if len(found) >= MOST_ROLLOUTS:
            left_out += 1
            continue
        trace = run.trace(outcome.trace) if outcome.trace else ()
        raw = {
            "job": job._asdict(),
            "outcome": outcome._asdict(),
            "trace": list(map(asdict, trace)),
        }
        side = "incumbent" if row and job.candidate_id == row.incumbent else "challenger"
        # in a proof the incumbent itself is the candidate, and counts as the challenger
        if row and row.candidate and job.candidate_id == row.candidate:
            side = "challenger"
        if job.purpose == "measure":
            side = "measured"
        asked = ASKED.get(job.purpose, job.purpose)
        found.append(Shown(drawn, job, side, asked, outcome, conversation(trace), as_json(raw)))
    if not found:
        raise SetupError(
            f"step {step} of run {told.id} has no rollout of case `{case}`",
            hint="its page lists the cases that it met",
        )
    found.sort(key=lambda one: (one.side == "incumbent", one.job.purpose, one.job.repeat))
    splits = {SPLITS.get(one.job.purpose, one.job.purpose) for one in found}
    return {
        "step": step,
        "case": case,
        "shown": found,
        "left_out": left_out,
        "line": step_line(row, told) if row else None,
        "splits": sorted(splits),
    }


def _drawn(told: Glance, step: int, case: str) -> list[tuple[int, Job, Outcome]]:
    """Rollouts of a case that decided a step, each with the step that requested it.

    If the step requested none itself, it shares those of earlier steps with the same candidates.
    """
    found = [(step, *one) for one in _rollouts(told, step, case)]
    if found or step >= len(told.rows):
        return found
    row, looked = told.rows[step], 0
    wanted = {(one.candidate, one.purpose) for one in row.told}
    # rollouts of the incumbent for the same purposes count too
    wanted |= {(row.incumbent, purpose) for _, purpose in wanted}
    for earlier in reversed(told.rows[:step]):
        if not any((one.candidate, one.purpose) in wanted for one in earlier.told):
            continue
        for job, outcome in _rollouts(told, earlier.step, case):
            if (job.candidate_id, job.purpose) in wanted:
                found.append((earlier.step, job, outcome))
        looked += 1
        if looked >= MOST_EARLIER:
            break
    return found


def _rollouts(told: Glance, step: int, case: str) -> Iterator[tuple[Job, Outcome]]:
    """Rollouts of one case; other lines are skipped without decoding them."""
    if step < len(told.rows):
        start, end = told.rows[step].range
    else:
        start, end = told.open[step - len(told.rows)].rollouts_at, None
    needle = b'"case":' + codec.encode(case)
    for row in rollout_lines(told.folder / "rollouts.jsonl", start, end, needles=[needle]):
        if isinstance(row, codec.RolloutLine) and (row.step, row.case) == (step, case):
            yield row.entry()


MOST_FLIPS = 200
_INPUTS = "inputs."
_NOISE = ("resumed", "stages")
"""Facts that are equal in all runs, or irrelevant for a comparison."""


@dataclass(frozen=True, slots=True)
class Side:
    """One run in a comparison."""

    told: Glance
    kind: Kind
    headline: str
    cases: Mapping[str, "CaseValue"]
    """Results of its best candidate, by case."""

    @property
    def facts(self) -> list[tuple[str, str]]:
        """Rows of labels and figures."""
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
    """Result of a candidate on a case."""

    value: float
    """Value of the metric."""
    step: int
    """Step that requested it."""


def case_values(told: Glance) -> dict[str, CaseValue]:
    """Results of a run's best candidate by case, from the evaluation with the most evidence."""
    wanted = told.best
    found: dict[str, tuple[int, CaseValue]] = {}
    rows = [row for row in told.rows if any(one.candidate == wanted for one in row.told)]
    # only the last eight steps that measured it; at equal rank the later evaluation counts
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
    """Template values of a comparison of runs."""
    names = list(dict.fromkeys(name for side in sides for name, _ in side.facts))
    tables = [dict(side.facts) for side in sides]
    begun = [side.told.begun for side in sides]
    flats = [_flat(_told(one)) for one in begun]
    keys = dict.fromkeys(name for flat in flats for name in flat)
    values = [(name, [flat.get(name, "–") for flat in flats]) for name in keys]
    # settings and inputs that differ, each with its value in every run
    differ = [row for row in values if len(set(row[1])) > 1]
    return {
        "sides": sides,
        "figures": [(name, [table.get(name, "–") for table in tables]) for name in names],
        "config": [row for row in differ if not row[0].startswith(_INPUTS)],
        "inputs": [
            (row[0].removeprefix(_INPUTS), row[1]) for row in differ if row[0].startswith(_INPUTS)
        ],
        "against": [_against(sides[0], side) for side in sides[1:]],
    }


def _told(begun: RunStarted) -> Mapping[str, object]:
    """All settings and facts that a run recorded at its start."""
    settings = codec.document_of(begun.settings)
    return {**settings, **begun.request, **begun.facts, "inputs": dict(begun.inputs)}


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
    # an unset value is no difference
    return {} if value is None or value == "" else {path: str(value)}


def _against(first: Side, other: Side) -> dict[str, object]:
    """Changes from the first run to another, case by case."""
    # values compare only if metric and direction are the same in both runs
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


# wins only if the whole interval of the mean gain lies on one side of 0
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
