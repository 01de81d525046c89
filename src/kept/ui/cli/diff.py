"""`kept diff [RUN]`, and `kept diff RUN RUN`, a terminal comparison of measured runs."""

from collections.abc import Mapping, Sequence
from math import isfinite
from typing import TYPE_CHECKING

import click

from kept.core.plan import COMPARE, EVALUATE
from kept.core.text import count, one_line
from kept.errors import SetupError
from kept.ui.cli import _output
from kept.ui.cli._command import Command, json_option, run_argument, step_option
from kept.ui.report.format import number

if TYPE_CHECKING:
    from kept.results.diffs import Answer, Difference, Flip, Shift


@click.command(
    cls=Command,
    examples=(
        "kept diff",
        "kept diff last --step 0",
        "kept diff > best.patch",
    ),
)
@run_argument
@click.argument("other", required=False, metavar="[RUN]")
@step_option
@json_option
def diff(run: str, other: str | None, step: int | None, as_json: bool) -> None:
    """Show the change from seed to best.

    A unified diff, as `patch` takes it. With --step, the change that this step proposed to what it
    was judged against. RUN is an id, the start or end of one, a folder, or `last`: the last run,
    and without --step the last that keeps something.

    Of two runs that measured (`kept eval`): which cases flipped from the first to the second, and
    whether the difference is real.
    """
    if other is not None:
        if step is not None:
            raise click.UsageError("--step is about one run")
        _two_runs(run, other, as_json)
        return
    from kept.results.diffs import best_diff, step_diff
    from kept.run import may_keep
    from kept.ui.cli._open_run import closed_step, nothing_better, open_run

    past = open_run(run, may_keep if step is None else None)
    text = best_diff(past) if step is None else step_diff(past, closed_step(past, step))
    kept_nothing = KEEPS_NOTHING.get(past.recipe or "", {}).get(step is None, "")
    better = nothing_better(past)
    past.close()
    if as_json:
        _output.document({"run": past.id, "step": step, "diff": text})
    elif text:
        _output.answer(_output.coloured_diff(text).removesuffix("\n"))
    elif kept_nothing:
        _output.note(kept_nothing.format(run=past.id))
    elif step is None:
        _output.note(f"{better}, so there is no difference")
    else:
        _output.note(f"step {step} changes nothing")


_MEASURED = "a run that only measures changes nothing; `kept diff RUN RUN` compares two"
KEEPS_NOTHING: Mapping[str, Mapping[bool, str]] = {
    COMPARE: {True: "a comparison keeps nothing; `kept diff {run} --step N` shows what differs"},
    EVALUATE: {True: _MEASURED, False: _MEASURED},
}
"""Message if there is no difference, by recipe and by whether the whole run is meant."""


def _two_runs(first: str, second: str, as_json: bool) -> None:
    from kept.recipes.evaluate.request import Evaluation
    from kept.results.cases import sweep_of
    from kept.results.diffs import difference
    from kept.run import asked_for
    from kept.ui.cli._open_run import open_run

    pasts = [open_run(name, asked_for(Evaluation)) for name in (first, second)]
    sweeps = [sweep_of(past) for past in pasts]
    for past in pasts:
        past.close()
    old, new = sweeps
    if old is None or new is None:
        wrong = pasts[0 if old is None else 1].id
        raise SetupError(
            f"run {wrong} did not measure cases, and cannot be held against another",
            hint="`kept eval SPEC` makes one that did; `kept compare A B` compares texts",
        )
    told = difference(old, new)
    if not told.shifts:
        raise SetupError(f"{old.run} and {new.run} have no case in common that both measured")
    if as_json:
        _output.document(told.document())
    else:
        _output.answer(difference_text(told))


COLOURS: dict["Answer", str] = {"better": "green", "worse": "red"}
MAX_FLIPS = 40


def difference_text(told: "Difference") -> str:
    """Answer, figures, then the cases that flipped."""
    first = told.shifts[0]
    head = _output.style(_headline(told, first), bold=True, fg=COLOURS.get(first.answer))
    parts = [head, _table(told), _flips("better", told.better), _flips("worse", told.worse)]
    if told.apart:
        names = one_line(", ".join(told.apart), 100)
        parts.append(f"{count(len(told.apart), 'case')} measured in one run only: {names}")
    return "\n\n".join(part for part in parts if part)


def _headline(told: "Difference", first: "Shift") -> str:
    words = {
        "better": "the second run is better",
        "worse": "the second run is worse",
        "the same": "both runs are the same",
        "cannot tell": "these cases cannot tell the two runs apart",
    }[first.answer]
    return f"{words}: {first.metric} {number(first.was)} → {number(first.now)}"


def _table(told: "Difference") -> str:
    rows: list[tuple[str, ...]] = []
    for shift in told.shifts:
        known = isfinite(shift.low) and isfinite(shift.high)
        interval = f"{shift.low:+.3f} … {shift.high:+.3f}" if known else "too few cases"
        rows.append(
            (
                shift.metric,
                number(round(shift.was, 4)),
                number(round(shift.now, 4)),
                f"{shift.gain:+.3f} ({interval})",
                str(shift.cases),
                shift.answer,
            )
        )
    header = ("metric", "first", "second", "difference (95 %)", "cases", "answer")
    return _output.table(header, rows, right=header[1:5], whole=("answer",))


def _flips(word: str, flips: Sequence["Flip"]) -> str:
    if not flips:
        return ""
    header = (word, "was", "is", "why")
    rows = [
        (flip.case, _share(flip.was), _share(flip.now), one_line(flip.why, 120))
        for flip in flips[:MAX_FLIPS]
    ]
    text = _output.table(header, rows, middle=(word,))
    more = len(flips) - MAX_FLIPS
    return text + (f"\n{more} more are not shown: --json lists all" if more > 0 else "")


def _share(value: float) -> str:
    return {0.0: "fails", 1.0: "passes"}.get(value, f"passes {value:.0%}")
