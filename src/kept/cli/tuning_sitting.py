"""One sitting of a run that tunes an agent, from its first line to its answer."""

import asyncio
import sys
from collections.abc import Callable, Coroutine
from contextlib import suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, cast

from kept.cli import output
from kept.cli.fail import CutShortError
from kept.cli.log import show_log
from kept.cli.looking import open_run
from kept.cli.names import path_from_here
from kept.cli.progress import Progress, standard_progress
from kept.cli.tune import FATAL, STOPPED, Options
from kept.cli.tuning_events import Events, tell_completed
from kept.cli.tuning_lines import Lines
from kept.core.case import SPLITS
from kept.core.coordinate import Coordinate
from kept.core.plan import COORDINATE, Plan
from kept.core.schedule import Pooling
from kept.errors import KeptError, SetupError
from kept.report.exits import exit_reason, made_by, phase_exits, trials_in
from kept.report.tuned import tuning_report
from kept.report.words import duration
from kept.runs import Ended, Watch
from kept.scorers.loss import WeightedLoss
from kept.store.reader import Run
from kept.store.tuning.folder import BEST, prune, write_exit
from kept.store.tuning.telling import Listener, Teller
from kept.store.views import write_whole

Go = Callable[[Plan, Watch], Coroutine[Any, Any, Ended]]


def sit(plan: Plan, go: Go, how: Options) -> int:
    """Run it to its end; the exit code."""
    show_log()
    json = how.progress == "json"
    progress = standard_progress(quiet=how.quiet or json)
    listener = _listener(plan, progress, how)
    plan = replace(plan, views=(*plan.views, partial(Teller, listener)))
    progress.step_lines = False
    watch = Watch((progress,), signals=True, on_signal=progress.on_signal)
    try:
        with progress:
            ended = asyncio.run(go(plan, watch))
    except Exception as error:
        started = progress.state.started
        if started is None:
            raise
        resume = f"kept test optimize --resume {started.run_id}"
        raise CutShortError(error, resume) from error
    with Run(ended.folder) as run:
        return _answer(run, listener, how)


def _listener(plan: Plan, progress: Progress, how: Options) -> Listener:
    if how.progress == "json":
        assert isinstance(plan.scorer, WeightedLoss), "what is tuned has a loss"
        return Events(_line_out, plan.scorer.weights, plan.objective)
    return Lines(progress.say, verbose=how.verbose)


def _line_out(line: str) -> None:
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


def _answer(run: Run, listener: Listener, how: Options) -> int:
    folder = write_pages(run)
    if how.keep_best_only:
        prune(folder)
    stopped = run.state.stopped
    kind = stopped.kind if stopped else ""
    resume = f"kept test optimize --resume {run.id}"
    if isinstance(listener, Events):
        tell_completed(listener, run, folder)
    else:
        output.answer(answer_text(run, folder))
    if kind == "interrupted":
        output.note(f"interrupted: `{resume}` goes on where it stopped")
        return STOPPED
    if kind == "error" and stopped is not None:
        output.note(f"error: {stopped.message}\n\nhint: `{resume}` goes on where it stopped")
        return FATAL
    return 0


def answer_text(run: Run, folder: Path) -> str:
    """What came of it, and where it lies."""
    known = trials_in(run)
    accepted = [t for t in known.rows[1:] if t.accepted]
    best = made_by(known, run.state.best)
    rows: list[tuple[str, str]] = []
    for name in ("train", "holdout"):
        old = getattr(known.baseline, name)
        new = getattr(best.after, name) if best and best.number else old
        if old is not None:
            moved = f" → {new:.4g}" if new is not None and new != old else ""
            rows.append((f"{name} loss", f"{old:.4g}{moved}"))
    for code, name in (("promoted", "proven"), ("claim", "sealed test")):
        steps = [step for step in run.state.closed if step.verdict.code == code]
        if steps:
            rows.append((name, steps[-1].verdict.reason.removeprefix("proven: ")))
    rows.append(("trials", f"{max(0, len(known.rows) - 1)}, {len(accepted)} accepted"))
    if run.state.incumbent != run.state.best:
        rows.append(("leading", "what was kept is not proven for new cases yet"))
    rows.append(("exit", exit_reason(run)))
    spend = run.state.spend
    money = f", ${spend.usd:.4f}" if spend.usd else ""
    rows.append(("spend", f"{spend.rollouts} rollouts{money}, {duration(run.state.elapsed)}"))
    if (folder / BEST).exists():
        rows.append(("best", path_from_here(folder / BEST)))
    rows.append(("report", path_from_here(folder / "report.md")))
    width = max(len(name) for name, _ in rows)
    return "\n".join(f"{name:<{width}}  {value}" for name, value in rows)


def outline_text(plan: Plan) -> str:
    """What a run would do, for `--dry-run`."""
    told = cast("dict[str, Any]", plan.facts["optimizer"])
    schedule = plan.schedule.inner if isinstance(plan.schedule, Pooling) else plan.schedule
    assert isinstance(schedule, Coordinate), "a run that tunes goes phase by phase"
    splits = ((name, len(plan.cases.of(name))) for name in SPLITS)
    rows = [
        ("agent", str(plan.facts["id"])),
        ("loss", ", ".join(f"{w:g} × {name}" for name, w in told["loss_weights"].items())),
        ("cases", ", ".join(f"{size} {name}" for name, size in splits)),
        ("gate", plan.gate.name),
    ]
    for axis in told["axes"].get("numeric", ()):
        values = axis.get("range") or axis.get("choices")
        rows.append(("axis", f"{axis['path']} {list(values)}"))
    for axis in told["axes"].get("textual", ()):
        rows.append(("axis", f"{axis['path']}, {axis['max_chars']} characters at most"))
    for phase in schedule.phases:
        limits = f"{phase.max_trials} trials at most, {phase.patience} without a keep end it"
        limits += f" after the first {phase.least}" if phase.least > phase.patience else ""
        rows.append((f"{phase.name} phase", limits))
    rows.append(("cycles", f"{schedule.max_cycles} at most"))
    limits = {k: v for k, v in told["budget"]["global"].items() if v is not None}
    rows.append(("budget", ", ".join(f"{k} {v:g}" for k, v in limits.items())))
    width = max(len(name) for name, _ in rows)
    return "\n".join(f"{name:<{width}}  {value}" for name, value in rows)


def check_place(plan: Plan) -> None:
    """Refuse a folder that cannot be written to, or that holds another run, before it costs."""
    place = Path(str(plan.facts["results"]))
    try:
        place.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise SetupError(f"cannot write to {place}: {error.strerror}") from error
    if plan.facts["named"] and (place / "run.json").exists():
        raise SetupError(f"{place} holds another run", hint="name another folder with -o")


def open_tuning(name: str) -> Run:
    """The run that is meant; one that tunes no agent is none."""
    run = open_run(name, lambda folder: _recipe(folder) == COORDINATE)
    if run.fact(COORDINATE) is None:
        raise SetupError(f"run {run.id} does not tune an agent", hint="`kept runs` lists all runs")
    return run


def _recipe(folder: Path) -> str:
    with suppress(KeptError), Run(folder) as run:
        started = run.state.started
        return started.recipe if started else ""
    return ""


def spec_of(run: Run) -> tuple[Path, tuple[str, ...]]:
    """The agent of a run, and what was set besides."""
    given = run.fact("set")
    items = cast("list[object]", given) if isinstance(given, list) else []
    return Path(str(run.fact("spec"))), tuple(map(str, items))


def write_pages(run: Run) -> Path:
    """Write report.md and how the run ended; the folder of its files."""
    folder = Path(str(run.fact("results"))) / ("" if run.fact("named") else run.id)
    folder.mkdir(parents=True, exist_ok=True)
    page = tuning_report(run, folder)
    write_whole(folder / "report.md", page.encode("utf-8", "surrogateescape"))
    write_exit(folder, exit_reason(run), phase_exits(run))
    return folder
