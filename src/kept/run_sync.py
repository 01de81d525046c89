"""A run that a Python program waits for: in its thread or beside it, with Ctrl-C heard."""

import asyncio
import signal
import threading
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from kept.api import Claimed, Compared, Result
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
from kept.run import Ended, Watch, resume, start
from kept.store.home import Home
from kept.store.overview import journalled_spend
from kept.store.reader import Run, unmeasured, unmeasured_words

TOO_STALE = 4
"""A run is warned of if one in so many steps came too late."""

TOO_OFTEN = 2
"""The same of steps with nothing new: who waits for a near miss to be raced has some."""


def run_plan(plan: Plan, home: Home, name: str | None, sinks: tuple[Sink, ...]) -> Result:
    """Run a plan to its end, or go on with the run of that name."""
    folder, state, stopped = _ended(plan, home, name, sinks)
    # at use: it comes with SQLite
    from kept.store.run_index import claim_of, measured_on, values

    with Run(folder) as run:
        best = run.candidate(state.best)
        warnings = tuple(_warnings(plan, run, state))
    seed_value, best_value = values(state)
    claim, claimed = claim_of(state), None
    if claim is not None and "gain" in claim.numbers:
        numbers = claim.numbers
        claimed = Claimed(numbers["gain"], numbers.get("low"), numbers.get("high"), claim.reason)
    return Result(
        run=folder.name,
        folder=folder,
        seed=plan.seed,
        best=best,
        seed_value=seed_value,
        best_value=best_value,
        claim=claimed,
        stopped=stopped,
        state=state,
        spend=journalled_spend(folder, state),
        warnings=warnings,
        measured=measured_on(state),
    )


def _warnings(plan: Plan, run: Run, state: State) -> Iterator[str]:
    """What the figures of a run hide."""
    why = plan.not_race
    if why and isinstance(plan.gate, Strict) and state.keeps:
        yield (
            f"no race was held ({why}), so each candidate was looked at once: where answers vary,"
            " what was kept may be noise"
        )
    if copies := find_overlaps(plan.cases):
        yield f"{overlap_words(copies)}; what is kept may only fit those"
    yield from unmeasured_words(unmeasured(run, state))
    tried = [step for step in state.history if step.verdict.code not in (*IDLE, *UNMEASURED)]
    if tried and all(step.verdict.outcome == "crash" for step in tried):
        first = next(row.reason for row in run.steps if row.step == tried[0].step)
        yield f"every candidate failed, the first so: {one_line(first, 200)}"
    yield from _twice(plan, state)


def _twice(plan: Plan, state: State) -> Iterator[str]:
    """That proposers said the same again, before their last answer was judged or after it."""
    turns = [step for step in state.history if step.turn.proposer not in OF_THE_RUN]
    # as the result counts them, so that both speak of the same number
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
    """What helps where the same is proposed again, by who proposes."""
    # at use: it comes with clients of models
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
    """The same of a plan that compares."""
    # at use: few runs are comparisons
    from kept.results.compare import comparison_of

    folder, state, stopped = _ended(plan, home, name, sinks)
    with Run(folder) as run:
        told = comparison_of(state, {row.step: row.reason for row in run.steps})
        warnings = tuple(unmeasured_words(unmeasured(run, state)))
    assert told is not None, "the plan is a comparison"
    spend = journalled_spend(folder, state)
    return Compared(folder.name, folder, told, stopped, spend, warnings)


def _ended(
    plan: Plan, home: Home, name: str | None, sinks: tuple[Sink, ...]
) -> tuple[Path, State, StopReason]:
    """Folder and state of a run that came to its end, and what that was."""
    main = threading.current_thread() is threading.main_thread()
    try:
        asyncio.get_running_loop()
        inside_a_loop = True
    except RuntimeError:
        inside_a_loop = False
    if inside_a_loop:
        # a notebook, say: the run gets a thread and a loop of its own
        folder, state = _in_thread(plan, home, name, Watch(sinks))
    else:
        folder, state = asyncio.run(_sit(plan, home, name, Watch(sinks, signals=main)))
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


_MENDS = {
    "metric": "return it by this name, or name another by metric=…",
    "bounds": "pass bounds=(least, greatest) that every value is within",
}
"""What to do about a measure that cannot be used."""


async def _sit(plan: Plan, home: Home, name: str | None, watch: Watch) -> Ended:
    if name is None:
        return await start(plan, home, watch)
    return await resume(plan, home.find_run(name), watch)


def _in_thread(plan: Plan, home: Home, name: str | None, watch: Watch) -> Ended:
    done: list[Ended | BaseException] = []
    stops = _Stops()
    watch = replace(watch, on_start=stops.begin)

    def work() -> None:
        try:
            done.append(asyncio.run(_sit(plan, home, name, watch)))
        except BaseException as error:  # noqa: BLE001 # carried over to the caller's thread
            done.append(error)

    thread = threading.Thread(target=work, name="kept-run")
    with _ctrl_c(stops):
        thread.start()
        thread.join()
    if isinstance(done[0], BaseException):
        raise done[0]
    return done[0]


class _Stops:
    """Requests to stop a run, which may come before the run can hear them."""

    def __init__(self) -> None:
        self._stop: Callable[[], None] | None = None
        self._early = 0

    def begin(self, stop: Callable[[], None]) -> None:
        """The run can hear now."""
        self._stop = stop
        for _ in range(self._early):
            stop()

    def ask(self) -> None:
        """Someone wants it to stop."""
        if self._stop is not None:
            self._stop()
        else:
            self._early += 1


@contextmanager
def _ctrl_c(stops: _Stops) -> Generator[None]:
    """Have Ctrl-C stop the run in good order, where the event loop around us would swallow it."""
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
