"""Text diffs of a step, and comparison of two evaluations case by case.

A step's diff is between the text it was judged against and its candidate.

Two runs are compared on common cases, with the case as unit: flipped cases, and their
significance. The bounds of the mean difference hold for unseen cases at 95 % confidence.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import Any, Literal

from kept.core.artifact import Candidate
from kept.core.edit import diff, reapply
from kept.core.event import StepClosed
from kept.core.llm import PASSED
from kept.core.plan import REFINE
from kept.errors import JournalError
from kept.gates._statistics import bounds
from kept.results.cases import Sweep, Tested
from kept.store.reader import Run


def step_diff(run: Run, closed: StepClosed) -> str:
    """The change a step proposed to its incumbent; empty when there was none."""
    if closed.candidate is None:
        return ""
    return diff(*sides_of(run, closed))


def sides_of(run: Run, closed: StepClosed) -> tuple[Candidate, Candidate]:
    """Return a step's incumbent and its candidate; the step must have a candidate."""
    incumbent = run.candidate(closed.incumbent)
    return _shown(run, incumbent, _candidate(run, closed, incumbent))


def best_diff(run: Run) -> str:
    """The change from seed to best."""
    return diff(*_shown(run, run.seed, run.best))


def _shown(run: Run, old: Candidate, new: Candidate) -> tuple[Candidate, Candidate]:
    """Both sides as shown; of a refinement only the deliverables."""
    shown = _DELIVERED.get(run.glance.begun.recipe)
    return (shown(old), shown(new)) if shown else (old, new)


def _deliverable(candidate: Candidate) -> Candidate:
    # imported at use: few runs refine
    from kept.orchestrator.refine.attempt import deliverable_of

    return deliverable_of(candidate)


_DELIVERED: Mapping[str, Callable[[Candidate], Candidate]] = {REFINE: _deliverable}
"""Functions that reduce a candidate to its shown part, by recipe; others show all."""


def _candidate(run: Run, closed: StepClosed, incumbent: Candidate) -> Candidate:
    assert closed.candidate is not None
    try:
        return run.candidate(closed.candidate)
    except JournalError:
        # a candidate that a guard refused is not stored; its edits rebuild it exactly
        return reapply(incumbent, closed.reports)


LEVEL = 0.025
"""Error probability on each side of the interval."""

Answer = Literal["better", "worse", "cannot tell", "the same"]


@dataclass(frozen=True, slots=True)
class Flip:
    """A case that passes in one run and not in the other."""

    case: str
    was: float
    now: float
    """Share of its repeats that pass."""
    why: str


@dataclass(frozen=True, slots=True)
class Shift:
    """Change of one metric from the first run to the second."""

    metric: str
    cases: int
    was: float
    now: float
    low: float
    high: float

    @property
    def gain(self) -> float:
        """The mean difference."""
        return self.now - self.was

    @property
    def answer(self) -> Answer:
        """Conclusion for unseen cases like these, from the bounds of the mean difference."""
        if self.low > 0:
            return "better"
        if self.high < 0:
            return "worse"
        return "the same" if self.low == self.high == 0 else "cannot tell"


@dataclass(frozen=True, slots=True)
class Difference:
    """Differences between two runs."""

    first: str
    second: str
    shifts: tuple[Shift, ...]
    """`passed` first, where cases pass or fail."""
    better: tuple[Flip, ...]
    worse: tuple[Flip, ...]
    apart: tuple[str, ...]
    """Cases that only one of the runs measured, or could measure."""

    def document(self) -> dict[str, Any]:
        """All differences as plain data, for `--json`."""
        return {
            "first": self.first,
            "second": self.second,
            "metrics": {
                s.metric: {
                    "first": s.was,
                    "second": s.now,
                    "difference": s.gain,
                    "low": _finite(s.low),
                    "high": _finite(s.high),
                    "cases": s.cases,
                    "answer": s.answer,
                }
                for s in self.shifts
            },
            "better": [_flip(flip) for flip in self.better],
            "worse": [_flip(flip) for flip in self.worse],
            "not_in_both": list(self.apart),
        }


def difference(first: Sweep, second: Sweep) -> Difference:
    """Compare two evaluations on their common cases."""
    old, new = _by_case(first), _by_case(second)
    both = [case for case in new if case in old]
    apart = tuple(case for case in (*old, *new) if (case in old) != (case in new))
    graded = first.graded and second.graded
    shifts = [_shift(name, both, old, new) for name in second.means if name in first.means]
    # without a metric of that name, `passed` is the share of repeats that pass
    if graded and PASSED not in second.means:
        shifts.insert(0, _shift(None, both, old, new))
    better, worse = _flips(both, old, new) if graded else ((), ())
    return Difference(
        first.run, second.run, tuple(s for s in shifts if s is not None), better, worse, apart
    )


def _by_case(sweep: Sweep) -> dict[str, list[Tested]]:
    """Group results by case, without errored ones, which say nothing about either run."""
    found: dict[str, list[Tested]] = {}
    for one in sweep.cases:
        if one.status != "errored":
            found.setdefault(one.case, []).append(one)
    return found


def _value(name: str | None, rows: Sequence[Tested]) -> float | None:
    """The mean of a metric; without a name, the share of rows that pass."""
    if name is None:
        return fmean(one.status == "passed" for one in rows)
    # no answer is as bad as a wrong one
    scores = [0.0 if one.failure else one.metrics.get(name) for one in rows]
    there = [score for score in scores if score is not None]
    return fmean(there) if there else None


def _shift(
    name: str | None,
    both: Sequence[str],
    old: Mapping[str, Sequence[Tested]],
    new: Mapping[str, Sequence[Tested]],
) -> Shift | None:
    values = [(_value(name, old[case]), _value(name, new[case])) for case in both]
    pairs = [(was, now) for was, now in values if was is not None and now is not None]
    if not pairs:
        return None
    gains = [now - was for was, now in pairs]
    low, high = bounds(gains, LEVEL) if any(gains) else (0.0, 0.0)
    label = PASSED if name is None else name
    return Shift(
        label, len(pairs), fmean(was for was, _ in pairs), fmean(now for _, now in pairs), low, high
    )


def _flips(
    both: Sequence[str], old: Mapping[str, Sequence[Tested]], new: Mapping[str, Sequence[Tested]]
) -> tuple[tuple[Flip, ...], tuple[Flip, ...]]:
    better: list[Flip] = []
    worse: list[Flip] = []
    for case in both:
        was, now = _value(None, old[case]), _value(None, new[case])
        assert was is not None and now is not None, "whether a case passes is always known"
        rows = old[case] if now > was else new[case]
        why = next((one.why for one in rows if one.why), "")
        if now != was:
            (better if now > was else worse).append(Flip(case, was, now, why))
    return tuple(better), tuple(worse)


def _flip(flip: Flip) -> dict[str, Any]:
    return {"case": flip.case, "first": flip.was, "second": flip.now, "why": flip.why}


def _finite(value: float) -> float | None:
    return value if abs(value) != float("inf") else None
