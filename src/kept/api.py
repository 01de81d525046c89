"""`kept.optimize`: the whole loop behind one function."""

import asyncio
import hashlib
import inspect
import logging
import signal
import threading
from collections import Counter
from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal, cast

from kept.core.artifact import Artifact, Candidate, Rules
from kept.core.budget import Budget, StopReason
from kept.core.case import Case, Cases, fault_in, find_overlaps, implicit_cases, split_cases
from kept.core.copying import copy_guard
from kept.core.guard import Guard
from kept.core.objective import Objective
from kept.core.plan import Plan, fill_width
from kept.core.ports import Gate, Proposer, Sink
from kept.core.schedule import RoundRobin
from kept.core.state import State
from kept.errors import RunError, SetupError
from kept.gates import Strict
from kept.gates.race import Race
from kept.proposers.function import FunctionProposer
from kept.proposers.variants import Variant, Variants
from kept.recipes.racing import with_race
from kept.runners.function import FunctionRunner
from kept.runs import Ended, Watch, resume, start
from kept.scorers.recorded import RecordedScorer
from kept.store.home import Home
from kept.store.index import values
from kept.store.reader import Run

log = logging.getLogger("kept")

ProposerLike = Proposer | Callable[..., Any] | str
"""A proposer, a function of the brief, or a text to try."""


@dataclass(frozen=True, slots=True)
class Result:
    """What a run came to."""

    run: str
    """Its id, for `kept show`, `kept report` and `resume=`."""
    folder: Path
    seed: Candidate
    best: Candidate
    seed_value: float | None
    """The metric of the seed on the deciding cases; None when it never ran."""
    best_value: float | None
    stopped: StopReason
    state: State

    @property
    def improved(self) -> bool:
        """Whether anything better than the seed was found."""
        return self.best.id != self.seed.id

    def __str__(self) -> str:
        if not self.improved:
            return f"nothing beat the seed ({_shown(self.seed_value)}) in {self._tried()}"
        return f"{_shown(self.seed_value)} → {_shown(self.best_value)} in {self._tried()}"

    def _tried(self) -> str:
        state = self.state
        proposals = sum(not step.verdict.idle for step in state.closed)
        return f"{proposals} proposals, {state.keeps} kept, {state.spend.rollouts} rollouts"


def optimize(  # noqa: PLR0913 # one function is the whole API; all but three have defaults
    artifact: str | Path | Mapping[str, str],
    evaluate: Callable[..., Any],
    cases: Iterable[Any] | Cases | None = None,
    *,
    proposers: Sequence[ProposerLike] = (),
    gate: Gate | Literal["strict", "race"] = "strict",
    guards: Sequence[Guard] | None = None,
    budget: Budget | int = 50,
    metric: str = "score",
    direction: Literal["maximize", "minimize"] = "maximize",
    bounds: tuple[float, float] | None = None,
    split: str = "3:5:2",
    workers: int = 8,
    timeout: float | None = None,
    usd_per_rollout: float | None = None,
    width: int | None = None,
    random_seed: int = 0,
    home: str | Path | None = None,
    resume: str | None = None,
    sinks: Sequence[Sink] = (),
) -> Result:
    """Improve a text against evidence, and keep only what measures better.

    Raises `RunError` when the run stopped by an error, and `SetupError` when it could not begin.

    Args:
        artifact: a text, the `Path` of a file holding one, or several texts by name.
        evaluate: `evaluate(candidate)` or `evaluate(candidate, case)`, plain or async. Returns a
            number, or metrics by name, or either with information for the proposers behind it. An
            exception is the candidate's crash, unless it is an outage (connection, 429, 5xx),
            which is tried again and never counts as a score.
        cases: what to evaluate on; any values, or `Cases` that are split already.
        proposers: functions of the brief that return a new text, texts to try, or `Proposer`s.
        gate: decides what is kept.
        guards: refuse a candidate before anything is evaluated; by default the one against text
            copied from holdout and test cases.
        budget: limits; a number is a number of steps.
        metric: name of the measure that decides.
        direction: whether more of it is better.
        bounds: least and greatest value of the metric; without them a candidate that fails on
            some cases cannot be judged.
        split: shares of train, holdout and test cases.
        workers: evaluations in flight.
        timeout: seconds after which an evaluation counts as the candidate's failure.
        usd_per_rollout: the most that one evaluation may cost, which is what it is charged with;
            needed for `Budget(max_usd=…)`.
        width: steps open at once; by default enough to keep the workers busy.
        random_seed: for splits and for what proposers draw.
        home: the folder for runs; by default the `.kept` found from here upwards.
        resume: id of a run to go on with, or `last`.
        sinks: told of every event.
    """
    _check(artifact, evaluate, proposers)
    _check_words(gate, budget, direction)
    if workers < 1 or (width is not None and width < 1):
        raise SetupError("`workers` and `width` are 1 or more")
    case_set = _cases(cases, split, random_seed)
    made = tuple(_proposers(artifact_texts(artifact), proposers))
    if len({proposer.name for proposer in made}) < len(made):
        raise SetupError("two proposers have one name", hint="give each a `name` of its own")
    if isinstance(budget, Budget) and budget.max_usd is not None and usd_per_rollout is None:
        raise SetupError(
            "a money budget needs to know what one evaluation can cost",
            hint="pass usd_per_rollout=…, the most that one call of evaluate may cost",
        )
    limits = Budget(max_iterations=budget) if isinstance(budget, int) else budget
    seed = Candidate(artifact_texts(artifact))
    plan = Plan(
        recipe="function",
        seed=seed,
        rules=Rules({path: Artifact(path) for path in seed.texts}),
        cases=case_set,
        runner=FunctionRunner(evaluate, metric, workers, timeout),
        scorer=RecordedScorer(),
        objective=Objective(metric, direction, bounds),
        proposers=made,
        schedule=RoundRobin(tuple(proposer.name for proposer in made)),
        gate=_gate(gate),
        guards=(copy_guard(case_set, allow_train=True),) if guards is None else tuple(guards),
        budget=limits,
        width=width or fill_width(workers, len(case_set.holdout)),
        workers=workers,
        worst_usd=usd_per_rollout or 0.0,
        random_seed=random_seed,
        inputs={
            "evaluate": _source_of(evaluate),
            "metric, direction or bounds": f"{metric} {direction} {bounds}",
            "gate": repr(gate),
            "proposers": " ".join(proposer.name for proposer in made),
            "random_seed": str(random_seed),
        },
    )
    where = Home(Path(home)) if home else Home.find(Path.cwd())
    return _run(with_race(plan), where, resume, tuple(sinks))


def _gate(gate: Gate | Literal["strict", "race"]) -> Gate:
    named: dict[object, Gate] = {"strict": Strict(), "race": Race()}
    return named[gate] if isinstance(gate, str) else gate


def _run(plan: Plan, home: Home, name: str | None, sinks: tuple[Sink, ...]) -> Result:
    main = threading.current_thread() is threading.main_thread()
    if _inside_a_loop():
        # a notebook, say: the run gets a thread and a loop of its own
        folder, state = _in_thread(plan, home, name, Watch(sinks))
    else:
        folder, state = asyncio.run(_sit(plan, home, name, Watch(sinks, signals=main)))
    stopped = state.stopped
    assert stopped is not None, "a sitting that returns has said why it stopped"
    if stopped.kind == "interrupted":
        raise KeyboardInterrupt(f"run {folder.name} stopped; go on with resume={folder.name!r}")
    if stopped.kind == "error":
        raise RunError(stopped.message, hint=f"`kept show {folder}` tells what happened")
    best = plan.seed
    if state.best != best.id:
        run = Run(folder)
        best = run.best
        run.close()
    seed_value, best_value = values(state)
    return Result(folder.name, folder, plan.seed, best, seed_value, best_value, stopped, state)


def _source_of(function: Callable[..., Any]) -> str:
    """A hash of a function's source, so that a resume notices another measure."""
    try:
        source = inspect.getsource(function)
    except (OSError, TypeError):
        # typed at a prompt, or a callable object: its name is all there is
        source = getattr(function, "__qualname__", type(function).__qualname__)
    return hashlib.sha256(source.encode("utf-8", "surrogateescape")).hexdigest()[:16]


def _inside_a_loop() -> bool:
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True


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


def _check(artifact: object, evaluate: object, proposers: object) -> None:
    """Refuse what a type checker would have refused, before it means something else."""
    if not isinstance(artifact, str | Path | Mapping):
        raise SetupError(f"the artifact is {artifact!r:.60}, not a text, a Path, or texts by name")
    if not callable(evaluate):
        raise SetupError(f"`evaluate` is {evaluate!r:.60}, not a function")
    if isinstance(proposers, str) or not isinstance(proposers, Sequence):
        raise SetupError("`proposers` is not a list", hint="write proposers=[…], also for one")


def _check_words(gate: object, budget: object, way: object) -> None:
    """Refuse a misspelt word, which would otherwise mean something else."""
    if gate not in ("strict", "race") and not isinstance(gate, Gate):
        hint = 'give "strict", "race", or a gate such as kept.Sigma()'
        raise SetupError(f"`gate` is {gate!r:.60}, not a gate", hint=hint)
    if isinstance(budget, bool) or not isinstance(budget, int | Budget):
        hint = "give a number of steps, or kept.Budget(…)"
        raise SetupError(f"`budget` is {budget!r:.60}, not a budget", hint=hint)
    if way not in ("maximize", "minimize"):
        hint = 'give "maximize" or "minimize"'
        raise SetupError(f"`direction` is {way!r:.60}, not a direction", hint=hint)


def artifact_texts(artifact: str | Path | Mapping[str, str]) -> dict[str, str]:
    """The texts of an artifact by name."""
    if isinstance(artifact, Path):
        try:
            with artifact.open(encoding="utf-8", newline="") as file:
                return {artifact.name: file.read()}
        except (OSError, UnicodeDecodeError) as error:
            raise SetupError(f"cannot read {artifact}: {error}") from error
    if isinstance(artifact, str) and len(artifact) < 200 and Path(artifact).is_file():
        log.warning("`%s` is taken as the text itself; for the file, pass a Path", artifact)
    texts = {"text": artifact} if isinstance(artifact, str) else dict(artifact)
    if not texts:
        raise SetupError("there is nothing to improve: the artifact has no texts")
    for name, text in texts.items():
        try:
            text.encode("utf-8", "surrogateescape")
        except (AttributeError, UnicodeEncodeError) as error:
            raise SetupError(f"`{name}` is not a text that can be written as UTF-8") from error
    return texts


def _cases(given: Iterable[Any] | Cases | None, split: str, seed: int) -> Cases:
    if given is None:
        return implicit_cases()
    if isinstance(given, Cases):
        if fault := fault_in(given):
            raise SetupError(fault)
        return given
    items = list(given)
    if not items:
        raise SetupError("`cases` is empty", hint="leave it out when there are no cases")
    ids = [_case_id(item, number) for number, item in enumerate(items)]
    doubled = [id_ for id_, times in Counter(ids).items() if times > 1]
    if doubled:
        raise SetupError(f"case ids stand more than once: {', '.join(doubled[:5])}")
    cases = [Case(id_, item) for id_, item in zip(ids, items, strict=True)]
    shared = split_cases(cases, parse_ratio(split), seed)
    if fault := fault_in(shared):
        raise SetupError(f"{fault} (split {split} of {len(cases)})", hint="give more cases")
    for overlap in find_overlaps(shared)[:5]:
        log.warning(
            "case %s (%s) and case %s (%s) are %.0f %% alike: what is kept may only fit both",
            *overlap[:4],
            100 * overlap.likeness,
        )
    return shared


def _case_id(item: object, number: int) -> str:
    if isinstance(item, Mapping):
        named = cast("Mapping[str, object]", item)
        if "id" in named:
            return str(named["id"])
    return f"{number:04}"


def parse_ratio(split: str) -> tuple[int, ...]:
    """`3:5:2` as numbers."""
    parts = split.split(":")
    if len(parts) != 3 or not all(part.strip().isdigit() for part in parts):
        raise SetupError(f"`{split}` is not a split", hint="write train:holdout:test, as in 3:5:2")
    return tuple(int(part) for part in parts)


def _proposers(texts: Mapping[str, str], given: Sequence[ProposerLike]) -> Iterable[Proposer]:
    names: dict[str, int] = {}
    plain = [text for text in given if isinstance(text, str)]
    if plain:
        if len(texts) != 1:
            raise SetupError("a plain text can only stand for an artifact with one text")
        path = next(iter(texts))
        yield Variants(tuple(Variant({path: text}, str(n)) for n, text in enumerate(plain, 1)))
    for proposer in given:
        if isinstance(proposer, str):
            continue
        if isinstance(proposer, Proposer):
            yield proposer
            continue
        name = getattr(proposer, "__name__", "function")
        names[name] = names.get(name, 0) + 1
        yield FunctionProposer(proposer, name if names[name] == 1 else f"{name}-{names[name]}")
    if not given:
        raise SetupError(
            "there is no proposer", hint="pass proposers=[…]: functions, or texts to try"
        )


def _shown(value: float | None) -> str:
    return "no score" if value is None else f"{value:.4g}"
