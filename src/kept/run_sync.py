"""Blocking runs for Python programs, in the caller's thread or another; Ctrl-C stops them."""

import asyncio
import signal
import threading
from collections.abc import Callable, Generator, Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from pathlib import Path

from kept.api import Compared, Result
from kept.core.budget import StopReason
from kept.core.case import find_overlaps, overlap_words
from kept.core.objective import unusable
from kept.core.plan import Plan
from kept.core.ports import Proposer, Sink
from kept.core.schedules.round_robin import OF_THE_RUN
from kept.core.state import State
from kept.core.text import count, one_line
from kept.core.verdict import IDLE, UNMEASURED
from kept.engine.stop import NOTHING_ANSWERS, no_bounds
from kept.errors import RunError
from kept.gates.seed_rules import Strict
from kept.results.summary import Summary, summary
from kept.run import Ended, Watch, run_to_end
from kept.store.home import Home
from kept.store.reader import Run, unmeasured_words

TOO_STALE = 4
"""Warn if at least one in so many steps was stale."""

TOO_OFTEN = 2
"""Warn if at least one in so many steps proposed nothing new.

A few are normal: a proposer may repeat itself while a promising proposal waits to be raced."""


def run_plan(plan: Plan, home: Home, name: str | None, sinks: tuple[Sink, ...]) -> Result:
    """Run a plan to its end, or resume the run of that name."""
    folder, state, stopped = _ended(plan, home, name, sinks)
    with Run(folder, state=state) as run:
        figures = summary(run)
        warnings = tuple(_warnings(plan, run, figures))
        return Result(figures, plan.seed, run.candidate(state.best), state, stopped, warnings)


def _warnings(plan: Plan, run: Run, figures: Summary) -> Iterator[str]:
    """Yield warnings about what the figures of a run hide."""
    state = run.state
    why = plan.not_race
    if why and isinstance(plan.gate, Strict) and state.keeps:
        yield (
            f"no race was held ({why}), so each candidate was looked at once: where answers vary,"
            " what was kept may be noise"
        )
    if copies := find_overlaps(plan.cases):
        yield f"{overlap_words(copies)}; what is kept may only fit those"
    yield from unmeasured_words(figures.unmeasured)
    tried = [row for row in figures.steps if row.code not in (*IDLE, *UNMEASURED)]
    if tried and all(row.outcome == "crash" for row in tried):
        yield f"every candidate failed, the first so: {one_line(tried[0].reason, 200)}"
    yield from _twice(plan, state)


def _twice(plan: Plan, state: State) -> Iterator[str]:
    """Warn of repeated proposals, made before or after the first of them was judged."""
    turns = [step for step in state.history if step.turn.proposer not in OF_THE_RUN]
    # counted as in the result, so that both show the same number
    tried = count(sum(not step.verdict.idle for step in turns), "proposal")
    stale = sum(step.verdict.code == "stale" for step in turns)
    if plan.width > 1 and stale * TOO_STALE >= len(turns) > 0:
        steps = f"{stale} of {tried}"
        yield (
            f"{steps} changed what an earlier one had changed by then, for {plan.width} are open"
            " at once: `width=1` has each wait for the one before it"
        )
    # judged before, or the incumbent itself
    again = [
        step.turn.proposer
        for step in turns
        if step.verdict.code in ("duplicate", "no change")
        or (
            step.verdict.code == "no edits"
            and any(report.fate == "no change" for report in step.reports)
        )
    ]
    if len(again) * TOO_OFTEN >= len(turns) > 0:
        yield f"{len(again)} of {tried} had been made before: {_advice(plan.proposer(again[0]))}"


def _advice(proposer: Proposer) -> str:
    """Advice against repeated proposals, by kind of proposer."""
    # imported at use: it imports the model clients
    from kept.proposers.function import FunctionProposer
    from kept.proposers.llm import ModelProposer

    if isinstance(proposer, ModelProposer):
        return "show the model more train cases (`cases=`), or take another model or fewer steps"
    if isinstance(proposer, FunctionProposer):
        return (
            "draw by `brief.seed` from more texts than there are turns, or look at `brief.history`"
        )
    return "give the model that writes more to see, or take fewer steps"


def run_comparison(plan: Plan, home: Home, name: str | None, sinks: tuple[Sink, ...]) -> Compared:
    """Run or resume a comparison, like `run_plan`."""
    folder, state, stopped = _ended(plan, home, name, sinks)
    with Run(folder, state=state) as run:
        figures = summary(run)
    told = figures.comparison
    assert told is not None, "the plan is a comparison"
    warnings = tuple(unmeasured_words(figures.unmeasured))
    return Compared(folder.name, folder, told, stopped, figures.spend, warnings)


def _ended(
    plan: Plan, home: Home, name: str | None, sinks: tuple[Sink, ...]
) -> tuple[Path, State, StopReason]:
    """Run to the end; return folder, state and stop reason. Raises if interrupted or failed."""
    place = home if name is None else home.find_run(name)
    if _inside_a_loop():
        folder, state = _in_thread(plan, place, sinks)
    else:
        main = threading.current_thread() is threading.main_thread()
        folder, state = run_to_end(plan, place, Watch(sinks, signals=main))
    stopped = state.stopped
    assert stopped is not None, "a sitting that returns has said why it stopped"
    if stopped.kind == "interrupted":
        raise KeyboardInterrupt(f"run {folder.name} stopped; go on with resume={folder.name!r}")
    if stopped.kind == "error":
        hint = f"`kept show {folder}` tells what happened, with `--step 0 -v` all of it"
        wrong = unusable(stopped.message)
        if no_bounds(state) is not None:
            hint = f"pass bounds=(least, greatest), of which a failure counts as the worst; {hint}"
        elif stopped.message.startswith(NOTHING_ANSWERS):
            hint = f"once it answers, resume={folder.name!r} goes on where it stopped; {hint}"
        elif wrong is not None:
            hint = f"{_MENDS[wrong]}; {hint}"
        raise RunError(stopped.message, hint=hint)
    return folder, state, stopped


def _inside_a_loop() -> bool:
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True


_MENDS = {
    "metric": "return it by this name, or name another by metric=…",
    "bounds": "pass bounds=(least, greatest) that every value is within",
}
"""Hint for each kind of unusable measure."""


def _in_thread(plan: Plan, place: Home | Path, sinks: tuple[Sink, ...]) -> Ended:
    """Run in another thread with its own event loop, for callers inside a loop (notebooks)."""
    stops, work = _Stops(), Future[Ended]()
    watch = Watch(sinks, on_start=stops.begin)

    def run() -> None:
        try:
            work.set_result(run_to_end(plan, place, watch))
        except BaseException as error:  # noqa: BLE001 # carried over to the caller's thread
            work.set_exception(error)

    thread = threading.Thread(target=run, name="kept-run")
    with _ctrl_c(stops):
        thread.start()
        thread.join()
    return work.result()


class _Stops:
    """Requests to stop a run; those that come before its start are kept until then."""

    def __init__(self) -> None:
        self._stop: Callable[[], None] | None = None
        self._early = 0

    def begin(self, stop: Callable[[], None]) -> None:
        """Register the run's stop function and pass earlier requests on."""
        self._stop = stop
        for _ in range(self._early):
            stop()

    def ask(self) -> None:
        """Ask the run to stop, now or once it has begun."""
        if self._stop is not None:
            self._stop()
        else:
            self._early += 1


@contextmanager
def _ctrl_c(stops: _Stops) -> Generator[None]:
    """Let Ctrl-C stop the run in good order; the surrounding event loop would swallow it."""
    if threading.current_thread() is not threading.main_thread():
        yield  # signals go to the main thread
        return

    def ask(number: int, frame: object) -> None:
        stops.ask()

    before = signal.signal(signal.SIGINT, ask)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
