"""One sitting of a run that tunes an agent, from its first line to its answer."""

import asyncio
import sys
from collections.abc import Callable, Coroutine, Iterator
from contextlib import suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, cast

from kept.core.plan import COORDINATE, Plan
from kept.core.rollout import Purpose
from kept.core.text import encoded
from kept.errors import KeptError, SetupError
from kept.evaluators.scorers.loss import WeightedLoss
from kept.recipes.agent_config.outputs.folder import BEST, exit_bytes, prune
from kept.recipes.agent_config.outputs.telling import Listener, Teller
from kept.recipes.agent_config.outputs.trial import Trials
from kept.run import Ended, Watch, start_command
from kept.store.files import make_folder, named_place, open_folder, write_whole
from kept.store.reader import Run
from kept.ui.cli import _output
from kept.ui.cli._open_run import open_run
from kept.ui.cli.fail import CutShortError
from kept.ui.cli.log import show_log
from kept.ui.cli.names import path_from_here
from kept.ui.cli.progress import Progress, standard_progress
from kept.ui.cli.tune import FATAL, STOPPED, Options
from kept.ui.cli.tuning_events import Events, tell_completed
from kept.ui.cli.tuning_lines import Lines
from kept.ui.report.exits import (
    BASELINE_ONLY,
    Split,
    dropped_citations,
    exit_reason,
    helper_of,
    made_by,
    of_baseline,
    phase_exits,
    trials_in,
    unused_replies,
)
from kept.ui.report.format import duration
from kept.ui.report.tuned import tuning_report

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
        _output.answer(answer_text(run, folder))
    if kind == "interrupted":
        _output.note(f"interrupted: `{resume}` goes on where it stopped")
        return STOPPED
    if kind == "error" and stopped is not None:
        ways = "\n".join(f"hint: {hint}" for hint in _ways_on(run, resume))
        _output.note(f"error: {stopped.message}\n\n{ways}")
        return FATAL
    for one in unused_replies(trials_in(run)):
        if 2 * one.times < one.asked:
            continue  # every model errs now and then; the answer has the count
        file = path_from_here(Path(helper_of(run, one.who)))
        _output.warn(f"the {one.who}: {one.words}")
        _output.note(f"hint: give it another `model`, or clearer words, in {file}, and run again")
    return 0


def _ways_on(run: Run, resume: str) -> tuple[str, ...]:
    """What to do after an error: an agent that was mended is another baseline, and another run."""
    started = run.state.started
    anew = start_command(started.facts) if started else ""
    mended = f"if it is in the agent.yaml, mend it there, then `{anew}` starts another run"
    passed = (
        f"if it was the network or the like and has passed, `{resume}` goes on where it stopped"
    )
    return mended, passed


def answer_text(run: Run, folder: Path) -> str:
    """What came of it, and where it lies."""
    known = trials_in(run)
    accepted = [t for t in known.rows[1:] if t.accepted]
    best = made_by(known, run.state.best)
    rows: list[tuple[str, str]] = []
    last = known.known_of(best) if best and best.number else known.baseline
    splits: tuple[tuple[Split, float | None, float | None], ...] = (
        ("train", known.baseline.train, last.train),
        ("holdout", known.baseline.holdout, last.holdout),
    )
    for name, old, new in splits:
        if old is not None:
            moved = f" → {new:.4g}" if new is not None and new != old else ""
            drawn = of_baseline(known, name)
            told = f"{old:.4g}{moved}" + (f" ({drawn})" if drawn else "")
            rows.append((f"{name} loss", told))
    for code, name in (("promoted", "proven"), ("claim", "sealed test")):
        steps = [step for step in run.state.closed if step.verdict.code == code]
        if steps:
            rows.append((name, steps[-1].verdict.reason.removeprefix("proven: ")))
    if run.fact(BASELINE_ONLY):
        rows += _metrics(run, known)
    else:
        rows.append(("trials", f"{max(0, len(known.rows) - 1)}, {len(accepted)} accepted"))
    for one in unused_replies(known):
        rows.append((one.who, one.words))
    if dropped := dropped_citations(known):
        rows.append(("critic", dropped))
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


def _metrics(run: Run, known: Trials) -> Iterator[tuple[str, str]]:
    """Each metric of the loss by itself."""
    told = cast("dict[str, dict[str, float]]", run.fact("optimizer") or {})
    splits: tuple[tuple[Purpose, Split], ...] = (("screen", "train"), ("decide", "holdout"))
    for name, weight in told["loss_weights"].items():
        means = [
            f"{swept.metrics[name]:.4g} on {split}"
            for purpose, split in splits
            if (swept := known.seed.get(purpose)) and name in swept.metrics
        ]
        yield name, f"{', '.join(means) or 'not measured'}, weight {weight:g}"


def check_place(plan: Plan) -> None:
    """Refuse a folder that cannot be written to, or that holds another run, before it costs."""
    place = Path(str(plan.facts["results"]))
    try:
        with open_folder(place, named_place(place, Path(str(plan.facts["spec"])).parent)):
            pass
    except OSError as error:
        raise SetupError(f"cannot write to {error.filename}: {error.strerror}") from error
    if plan.facts["named"] and (place / "run.json").exists():
        raise SetupError(f"{place} holds another run", hint="name another folder with -o")


def open_tuning(name: str) -> Run:
    """The run that is meant; one that tunes no agent is none."""
    run = open_run(name, _tunes, resuming=True)
    if run.fact(COORDINATE) is None:
        raise SetupError(f"run {run.id} does not tune an agent", hint="`kept runs` lists all runs")
    if name == "last" and run.fact(BASELINE_ONLY):
        raise SetupError(
            f"there is no run to go on with: {run.id} only measured the baseline",
            hint="`kept test optimize` starts one",
        )
    return run


def _tunes(folder: Path) -> bool:
    """Whether a run tunes an agent; one that only measured it is none to go on with."""
    with suppress(KeptError), Run(folder, resuming=True) as run:
        started = run.state.started
        return (
            started is not None
            and started.recipe == COORDINATE
            and not started.facts.get(BASELINE_ONLY)
        )
    return False


def spec_of(run: Run) -> tuple[Path, tuple[str, ...]]:
    """The agent of a run, and what was set besides."""
    given = run.fact("set")
    items = cast("list[object]", given) if isinstance(given, list) else []
    return run.path_of("spec") or Path(), tuple(map(str, items))


def write_pages(run: Run) -> Path:
    """Write report.md and how the run ended; the folder of its files."""
    make_folder(run.outputs)
    for path, data in pages_of(run).items():
        write_whole(path, data)
    return run.outputs


def pages_of(run: Run) -> dict[Path, bytes]:
    """What `write_pages` writes."""
    page = encoded(tuning_report(run, run.outputs))
    ended = exit_bytes(exit_reason(run), phase_exits(run))
    return {run.outputs / "report.md": page, run.outputs / "exit.json": ended}
