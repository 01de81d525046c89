"""Tuning of an agent.yaml: coordinate descent over its values and texts.

Options of the command line override the file.
"""

import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from kept.core.artifact import Artifact, Rules
from kept.core.budget import Budget
from kept.core.case import Cases
from kept.core.guards import copy_guard
from kept.core.objective import Objective, OwnMeasure, Penalty
from kept.core.plan import AGENT_CONFIG, Plan
from kept.core.ports import Gate, Guard, Proposer
from kept.core.schedules.coordinate import Coordinate, Phase
from kept.core.text import count
from kept.errors import Problem, SetupError, SpecError
from kept.evaluators.scorers.transforms import LOSS, WeightedLoss
from kept.gates.race import Race
from kept.gates.screen import Screen
from kept.gates.sigma import Sigma
from kept.models.providers import ModelConfig
from kept.models.roles import Role, is_free, probes_of, unbounded
from kept.proposers.few_shot import LAYOUT, Shots
from kept.proposers.numeric.search import Numeric
from kept.proposers.variants import SEED_ALONE
from kept.recipes.agent_config.compile import (
    WORKERS,
    agent_warnings,
    check_agent,
    models_of,
    named_files,
    plan_of,
)
from kept.recipes.agent_config.cost import configs_of, coordinate_of, expected, reachable
from kept.recipes.agent_config.critics import Critics, read_critics
from kept.recipes.agent_config.guards import OnlyAxes, WithoutExamples
from kept.recipes.agent_config.outputs.folder import Tuned, TuningFolder
from kept.recipes.agent_config.request import OptimizerFacts, Tuning, TuningFacts
from kept.recipes.agent_config.search_space import Axes, axes_of
from kept.recipes.agent_config.spec.common import clean
from kept.recipes.agent_config.spec.config import shown_settings
from kept.recipes.agent_config.spec.optimizer import (
    BLOCK,
    WARM_UP,
    OptimizerSpec,
    PhaseSpec,
    block_problems,
    cases_of,
    optimizer_of,
    optimizer_warnings,
)
from kept.recipes.agent_config.spec.read import ReadAgent, read_agent
from kept.recipes.agent_config.splits import split_warnings, splits_of
from kept.recipes.base import Compiled
from kept.recipes.evaluate.request import Wanted
from kept.recipes.race_choice import default_gate, race_of, with_race
from kept.recipes.task.make_coding_agent import hash_of
from kept.recipes.task.spec import RaceSpec
from kept.spec.source import read_source, set_by
from kept.spec.validate import said
from kept.spec.yaml import Loc
from kept.store.home import Home


def overlay(tuning: Tuning, spec: OptimizerSpec) -> OptimizerSpec:
    """Apply options of the command line to the block."""
    names = ("max_cycles", "max_minutes", "max_usd", "repeats", "accept_sigma", "seed")
    said = {n: v for n in names if (v := getattr(tuning, n)) is not None}
    for name in ("accept_sigma", "repeats"):
        if name in said:
            _check_sigma(f"--{name.replace('_', '-')}", spec)
            said |= {"gate": "sigma", "gate_by": f"--{name.replace('_', '-')}"}
    return replace(
        spec,
        **said,
        numeric_phase=_phase(tuning, spec.numeric_phase, "numeric"),
        textual_phase=_phase(tuning, spec.textual_phase, "textual"),
    )


def _phase(tuning: Tuning, phase: PhaseSpec, name: str) -> PhaseSpec:
    given = {
        key: value
        for key in ("max_trials", "patience")
        if (value := getattr(tuning, f"{name}_{key}")) is not None
    }
    return phase.model_copy(update=given) if given else phase


def _check_sigma(flag: str, spec: OptimizerSpec) -> None:
    """Refuse an option of `sigma` if the file chooses the race."""
    if spec.gate == "race" and spec.gate_by:
        raise SetupError(
            f"{flag} is of `gate: sigma`, and the agent.yaml names `{spec.gate_by}`",
            hint=f"leave {flag} out, or take `{spec.gate_by}` out of the file",
        )


def told(spec: OptimizerSpec) -> OptimizerFacts:
    """The block as stored in facts."""
    phases = ("numeric_phase", "textual_phase", "demos_phase")
    return {
        "loss_weights": dict(spec.loss),
        "penalties": spec.penalties.model_dump(),
        "axes": spec.axes.model_dump(exclude_none=True),
        "gate": spec.gate,
        "repeats": spec.repeats,
        "accept_sigma": spec.accept_sigma,
        "min_delta": spec.min_delta,
        "max_errored_fraction": spec.max_errored_fraction,
        "min_confidence": spec.min_confidence,
        "numeric_convergence_eps": spec.numeric_convergence_eps,
        "budget": {
            "global": {
                "max_cycles": spec.max_cycles,
                "max_minutes": spec.max_minutes,
                "max_usd": spec.max_usd,
                "max_rollouts": spec.max_rollouts,
            },
            **{name: getattr(spec, name).model_dump() for name in phases},
        },
        "holdout_eval_policy": spec.holdout_eval_policy,
        "min_holdout_cases": spec.min_holdout_cases,
    }


FLOORS = (-0.2, 0.0, 0.05, 0.1)
"""Minimum gain after 1, 2, 3, 4 passes over the train cases, in deviations of one rollout."""

PASSES = 8
"""Passes of the incumbent over the train cases, with which a whole phase is compared."""

PATIENCE = 1.2
"""Patience of the race of a trial, as in the careful preset, because trials are few."""

RESULTS = Path("results", "optimizer")
"""Folder of the results, beside the agent."""


@dataclass(frozen=True, slots=True)
class ReadTuning:
    """An agent.yaml with a valid tuning setup."""

    read: ReadAgent
    """The agent, with the cases of all splits."""
    spec: OptimizerSpec
    axes: Axes
    cases: Cases
    files: tuple[str, ...] = ()
    """Files that the agent names besides its agent.yaml."""
    unpriced: tuple[str, ...] = ()
    """Models without a price, for which `max_usd` is not enforced."""


def tuning_problems(path: Path, overrides: Sequence[str]) -> tuple[Problem, ...]:
    """Problems of an agent that has an `optimizer` block, including those of the block.

    Missing prices and keys of models are not reported here, but at the start of a run. Nor is the
    block of an exported candidate, whose texts lie where no further tuning can edit them.
    """
    file = path.resolve()
    exported = file.parent.name == "candidates" and (file.parents[1] / "trials.jsonl").exists()
    if exported or said(read_source(path, overrides), BLOCK) is None:
        return ()
    try:
        read_tuning(path, overrides, Tuning(allow_unpriced=True), runs=False)
    except SpecError as error:
        return error.problems
    return ()


def read_tuning(
    path: Path, overrides: Sequence[str], tuning: Tuning, *, runs: bool = True
) -> ReadTuning:
    """Read and check everything; raises `SpecError` with all problems.

    Without `runs` a missing key is no problem where `check_agent` allows it.
    """
    try:
        read = read_agent(path, overrides, partial=True)
    except SpecError as error:
        raise _all_of(error, block_problems(path, overrides)) from None
    spec = optimizer_of(read)
    spec = spec and overlay(tuning, spec)
    axes = axes_of(read, spec.axes if spec else None)
    # check axes, cases and critics even with an invalid block, to report all problems at once
    about_cases = spec or cases_of(read)
    found = splits_of(read, about_cases) if about_cases else None
    cases, specs = found or (Cases(), read.cases)
    files = named_files(replace(read, cases=(*read.cases, *specs)))
    read = replace(read, cases=specs)
    critics, wrong = None, tuple[Problem, ...]()
    try:
        critics = _critics(read, axes, writes=False)
    except SpecError as error:
        wrong = error.problems
    limited = spec is not None and spec.max_usd is not None
    unpriced = _check_money(read, axes, critics, tuning) if limited else ()
    try:
        check_agent(read, cases=found is not None, runs=runs)
    except SpecError as error:
        raise _all_of(error, wrong) from None
    if wrong:
        raise SpecError(wrong)
    assert spec is not None, "else there was a problem"
    return ReadTuning(read, spec, axes, cases, files, unpriced)


def _all_of(error: SpecError, more: Sequence[Problem]) -> SpecError:
    """Same error with further problems, without duplicates."""
    told = {problem.message for problem in error.problems}
    return SpecError([*error.problems, *(one for one in more if one.message not in told)])


def compile_coordinate(
    path: Path,
    overrides: Sequence[str] = (),
    began: str = "",
    *,
    tuning: Tuning | None = None,
    workers: int | None = None,
    writes: bool = True,
) -> Compiled:
    """Build the plan of tuning an agent; raises `SpecError` with all problems.

    Files of critic and applier are created in the project if `writes` is set.
    """
    tuning = tuning or Tuning()
    of = read_tuning(path, overrides, tuning)
    read, spec, axes, cases = of.read, of.spec, of.axes, of.cases
    weighed = [name for name, weight in spec.loss.items() if weight]
    plan = plan_of(read, Wanted(), overrides, needed=weighed)
    critics = _critics(read, axes, writes=writes)
    helpers: list[tuple[Role, ModelConfig]] = []
    if critics is not None:
        helpers = [("critic", critics.critic.config), ("applier", critics.applier.config)]
    at_once = workers or read.agent.spec.execution.parallel_test_cases or WORKERS
    models = [config for agent in reachable(read, axes) for config in configs_of(read, agent)]
    plan = replace(
        plan,
        recipe=AGENT_CONFIG,
        rules=Rules({name: Artifact(name) for name in sorted({file for file, _ in _places(axes)})}),
        cases=cases,
        scorer=WeightedLoss(plan.scorer, spec.loss),
        objective=_objective(spec, len(cases.train)),
        proposers=(SEED_ALONE, *_proposers(of, critics)),
        schedule=Coordinate(phases_of(spec, axes), spec.max_cycles, perfect=0.0),
        guards=_guards(read, axes, cases),
        budget=Budget(
            max_minutes=spec.max_minutes,
            max_usd=None if of.unpriced else spec.max_usd,
            max_rollouts=spec.max_rollouts,
        ),
        locate=axes.locate,
        workers=at_once,
        random_seed=spec.seed,
        priced=not all(map(is_free, models)),
        probes=probes_of(models, helpers),
        spec=replace(
            plan.spec,
            results=tuning.output or str(read.place.folder.resolve() / RESULTS),
            named=tuning.output is not None,
        ),
        request=tuning,
        facts=TuningFacts(
            optimizer=told(spec),
            phases=phases_of(spec, axes),
            helpers=_helpers(critics),
            helper_files=critics.files if critics else {},
        ),
    )
    gate, why = _gate(of, plan, began)
    # another decision rule makes another run, while the limits in `budget` may change
    rule = {k: v for k, v in told(spec).items() if k != "budget"}
    inputs = plan.inputs if critics is None else {**plan.inputs, **critics.inputs}
    inputs = {**inputs, "optimizer": hash_of(repr(rule)), "gate": hash_of(repr(gate))}
    plan = with_race(replace(plan, gate=gate, inputs=inputs, gate_why=why))
    plan = replace(plan, views=(partial(TuningFolder, _tuned(of, plan, critics, tuning)),))
    about_critics = critics.warnings if critics else ()
    warnings = (*agent_warnings(read), *about_critics, *_warnings(of, plan))
    return Compiled(plan, tuple(dict.fromkeys(warnings)))


def phases_of(spec: OptimizerSpec, axes: Axes) -> tuple[Phase, ...]:
    """Phases of the kinds of axes that there are."""
    found: list[Phase] = []
    if axes.numeric is not None:
        limits = spec.numeric_phase
        # patience only counts after the warm-up, whose points are random
        least = min(WARM_UP + limits.patience, limits.max_trials)
        found.append(Phase("numeric", "numeric", limits.max_trials, limits.patience, least))
    if axes.textual:
        limits = spec.textual_phase
        paths = tuple(axis.path for axis in axes.textual)
        # each axis has a turn before the phase may end early
        least = min(len(paths), limits.max_trials)
        phase = Phase("textual", "critique", limits.max_trials, limits.patience, least, paths)
        found.append(phase)
    if axes.demos is not None:
        limits = spec.demos_phase
        found.append(Phase("demos", "demos", limits.max_trials, limits.patience))
    return tuple(found)


def _critics(read: ReadAgent, axes: Axes, *, writes: bool) -> Critics | None:
    """Critic and applier; None without textual axes."""
    if not axes.textual:
        return None
    home = Home.find(read.place.folder)
    if writes:
        home.make()
    return read_critics(read, home.path, writes=writes)


def _helpers(critics: Critics | None) -> dict[str, dict[str, str]]:
    both = {} if critics is None else {"critic": critics.critic, "applier": critics.applier}
    return {
        name: {"model": one.asked.model.name, "agent_path": str(one.path)}
        for name, one in both.items()
    }


def _proposers(of: ReadTuning, critics: Critics | None) -> Iterator[Proposer]:
    spec, axes = of.spec, of.axes
    if axes.numeric is not None:
        eps = spec.numeric_convergence_eps
        yield Numeric(axes.numeric, axes.start, startup=WARM_UP, eps=eps)
    if critics is not None:
        yield critics.make(axes.textual, spec.min_confidence)
    if axes.demos is not None and spec.axes.demos is not None:
        yield Shots(axes.demos, spec.axes.demos.max_demos)


def _places(axes: Axes) -> Iterator[tuple[str, str]]:
    """File and path of every value that may change; the path is empty for a whole file."""
    if axes.numeric is not None:
        yield from ((axis.file, axis.path) for axis in axes.numeric.axes)
        for rest in axes.numeric.rests:
            yield from ((file, path) for file, path, _ in rest.members)
    for text in (*axes.textual, *((axes.demos,) if axes.demos else ())):
        yield text.file, text.key


def _guards(read: ReadAgent, axes: Axes, cases: Cases) -> tuple[Guard, ...]:
    """Guards: only axes may change, and cases may be copied only into examples."""
    copied: tuple[Guard, ...] = (copy_guard(cases),)
    if axes.demos is not None:
        copied = (copy_guard(cases, allow_train=True), WithoutExamples(copy_guard(cases), LAYOUT))
    name = read.place.path.name
    paths = frozenset(path for file, path in _places(axes) if file == name)
    return (OnlyAxes(name, paths), *copied)


def _objective(spec: OptimizerSpec, train: int) -> Objective:
    """Loss with penalties; dollars count per trial, so their rate is multiplied by its rollouts."""
    rates: tuple[tuple[OwnMeasure, float], ...] = (
        ("usd", spec.penalties.cost_per_usd * train * spec.repeats),
        ("seconds", spec.penalties.latency_per_sec),
    )
    charged = tuple(Penalty(name, rate) for name, rate in rates if rate)
    return Objective(LOSS, "minimize", (0.0, 1.0), penalties=charged)


def _gate(of: ReadTuning, plan: Plan, began: str) -> tuple[Gate, str]:
    """Gate that is named, else the one that the run began with, else the default.

    The second value is the reason, in words.
    """
    spec = of.spec
    sigma = Sigma(
        spec.repeats,
        spec.accept_sigma,
        spec.holdout_eval_policy,
        spec.max_errored_fraction,
        spec.min_delta,
    )
    race = _unhurried(race_of(spec.race), spec.race, len(of.cases.train))
    # precedence: the file or an option, then the gate of the resumed run, then the default
    if spec.gate_by:
        why = f"`{spec.gate_by}` is set"
        return (sigma if spec.gate == "sigma" else race), why
    if began:
        return (sigma if began == "sigma" else race), "the run began with it"
    default = default_gate(plan)
    if default.gate.name == "race":
        return race, f"the default with {count(len(of.cases.holdout), 'holdout case')}"
    return sigma, default.why


def _unhurried(race: Race, spec: RaceSpec, train: int) -> Race:
    """Adapt the race to phases: the screen runs all train cases before it drops a trial.

    With hundreds of proposals, a good one dropped by chance is soon replaced. A phase has only
    about a dozen trials, and a missed gain is missed for the whole cycle. Values set in the file
    are kept (docs/decisions/0036).
    """
    once = min(race.screen.cases, train)
    usual = enumerate(zip(Screen().steps, FLOORS, strict=True), 1)
    steps = tuple([(max(size, n * once), floor) for n, ((size, _), floor) in usual])
    own: dict[str, Any] = {"steps": steps, "passes": PASSES}
    named = spec.said.get("screen", {})
    given = {name: value for name, value in own.items() if name not in named}
    if spec.preset == "balanced" and "patience" not in spec.said:
        race = replace(race, patience=PATIENCE)
    return replace(race, screen=replace(race.screen, **given))


def _check_money(
    read: ReadAgent, axes: Axes, critics: Critics | None, tuning: Tuning
) -> tuple[str, ...]:
    """Report models for which `max_usd` cannot be enforced; return those allowed anyway."""
    allowed: list[str] = []
    told: set[str] = set()
    for loc, config, of in _asked(read, axes, critics):
        lacks = unbounded(config)
        if lacks is None or config.name in told:
            continue
        told.add(config.name)
        if lacks == "price" and tuning.allow_unpriced:
            allowed.append(f"`{config.name}`")
        else:
            message = f"`max_usd` cannot be kept: `{config.name}`{of} has no `{lacks}`"
            read.source.report(loc, message, "leave `max_usd` out, or set `max_rollouts`")
    return tuple(allowed)


def _asked(
    read: ReadAgent, axes: Axes, critics: Critics | None
) -> Iterator[tuple[Loc, ModelConfig, str]]:
    """Every model that a run may ask, with the location that names it."""
    for loc, llm in models_of(read):
        yield loc, llm.config(read.place.folder), ""
    for agent in reachable(read, axes):
        for config in configs_of(read, agent):
            yield (*BLOCK, "axes"), config, ", which an axis may choose,"
    for one in (critics.critic, critics.applier) if critics else ():
        yield (*BLOCK, "axes", "textual"), one.config, f" of {one.path}"


def _warnings(of: ReadTuning, plan: Plan) -> Iterator[str]:
    if of.unpriced:
        most = expected(plan, coordinate_of(plan), of.read, of.axes).at_most
        bound = f"at most {most:,} rollouts" if most is not None else "set `max_rollouts`"
        names = ", ".join(of.unpriced)
        yield f"`max_usd` cannot be enforced: the price of {names} is not known; {bound}"
    yield from optimizer_warnings(of.spec)
    yield from split_warnings(of.cases)
    if plan.gate.name == "sigma" and of.spec.gate == "race":
        yield f"`sigma` decides, which keeps noise more often: {plan.gate_why}"
    if plan.gate.name == "race" and of.spec.min_delta:
        yield "`min_delta` is not looked at by a race, which measures the noise itself"
    if of.cases.test and plan.gate.name == "sigma":
        yield "the test cases are not looked at: `sigma` makes no claim by them; `gate: race` does"


def _tuned(of: ReadTuning, plan: Plan, critics: Critics | None, tuning: Tuning) -> Tuned:
    read, cases = of.read, of.cases
    folder = read.place.folder
    file = read.agent.spec.instructions.file
    header: dict[str, Any] = {
        "baseline_sha256": hashlib.sha256(read.place.path.read_bytes()).hexdigest(),
        "seed": of.spec.seed,
        "optimizer_config": {**told(of.spec), "gate": plan.gate.name},
        "train_cases_count": len(cases.train),
        "holdout_cases_count": len(cases.holdout),
        "test_cases_count": len(cases.test),
        "subagents": _helpers(critics),
    }
    return Tuned(
        agent=folder / read.place.path.name,
        place=Path(tuning.output) if tuning.output else folder / RESULTS,
        named=tuning.output is not None,
        instructions=clean(file) if file else "",
        files=of.files,
        weights=of.spec.loss,
        objective=plan.objective,
        settings=tuple(
            set_by(one, read.source.data) for one in shown_settings(read.place.overrides)
        ),
        header=header,
    )
