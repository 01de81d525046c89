"""`kept.optimize` and `kept.compare`: the whole loop behind one function.

Modules that a run needs are imported inside the functions, so that importing Kept stays fast.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, is_dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

if TYPE_CHECKING:
    from kept.core.artifact import Candidate
    from kept.core.budget import Budget, Spend, StopReason
    from kept.core.case import Cases
    from kept.core.ports import Gate, Guard, Runner, Sink
    from kept.core.state import State
    from kept.recipes.function.compile import GateName, ProposerLike
    from kept.recipes.gate_choice import ScheduleName
    from kept.results.compare import Comparison, Line
    from kept.results.summary import Summary

    ArtifactLike = str | Path | Mapping[str, str]


class Claimed(NamedTuple):
    """Gain of the best over the seed, on cases that nothing was tuned on."""

    gain: float
    """In the metric's unit; above 0 if the best is better, whatever the direction."""
    low: float | None
    high: float | None
    """Bounds of the 95 % confidence interval of the true gain; None if unknown."""
    words: str


@dataclass(frozen=True, slots=True)
class Result:
    """Result of a run."""

    figures: Summary
    """All figures of the run, as its report shows them."""
    seed: Candidate
    best: Candidate
    state: State
    stopped: StopReason
    warnings: tuple[str, ...] = ()
    """Facts that the figures hide, such as cases that failed for every candidate."""

    @property
    def run(self) -> str:
        """Its id, for `kept show`, `kept report` and `resume=`."""
        return self.figures.run

    @property
    def folder(self) -> Path:
        """The folder of the run."""
        return self.figures.folder

    @property
    def seed_value(self) -> float | None:
        """The seed's metric on test cases, else on deciding cases; None if it never ran."""
        return self.figures.seed_value

    @property
    def best_value(self) -> float | None:
        """The best's metric, on the same cases as `seed_value`."""
        return self.figures.best_value

    @property
    def claim(self) -> Claimed | None:
        """The gain on test cases; None without a test: the values then come from other cases."""
        told = self.figures
        if told.claim_gain is None:
            return None
        return Claimed(told.claim_gain, told.claim_low, told.claim_high, told.claim)

    @property
    def spend(self) -> Spend:
        """Total spend, with that of steps that have no verdict yet."""
        return self.figures.spend

    @property
    def measured(self) -> str:
        """Cases behind the values, such as `12 test cases`; empty without cases."""
        return self.figures.measured

    @property
    def conclusion(self) -> str:
        """The conclusion that the figures allow, in one sentence."""
        from kept.ui.report.race import conclusion

        return conclusion(self.figures)

    @property
    def improved(self) -> bool:
        """True if anything better than the seed was found."""
        return self.figures.improved

    def __str__(self) -> str:
        from kept.core.text import count, one_line

        told = self.figures
        on = f" on {told.measured}" if told.measured else ""
        change = f"{_shown(told.seed_value)} → {_shown(told.best_value)}{on}"
        if not told.improved:
            change = f"nothing beat the seed ({_shown(told.seed_value)}{on})"
        if not told.steps:
            change = f"nothing was judged ({self.stopped.message})"
        elif told.never_judged:
            change = f"nothing was judged ({one_line(told.never_judged, 160)})"
        # merges are counted apart: the run makes them, no proposer does
        proposals = count(told.proposals, "proposal")
        proposals += f" and {count(told.merges, 'merge')}" if told.merges else ""
        rollouts = count(told.spend.rollouts, "rollout")
        claim = (f"claim {told.claim}",) if self.claim else ()
        warnings = (f"warning: {words}" for words in self.warnings)
        first = f"{change} in {proposals}, {told.keeps} kept, {rollouts}"
        closing = filter(None, (self.conclusion,))
        return "\n".join((first, *claim, *warnings, *closing, f"run {told.folder}"))


def optimize(  # noqa: PLR0913 # one function is the whole API; all but three have defaults
    artifact: ArtifactLike,
    evaluate: Callable[..., Any] | Runner,
    cases: Iterable[Any] | Cases | None = None,
    *,
    proposers: Sequence[ProposerLike] = (),
    schedule: ScheduleName = "bandit",
    gate: Gate | GateName | None = None,
    guards: Sequence[Guard] | None = None,
    budget: Budget | int = 50,
    metric: str = "score",
    direction: Literal["maximize", "minimize"] = "maximize",
    bounds: tuple[float, float] | None = None,
    deterministic: bool = False,
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
            number or metrics by name; either may be followed by information for the proposers.
            An exception counts as the candidate's crash, unless it is an outage (connection,
            429, 5xx): that is retried and never counts as a score. If it is raised on every case
            of the seed, the run ends. To report that a text is at fault, return `kept.Failure`.
            If the first parameter is annotated `str`, it receives the text. Or a `Runner`, whose
            metrics are the score unless it is a `Scorer` too.
        cases: what to evaluate on; any values, or `Cases` that are split already.
        proposers: functions of the brief that return a new text, texts to try, models that write
            (`kept.edit(model="provider/model")`, `reflect`, `rewrite`, `simplify`), or `Proposer`s.
        schedule: how to choose among several proposers: `bandit` prefers those with more gain for
            their cost, `in_turn` takes them in order.
        gate: decides what is kept. The default is `race` if there are enough cases and rollouts
            for one, else `strict`. Without cases it is `repeats`, which is `strict` unless
            repeats differ.
        guards: refuse a candidate before it is evaluated. The default guard refuses text copied
            from holdout and test cases.
        budget: limits; a number is a number of steps.
        metric: name of the measure that decides.
        direction: `maximize` or `minimize`.
        deterministic: True if a candidate always scores the same on the same case; nothing is then
            run again to confirm it.
        bounds: least and greatest value of the metric; without them a candidate that fails on
            some cases cannot be judged.
        split: shares of train, holdout and test cases.
        workers: evaluations in flight.
        timeout: seconds after which an evaluation counts as the candidate's failure.
        usd_per_rollout: the most that one evaluation may cost, which is what it is charged with;
            needed for `Budget(max_usd=…)`.
        width: steps open at once; by default enough to keep the workers busy.
        random_seed: for splits and for the random choices of proposers.
        home: the folder for runs; by default the nearest `.kept` of this folder or its parents,
            else a new one here.
        resume: id of a run to go on with, or `last`.
        sinks: receive every event.
    """
    given = locals()
    from kept.core.artifact import Artifact, Candidate, Rules
    from kept.core.budget import Budget
    from kept.core.forecast import enough_steps
    from kept.core.objective import Objective
    from kept.core.plan import FUNCTION, Plan
    from kept.errors import SetupError
    from kept.gates.seed_rules import Strict
    from kept.recipes.function import compile as recipe
    from kept.recipes.function.validate import check_call
    from kept.recipes.gate_choice import schedule_of
    from kept.run import gate_of, may_keep
    from kept.run_sync import run_plan
    from kept.store.home import Home

    check_call(given)
    case_set = recipe.make_cases(cases, split, random_seed)
    made = tuple(recipe.make_proposers(recipe.artifact_texts(artifact), proposers))
    if len({proposer.name for proposer in made}) < len(made):
        raise SetupError("two proposers have one name", hint="give each a `name` of its own")
    limits = Budget(max_iterations=budget) if isinstance(budget, int) else budget
    recipe.check_paid(made, limits.max_usd)
    recipe.check_fields(made, case_set)
    seed = Candidate(recipe.artifact_texts(artifact))
    runner, scorer = recipe.make_runner(evaluate, seed, metric, workers, timeout)
    plan = Plan(
        recipe=FUNCTION,
        seed=seed,
        rules=Rules({path: Artifact(path) for path in seed.texts}),
        cases=case_set,
        runner=runner,
        scorer=scorer,
        objective=Objective(metric, direction, bounds, deterministic=deterministic),
        proposers=made,
        schedule=schedule_of(made, schedule, random_seed),
        gate=Strict(),
        guards=recipe.make_guards(guards, case_set),
        budget=limits,
        workers=workers,
        worst_usd=usd_per_rollout or 0.0,
        probes=recipe.make_probes(evaluate, made),
        random_seed=random_seed,
        inputs={
            "evaluate": recipe.source_of(evaluate),
            "metric, direction or bounds": f"{metric} {direction} {bounds}",
            "proposers": " ".join(proposer.name for proposer in made),
            "random_seed": str(random_seed),
            **({"schedule": schedule} if schedule != "bandit" else {}),
            **({"deterministic": "True"} if deterministic else {}),
        },
    )
    where = Home(Path(home)) if home else Home.find(Path.cwd())
    resume = where.find_run(resume, may_keep).name if resume == "last" else resume
    began = gate_of(where.find_run(resume)) if resume else ""
    plan = recipe.with_gate(plan, gate, began)
    plan = replace(plan, inputs={**plan.inputs, "gate": _told(plan.gate)})
    plan = replace(plan, width=width or enough_steps(plan))
    return run_plan(recipe.racing(plan), where, resume, tuple(sinks))


@dataclass(frozen=True, slots=True)
class Compared:
    """Result of a comparison."""

    run: str
    """Its id, for `kept show`, `kept report` and `resume=`."""
    folder: Path
    told: Comparison
    """All figures; `document()` of it returns what `kept compare --json` prints."""
    stopped: StopReason
    spend: Spend
    warnings: tuple[str, ...] = ()
    """Reasons to trust the answers less."""

    @property
    def answers(self) -> tuple[Line, ...]:
        """One for each challenger, in the order given."""
        return self.told.lines

    @property
    def better(self) -> bool:
        """True if any challenger is better than A."""
        return self.told.better

    def __str__(self) -> str:
        from kept.ui.report.compare import sentences

        warnings = (f"warning: {words}" for words in self.warnings)
        return "\n".join((*sentences(self.told, self.spend), *warnings, f"run {self.folder}"))


def compare(  # noqa: PLR0913 # one function is the whole API; all but four have defaults
    a: ArtifactLike,
    b: ArtifactLike | Sequence[str | Path | Mapping[str, str]],
    evaluate: Callable[..., Any] | Runner,
    cases: Iterable[Any] | Cases,
    *,
    least: float | None = None,
    passes: int | None = None,
    budget: Budget | None = None,
    metric: str = "score",
    direction: Literal["maximize", "minimize"] = "maximize",
    bounds: tuple[float, float] | None = None,
    workers: int = 8,
    timeout: float | None = None,
    usd_per_rollout: float | None = None,
    home: str | Path | None = None,
    resume: str | None = None,
    sinks: Sequence[Sink] = (),
) -> Compared:
    """Measure if B is better than A for cases like these; nothing is changed.

    Each answer is `better`, `not better`, `worse` or `cannot tell`, with the measured difference
    and its confidence interval. It is `open` if a limit was reached first, and `failed` if too few
    rollouts finished. Both are evaluated side by side for as long as more rollouts can change the
    answer. Raises what `kept.optimize` raises.

    Args:
        a: what is in use: a text, the `Path` of a file holding one, or several texts by name.
        b: its challenger, of the same kind, or a list of several.
        evaluate: as for `kept.optimize`.
        cases: what to evaluate on, at least 8; any values, and all of them decide. Of `Cases` that
            are split already, only the holdout cases decide.
        least: smallest difference that matters; by default 5 % of the bounds, or of A's value.
        passes: maximum passes over the cases, 16 by default; 1 if values do not vary.
        budget: limits of rollouts, time and money.
        metric: name of the measure that decides.
        direction: `maximize` or `minimize`.
        bounds: least and greatest value of the metric; a failure counts as the worst of them.
        workers: evaluations in flight.
        timeout: seconds after which an evaluation counts as the candidate's failure.
        usd_per_rollout: the most that one evaluation may cost, which is what it is charged with;
            needed for `Budget(max_usd=…)`.
        home: the folder for runs; by default the nearest `.kept` of this folder or its parents,
            else a new one here.
        resume: id of a comparison to go on with, or `last`.
        sinks: receive every event.
    """
    given = locals()
    from kept.core.artifact import Candidate, Rules
    from kept.core.budget import Budget
    from kept.core.objective import Objective
    from kept.core.plan import COMPARE, Plan
    from kept.core.schedules.round_robin import RoundRobin
    from kept.gates.seed_rules import Strict
    from kept.recipes.compare.compile import as_comparison, check_texts, doubts
    from kept.recipes.compare.request import Comparing
    from kept.recipes.function import compile as recipe
    from kept.recipes.function.validate import challengers_of, check_comparison
    from kept.run import asked_for
    from kept.run_sync import run_comparison
    from kept.store.home import Home

    check_comparison(given)
    versions = recipe.make_versions(a, challengers_of(b))
    check_texts(versions)
    seed, *others = (Candidate(version.texts) for version in versions)
    runner, scorer = recipe.make_runner(evaluate, seed, metric, workers, timeout)
    plan = Plan(
        recipe=COMPARE,
        seed=seed,
        rules=Rules({}),
        cases=recipe.make_cases(cases, "0:1:0", 0),
        runner=runner,
        scorer=scorer,
        objective=Objective(metric, direction, bounds),
        proposers=(),
        schedule=RoundRobin(()),
        gate=Strict(),
        budget=budget or Budget(),
        workers=workers,
        worst_usd=usd_per_rollout or 0.0,
        probes=recipe.make_probes(evaluate, ()),
        inputs={
            "evaluate": recipe.source_of(evaluate),
            "metric, direction or bounds": f"{metric} {direction} {bounds}",
            "b": " ".join(other.id for other in others),
            "least or passes": f"{least} {passes}",
        },
    )
    asked = Comparing(passes=passes, least=least)
    plan = as_comparison(plan, versions, asked, "kept.Budget(max_rollouts={})")
    where = Home(Path(home)) if home else Home.find(Path.cwd())
    doubted = recipe.warned(doubts(plan, versions[1:]))
    resume = where.find_run(resume, asked_for(Comparing)).name if resume == "last" else resume
    ended = run_comparison(plan, where, resume, tuple(sinks))
    return replace(ended, warnings=(*doubted, *ended.warnings))


def _shown(value: float | None) -> str:
    from kept.core.text import significant

    return "no score" if value is None else significant(value, 4)


def _told(gate: object) -> str:
    """Fingerprint of a gate, equal in every process (a default `repr` holds an address)."""
    if isinstance(gate, str) or is_dataclass(gate):
        return repr(gate)
    kind = type(gate)
    return f"{kind.__module__}.{kind.__qualname__} {getattr(gate, 'name', '')}"
