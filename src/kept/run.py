"""Start or resume a run: check its plan, open its folder, run the loop."""

import asyncio
from collections.abc import Callable, Coroutine, Mapping, Sequence
from contextlib import closing, suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from kept._version import __version__
from kept.core.artifact import Candidate
from kept.core.budget import Budget
from kept.core.event import RECORDS, RunResumed, RunSettings, RunStarted
from kept.core.plan import Plan
from kept.core.ports import Clock, Sink
from kept.core.state import State, advance
from kept.engine.loop import Loop
from kept.engine.stop import SystemClock, stop_signals
from kept.errors import JournalError, SetupError
from kept.store.candidate_files import BestFolder
from kept.store.codec import document_of
from kept.store.home import Home
from kept.store.journal import RunJournal
from kept.store.jsonl import never_began, read_events
from kept.store.reader import Past, Run, fold_run

if TYPE_CHECKING:
    from kept.recipes.base import Recipe, Request

ARTIFACTS = "artifacts"
"""Name of the seed's hash among a run's inputs."""

SHOWN = 4
"""Number of files that an error names; a folder may have thousands."""


@dataclass(frozen=True, slots=True)
class Watch:
    """Callbacks and signals that watch and stop a session."""

    sinks: Sequence[Sink] = ()
    clock: Clock = field(default_factory=SystemClock)
    signals: bool = False
    """Stop in good order at `stop_signals`; works in the main thread only."""
    on_signal: Callable[[], None] | None = None
    """Called at each such signal."""
    on_start: Callable[[Callable[[], None]], None] | None = None
    """Called at the start with a function that stops the session from any thread."""


class Ended(NamedTuple):
    """Folder and state of a run after a session."""

    folder: Path
    state: State


def run_to_end(plan: Plan, place: Home | Path, watch: Watch) -> Ended:
    """Run a plan in a new folder of a home, or resume it in the folder of its run.

    All commands and the Python API run their sessions here, each in its own event loop.
    """
    return asyncio.run(_session(plan, place, watch))


def start(plan: Plan, home: Home, watch: Watch | None = None) -> Coroutine[Any, Any, Ended]:
    """Run a plan in a new folder of this home."""
    return _session(plan, home, watch or Watch())


def resume(plan: Plan, folder: Path, watch: Watch | None = None) -> Coroutine[Any, Any, Ended]:
    """Resume a run; raises if its inputs have changed since."""
    return _session(plan, folder, watch or Watch())


async def _session(plan: Plan, place: Home | Path, watch: Watch) -> Ended:
    """Run one session, from its first event to its last."""
    now, inputs = 0.0, dict[str, str]()
    if isinstance(place, Home):
        await _probe(plan)
        now, inputs = watch.clock.time(), inputs_of(plan)
        folder = place.new_run(inputs, now)
    else:
        folder = place
    running = asyncio.get_running_loop()

    def interrupt() -> None:
        loop.interrupt()
        if watch.on_signal is not None:
            watch.on_signal()

    with closing(RunJournal(folder)) as journal:
        event: RunStarted | RunResumed
        if isinstance(place, Home):
            journal.save(plan.seed)
            past = Past(State(), {})
            event = RunStarted(
                run_id=folder.name,
                recipe=plan.recipe,
                seed=plan.seed.id,
                inputs=inputs,
                settings=settings_of(plan, str(place.path.resolve())),
                request=document_of(plan.request),
                facts=document_of(plan.facts),
                version=__version__,
                t=now,
            )
        else:
            past = _past(plan, journal)
            event = RunResumed(
                settings=settings_of(plan),
                request=document_of(plan.request),
                facts=document_of(plan.facts),
                version=__version__,
                t=watch.clock.time(),
            )
        # installed before the first event, so that no signal is lost; `loop` exists before this
        # coroutine first awaits, so `interrupt` always finds it
        numbers = stop_signals() if watch.signals else ()
        for number in numbers:
            running.add_signal_handler(number, interrupt)
        try:
            views = (view(journal) for view in plan.views)
            sinks = (BestFolder(folder, journal, plan.modes), *views, *watch.sinks)
            journal.append(event)
            state = advance(past.state, event)
            for sink in sinks:
                sink.on_event(event, state)
            loop = Loop(plan, journal, state, watch.clock, sinks, past.opened)
            if watch.on_start is not None:
                watch.on_start(lambda: _ask(running, interrupt))
            return Ended(folder, await loop.run())
        finally:
            for number in numbers:
                running.remove_signal_handler(number)


async def _probe(plan: Plan) -> None:
    """Raise `SetupError` if an endpoint does not answer, before anything is queued."""
    found = await asyncio.gather(*(probe.unreachable() for probe in plan.probes))
    dead = [why for why in found if why is not None]
    if dead:
        hint = "start the server, or correct its `base_url`; nothing was spent"
        raise SetupError(f"nothing answers: {'; '.join(dead)}", hint=hint)


def _past(plan: Plan, journal: RunJournal) -> Past:
    """Read the earlier sessions of a run; raises if the plan may not resume it."""
    folder = journal.folder
    path = folder / "journal.jsonl"
    past = fold_run(read_events(path), path)
    started = past.state.started
    if started is None:
        raise never_began(path)
    files = () if started.seed == plan.seed.id else _changed(journal, started.seed, plan.seed)
    now = inputs_of(plan)
    if (former := plan.cases.former_fingerprint()) == started.inputs.get("cases"):
        now["cases"] = former
    # imported at use: only a resume names the command that starts anew
    from kept.recipes.base import command_line

    anew = command_line(_recipe(plan.recipe), plan.spec, plan.request) if plan.request else ""
    check_drift(started.inputs, now, folder.name, anew, files)
    check_budget(past.state, plan.budget, folder.name)
    return past


def gate_of(folder: Path) -> str:
    """Name of the gate that a run began with; empty if unknown."""
    started = _started(folder)
    return started.settings.gate if started else ""


def asked_for(*kinds: "type[Request]") -> Callable[[Path], bool]:
    """Return a predicate for runs whose request is of one of these kinds."""

    def is_asked(folder: Path) -> bool:
        started = _started(folder)
        return started is not None and issubclass(_recipe(started.recipe).request, kinds)

    return is_asked


def may_keep(folder: Path) -> bool:
    """True unless the run's recipe keeps no candidates."""
    started = _started(folder)
    return started is None or _recipe(started.recipe).keeps


def _recipe(name: str) -> "Recipe[Any]":
    # imported at use: a run from Python is planned already
    from kept.recipes.registry import recipe_named

    return recipe_named(name)


def _started(folder: Path) -> RunStarted | None:
    first = next(iter(read_events(folder / "journal.jsonl")), None)
    return first if isinstance(first, RunStarted) else None


def _ask(running: asyncio.AbstractEventLoop, interrupt: Callable[[], None]) -> None:
    with suppress(RuntimeError):  # it is over
        running.call_soon_threadsafe(interrupt)


def _changed(journal: RunJournal, seed: str, now: Candidate) -> tuple[str, ...]:
    """Names of a seed's files that changed since; empty if the old seed was never stored."""
    try:
        then = journal.load(seed)
    except JournalError:
        return ()
    was, are = {**then.texts, **then.blobs}, {**now.texts, **now.blobs}
    return tuple(sorted(name for name in was.keys() | are.keys() if was.get(name) != are.get(name)))


def check_drift(
    then: Mapping[str, str],
    now: Mapping[str, str],
    run: str,
    anew: str = "",
    files: Sequence[str] = (),
) -> None:
    """Raise if the inputs of a run changed since; `anew` is the command for a new run."""
    drifted = sorted(name for name in then.keys() | now.keys() if then.get(name) != now.get(name))
    if drifted:
        more = f" and {len(files) - SHOWN} more" if len(files) > SHOWN else ""
        named = {ARTIFACTS: f"{ARTIFACTS} ({', '.join(files[:SHOWN])}{more})"} if files else {}
        drifted = [named.get(name, name) for name in drifted]
        raise JournalError(
            f"cannot resume {run}: {', '.join(drifted)} changed since it started",
            hint="put that back as it was, or start a new run" + (f": `{anew}`" if anew else ""),
        )


def check_budget(state: State, budget: Budget, run: str) -> None:
    """Raise if a limit is lowered to what a run has used: only its recorded end would change."""
    used = {
        "max_iterations": state.next_step,
        "max_failures": state.crashes,
        "max_minutes": state.elapsed / 60,
        "max_usd": state.spend.usd,
        "max_rollouts": state.spend.rollouts,
        "max_rollouts_usd": state.spend.usd - state.spend.proposing_usd,
    }
    for name, limit in asdict(budget).items():
        old = getattr(state.settings.budget, name)
        if limit is not None and limit <= used[name] and (old is None or limit < old):
            raise SetupError(
                f"run {run} has used up a `{name}` of {limit:g} already: {used[name]:g}",
                hint="give more than it has used, or leave the limit as it was",
            )


def inputs_of(plan: Plan) -> dict[str, str]:
    """Hashes of all inputs that a run's outcome depends on, by name."""
    return {ARTIFACTS: plan.seed.id, "cases": plan.cases.fingerprint(), **plan.inputs}


def settings_of(plan: Plan, home: str = "") -> RunSettings:
    """Settings of a plan, as the journal records them."""
    cases = plan.cases
    counts = {"train": len(cases.train), "holdout": len(cases.holdout), "test": len(cases.test)}
    return RunSettings(
        metric=plan.objective.metric,
        direction=plan.objective.direction,
        gate=plan.gate.name,
        not_race=plan.not_race,
        gate_why=plan.gate_why,
        guards=tuple(guard.name for guard in plan.guards),
        proposers=tuple(proposer.name for proposer in plan.proposers),
        cases=None if cases.implicit else counts,
        sampled=plan.sampled,
        budget=plan.budget,
        width=plan.width,
        workers=plan.workers,
        random_seed=plan.random_seed,
        constraints=plan.objective.constraints,
        tie_breakers=tuple(f"{t.prefer} {t.metric}" for t in plan.objective.tie_breakers),
        tie_tolerance=plan.objective.tie_tolerance,
        seed_value=plan.seed_value,
        stages=dict(RECORDS),
        home=home,
        spec=plan.spec,
    )


def read_run(path: str | Path) -> Run:
    """Open a run by its folder, its id, the start of its id, or `last`."""
    folder = Path(path)
    if not (folder / "journal.jsonl").is_file():
        folder = Home.find(Path.cwd()).find_run(str(path))
    return Run(folder)
