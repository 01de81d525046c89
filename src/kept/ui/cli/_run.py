"""Shared body of running commands: plan from spec and options, run, report, exit code."""

import asyncio
from collections.abc import Callable, Coroutine, Mapping, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kept.core.objective import unusable
from kept.core.plan import AGENT_CONFIG, EVALUATE, SKILL, SUITE, Plan
from kept.engine.stop import OF_NO_USE, no_bounds
from kept.errors import KeptError
from kept.recipes.base import Compiled
from kept.recipes.registry import compile_spec, start_command
from kept.results.summary import Summary, summary
from kept.run import Ended, Watch, resume, start
from kept.store.home import Home
from kept.store.reader import Run
from kept.ui.cli import _output
from kept.ui.cli._command import (
    CUT_SHORT,
    INTERRUPTED,
    NO_GAIN,
    CutShortError,
    command_for,
    path_from_here,
    show_log,
)
from kept.ui.cli._output import pairs
from kept.ui.cli._progress import Progress, standard_progress
from kept.ui.cli._render import facts, title
from kept.ui.cli.compare import compared_text
from kept.ui.cli.eval import tell_evaluated
from kept.ui.cli.main import settled
from kept.ui.report.eval_report import Format
from kept.ui.report.failures import held_back, may_pass, measure_is_broken
from kept.ui.report.json import headline
from kept.ui.report.markdown import write_report
from kept.ui.report.race import conclusion, no_step_left


def compiled(spec: Path, settings: Sequence[str] = ()) -> Plan:
    """The plan of a spec; warnings are told."""
    return told_warnings(compile_spec(spec, settings))


def told_warnings(made: Compiled) -> Plan:
    """The plan, and its warnings on stderr."""
    for warning in made.warnings:
        _output.warn(warning)
    return made.plan


@dataclass(frozen=True, slots=True, kw_only=True)
class How:
    """What the options of a command say about the way it runs and answers."""

    json: bool = False
    quiet: bool = False
    fail_if_no_gain: bool = False
    verbose: bool = False
    """Whether cases that pass are listed too."""
    write: Path | None = None
    """A file that the report of what was measured is written to."""
    form: Format | None = None


def start_run(plan: Plan, home: Home, how: How) -> int:
    """Run a plan in a new folder; the exit code."""
    go = _Going(plan, lambda watch: start(plan, home, watch))
    return _sit(go, lambda run: home.runs / run, how)


def resume_run(plan: Plan, folder: Path, how: How) -> int:
    """Go on with a run; the exit code."""
    go = _Going(plan, lambda watch: resume(plan, folder, watch))
    return _sit(go, lambda _run: folder, how)


@dataclass(frozen=True, slots=True)
class _Going:
    """A run that is about to sit."""

    plan: Plan
    sit: Callable[[Watch], Coroutine[Any, Any, Ended]]

    def on_signal(self, progress: Progress) -> Callable[[], None]:
        """What is told of a signal: also a runner whose rollouts take long, and end sooner so."""
        stop = getattr(self.plan.runner, "stop", None)

        def heard() -> None:
            if callable(stop):
                stop()
            progress.on_signal()

        return heard


def _sit(go: _Going, place: Callable[[str], Path], how: How) -> int:
    """One sitting, from its first event to its answer."""
    show_log()
    progress = standard_progress(quiet=how.quiet)
    watch = Watch((progress,), signals=True, on_signal=go.on_signal(progress))
    try:
        with progress, settled():
            ended = asyncio.run(go.sit(watch))
    except Exception as error:
        started = progress.state.started
        if started is None:
            raise
        folder = place(started.run_id)
        with suppress(OSError, KeptError):  # the first error is the one to tell
            _report(folder)
        raise CutShortError(error, command_for("resume", folder)) from error
    told = _report(ended.folder)
    if not how.quiet:
        _output.note("")
    return ANSWERS.get(told.recipe, _improved)(told, progress, how)


def _improved(told: Summary, progress: Progress, how: How) -> int:
    """The answer of a run with steps."""
    if how.json:
        failed = told.stopped is not None and told.stopped.kind == "error"
        more = DOCUMENTS.get(told.recipe)
        _output.document({"ok": not failed, **headline(told), **(more(told) if more else {})})
    else:
        _output.answer(answer_text(told))
    return _end(told, progress, how)


def _evaluated(told: Summary, _: Progress, how: How) -> int:
    """The answer of a run that measured, whole or not."""
    code = tell_evaluated(
        told.folder, as_json=how.json, every=how.verbose, write=how.write, form=how.form
    )
    go_on = command_for("resume", told.folder)
    if told.stopped is not None and told.stopped.kind == "interrupted":
        _output.note(f"interrupted: `{go_on}` goes on where it stopped")
        return INTERRUPTED
    if told.open and told.stopped is not None:
        _output.note(f"not done: {told.stopped.message}")
        _output.note(f"hint: `{go_on}` goes on where it stopped")
    return code


def _report(folder: Path) -> Summary:
    """Write `report.md`; a page that cannot be written is no reason to withhold the answer."""
    run = Run(folder)
    try:
        write_report(run)
    except (OSError, KeptError) as error:
        _output.warn(f"cannot write {path_from_here(folder / 'report.md')}: {error}")
    told = summary(run)
    if (write := PAGES.get(told.recipe)) is not None:
        try:
            write(run)
        except OSError as error:
            _output.warn(f"cannot write {error.filename}: {error.strerror}")
    run.close()
    return told


def _tuning_pages(run: Run) -> None:
    from kept.ui.cli._tune_run import write_pages

    write_pages(run)


def _suite_document(told: Summary) -> Mapping[str, Any]:
    from kept.ui.cli.agent import suite_told

    with closing(Run(told.folder)) as run:
        return {"artifacts": suite_told(run)}


def answer_text(told: Summary) -> str:
    """What came of it, and where to look further."""
    # an error is told on stderr, with what to do about it
    rows = facts(told, reason=told.stopped is None or told.stopped.kind != "error")
    rows.append(("folder", path_from_here(told.folder)))
    if told.comparison is not None:
        rows.append(("look", command_for("report", told.folder)))
        return f"{compared_text(told.comparison, told)}\n\n{pairs(rows)}"
    if (more := ROWS.get(told.recipe)) is not None:
        with closing(Run(told.folder)) as run:
            rows += more(run)
    if told.improved:
        rows.append(("best", path_from_here(told.folder / "best")))
    rows.append(("look", command_for("report", told.folder)))
    if told.improved:
        rows.append(("", command_for("diff", told.folder)))
    return "\n\n".join(filter(None, (title(told), pairs(rows), conclusion(told))))


def _end(told: Summary, progress: Progress, how: How) -> int:
    """Say what is left to say, and with which code."""
    go_on = command_for("resume", told.folder)
    kind = told.stopped.kind if told.stopped else ""
    if kind == "interrupted":
        _output.note(f"interrupted: `{go_on}` goes on where it stopped")
        return INTERRUPTED
    if kind == "error" and told.stopped:
        _output.note(f"error: {told.stopped.message}\n")
        _output.note("\n".join(f"hint: {hint}" for hint in _ways_on(told, go_on)))
        return CUT_SHORT
    unanswered = told.comparison is not None and bool(told.open)
    if (progress.resumed_in_vain or unanswered) and told.stopped:
        done = "not done" if unanswered else "nothing more to do"
        _output.note(f"{done}: {told.stopped.message}")
        if kind in LIMITS:
            _output.note(f"hint: {_more(told, kind)}")
    elif kind in ENDS_EARLY.get(told.recipe, ()):
        _output.note(f"hint: {_more(told, kind)}")
    return NO_GAIN if how.fail_if_no_gain and not told.gained else 0


def _more(told: Summary, kind: str) -> str:
    """How to get more out of a run that came to a limit; each recipe has its own."""
    own = MORE_STEPS.get(told.recipe) if kind == "iterations" else None
    if own is not None:
        return own(told)
    return _raises(told, f"budget.{LIMITS[kind]}")


def _raises(told: Summary, limit: str) -> str:
    more = command_for("resume", told.folder, [f"{limit}=N"])
    return f"`{more}` raises the limit"


def _more_training(told: Summary) -> str:
    # what a step may change depends on how many there are in all
    best = path_from_here(told.folder / "best")
    start = f", which `--skill_init {best}` starts from its best" if told.improved else ""
    return f"more epochs are another training{start}"


def _more_epochs(told: Summary) -> str:
    return _raises(told, "epochs")


def _ways_on(told: Summary, go_on: str) -> tuple[str, ...]:
    """What to do after an error; a run of a mended task is a new one, as its measure is."""
    run = Run(told.folder)
    broken, passing = measure_is_broken(told, run), may_pass(run)
    started = run.state.started
    anew = start_command(started, run.folder) if started else ""
    sandbox = run.settings.spec.sandbox
    bounds = no_bounds(run.state) is not None
    run.close()
    if no_step_left(told):
        go_on = command_for("resume", told.folder, [f"budget.{LIMITS['iterations']}=N"])
    if told.stopped and told.stopped.message.startswith(OF_NO_USE) and anew:
        return (f"give it another model, or mend its replies, then `{anew}` starts again",)
    if not (broken and anew):
        return (f"`{go_on}` goes on where it stopped",)
    worst = "give `objective.bounds`, of which a failure counts as the worst, or " if bounds else ""
    wrong = unusable(told.stopped.message) if told.stopped else None
    ways = [*held_back(told.stopped.message if told.stopped else "", sandbox)]
    ways.append(f"{_MENDS.get(wrong, worst)}mend what failed, then `{anew}` starts again")
    if passing:
        ways.append(f"if it was the network or the like and has passed, `{go_on}` goes on")
    return tuple(ways)


_MENDS: Mapping[str | None, str] = {
    "metric": "name a measure that the scorer prints in `objective.primary_metric`, or ",
    "bounds": "give `objective.bounds` that every score is within, or ",
}
"""What to do about a measure that cannot be used."""

LIMITS = {
    "iterations": "max_iterations",
    "failures": "max_failures",
    "minutes": "max_minutes",
    "usd": "max_usd",
    "rollouts": "max_rollouts",
}
"""The limit that each kind of stop is about, as a spec spells it."""


def _suite_rows(run: Run) -> list[tuple[str, str]]:
    from kept.ui.cli.agent import suite_rows

    return suite_rows(run)


def _skill_rows(run: Run) -> list[tuple[str, str]]:
    return [("outputs", path_from_here(run.outputs))]


ANSWERS: Mapping[str, Callable[[Summary, Progress, How], int]] = {EVALUATE: _evaluated}
"""Tells what came of a run and returns the exit code, by recipe; else as of a run with steps."""

DOCUMENTS: Mapping[str, Callable[[Summary], Mapping[str, Any]]] = {SUITE: _suite_document}
"""What `--json` has besides, by recipe."""

PAGES: Mapping[str, Callable[[Run], None]] = {AGENT_CONFIG: _tuning_pages}
"""Writes pages of its own when a run ends, by recipe."""

ROWS: Mapping[str, Callable[[Run], list[tuple[str, str]]]] = {
    SUITE: _suite_rows,
    SKILL: _skill_rows,
}
"""Rows of the answer besides, by recipe."""

ENDS_EARLY: Mapping[str, tuple[str, ...]] = {SKILL: ("rollouts", "usd", "minutes")}
"""Limits before the end that a recipe has of its own."""

MORE_STEPS: Mapping[str, Callable[[Summary], str]] = {SKILL: _more_training, SUITE: _more_epochs}
"""How a run that came to its last step gets more, by recipe; else by `max_iterations`."""
