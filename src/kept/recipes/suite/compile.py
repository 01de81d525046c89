"""Prompt-suite plans, and their export to the prompt registry.

Tasks are cases, a run of one is a rollout, an update is a proposal. A candidate is the six
improvable prompts of an agent run. A small suite has no split: the proposer sees all its tasks,
and separate rollouts of the same tasks decide. A kept candidate is better on these tasks
(docs/decisions/0062).

The export is a view of the journal. Each closed step is an epoch, written in one transaction and
identified by run and step. After a kill between journal and registry, a resume completes it
without repeating anything. Versions activated by users since then stay active.
"""

import json
import logging
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from kept.core.artifact import Artifact, Candidate, Rules
from kept.core.budget import Budget
from kept.core.case import Case, Cases
from kept.core.event import SpecSettings, StepClosed, StepRecords
from kept.core.guards import EmptyGuard, copy_guard
from kept.core.llm import ModelRequest
from kept.core.objective import Objective
from kept.core.plan import SUITE, Plan
from kept.core.ports import Gate, Journal, Model
from kept.core.rollout import Purpose
from kept.core.schedules.epochs import Epochs
from kept.core.text import count
from kept.core.verdict import UNDECIDED, UNMEASURED
from kept.errors import SetupError
from kept.gates.fixed_cases import FixedRace
from kept.gates.race import PRESETS
from kept.gates.seed_rules import Strict
from kept.models.context_window import room_of
from kept.models.prompts import ARTIFACTS
from kept.models.providers import ModelConfig, config_of, missing
from kept.models.roles import connect_role, is_free, probes_of, unbounded
from kept.orchestrator.loss import Weights
from kept.orchestrator.prompt_registry import Epoch, PromptRegistry, Suite, TaskRun
from kept.orchestrator.prompt_update import LONGEST, UPDATE, Update
from kept.orchestrator.runner import AgentRunner, ByTask, FoundScorer, Measures
from kept.orchestrator.state import Assignment
from kept.orchestrator.workers import Stop
from kept.proposers.llm import Asked
from kept.recipes.agent_run.compile import LOSS, measures, settings_hash
from kept.recipes.agent_run.make_toolkit import (
    Configs,
    check,
    configs_of,
    endpoints_of,
    hidden_from,
    kit_of,
    limits_of,
)
from kept.recipes.agent_run.spec import AgentRunSpec
from kept.recipes.base import Compiled
from kept.recipes.race_choice import MIN_RACE_CASES, race_of, with_race
from kept.recipes.skill.compile import unhurried
from kept.recipes.suite.request import Optimization, SuiteFacts
from kept.recipes.suite.spec import ReadSuite, SuiteTaskSpec, read_suite
from kept.recipes.task.make_coding_agent import hash_of
from kept.sandbox.workspace import Scratch
from kept.settings import model as named_model
from kept.spec.source import Source
from kept.store import codec
from kept.store.exports import View
from kept.store.journal import RunJournal
from kept.store.jsonl import rollout_lines

log = logging.getLogger("kept")

PAGE = "optimization.json"

LOOKED: tuple[Purpose, ...] = ("feedback", "probe")
"""Purposes of runs shown to the proposer, which do not judge anything."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Optimized:
    """Optimized suite, and the places of its results."""

    registry: PromptRegistry
    suite: Suite
    metric: str
    seed: Mapping[str, str]
    """Texts to begin with."""
    named: Collection[str] = ()
    """Artifacts that begin with a named version, whatever is active."""
    place: Path | None = None
    """Folder of a task for its page; None without a task."""


class EpochsView(View):
    """View that writes an epoch when its step closes."""

    def __init__(self, optimized: Optimized, journal: Journal) -> None:
        super().__init__(journal)
        self._of = optimized
        self._used = {k: v for k, v in optimized.seed.items() if k not in optimized.named}
        """Texts in use, as far as they are those of the start or were kept."""
        self._number = 0
        self._page: list[dict[str, object]] = []
        self._cannot = False

    def begin(self, steps: Iterable[StepRecords]) -> None:
        """Write the epochs of earlier sessions that are missing."""
        self._try(lambda: self._of.registry.register(self._of.suite))
        for step in steps:
            self.closed(step)
        self._write_page()

    def closed(self, step: StepRecords) -> None:
        """Write one epoch."""
        epoch = self._epoch(step)
        self._try(lambda: self._of.registry.record(epoch))
        self._used |= {name: epoch.after[name] for name in epoch.uses}
        changed = [name for name in epoch.after if epoch.after[name] != epoch.before[name]]
        self._page.append(
            {
                "epoch": epoch.number,
                "step": step.closed.step,
                "artifact": changed[0] if changed else None,
                "kept": epoch.kept,
                "mean_loss": epoch.loss,
                "verdict": step.closed.verdict.reason,
                "at": epoch.ended,
            }
        )
        self._write_page()

    def _epoch(self, step: StepRecords) -> Epoch:
        closed = step.closed
        told = step.opened.turn.settings.get("epoch")
        self._number = told if isinstance(told, int) else self._number
        sides = self.sides(step)
        before = dict(sides[0].texts if sides else self.journal.load(closed.incumbent).texts)
        verdict = closed.verdict
        # what was never run or never decided is no version that was rolled back
        tried = verdict.code not in (*UNMEASURED, *UNDECIDED)
        after = dict(sides[1].texts) if sides and tried else before
        used = self._used
        moved = [name for name in after if after[name] != used.get(name)] if verdict.best else []
        evaluation = step.evaluation
        return Epoch(
            id=f"{self.run}/{closed.step}",
            suite=self._of.suite.id,
            number=self._number,
            started=step.opened.t,
            ended=closed.t,
            loss=evaluation.loss if evaluation else None,
            before=before,
            after=after,
            kept=verdict.outcome == "keep" or verdict.best,
            uses=tuple(moved),
            reason=verdict.reason,
            runs=self._runs(closed),
        )

    def _runs(self, closed: StepClosed) -> list[TaskRun]:
        """Task runs that judged an epoch's candidate, without those of later epochs."""
        if closed.candidate is None or not isinstance(self.journal, RunJournal):
            return []
        rows = rollout_lines(self.journal.folder / "rollouts.jsonl", *closed.rollouts)
        entries = [row.entry() for row in rows if isinstance(row, codec.RolloutLine)]
        metric = self._of.metric
        return [
            TaskRun(f"{self.run}/{job.scope}", job.case_id, out.metrics.get(metric), out.metrics)
            for job, out in entries
            if job.candidate_id == closed.candidate and job.purpose not in LOOKED
        ]

    def _try(self, write: Callable[[], object]) -> None:
        """Write to the registry; on failure warn once, and let the run go on."""
        try:
            write()
        except SetupError as error:
            if not self._cannot:
                log.warning("%s; `kept resume` writes it when that is mended", error.message)
            self._cannot = True

    def _write_page(self) -> None:
        place = self._of.place
        if place is not None:
            self._try(lambda: self._write(place))

    def _write(self, place: Path) -> None:
        told = {
            "suite": self._of.suite.name,
            "run_id": self.run,
            "registry": str(self._of.registry.path),
            "epochs": self._page,
            "artifacts": {n: v.number for n, v in self._of.registry.active().items()},
        }
        text = json.dumps(told, indent=2, ensure_ascii=False)
        self.put(place / PAGE, text.encode() + b"\n")


ROLLBACK = "rollback"


@dataclass(frozen=True, slots=True, kw_only=True)
class Making:
    """Parts of a plan that are ready-made."""

    runners: Callable[[ReadSuite, Stop], Mapping[str, AgentRunner]] | None = None
    optimizer: Model | None = None


def compile_suite(
    spec: Path | Source,
    overrides: Sequence[str] = (),
    began: str = "",
    *,
    asked: Optimization | None = None,
    texts: Mapping[str, str] | None = None,
    making: Making | None = None,
) -> Compiled:
    """Build the plan of a suite; raises `SpecError` or `SetupError` with all problems.

    A resumed run has the gate and the `texts` that it began with.
    """
    asked, making = asked or Optimization(), making or Making()
    place = asked.place()
    read = read_suite(spec, overrides, place[0] if place else None, texts)
    epochs = asked.epochs or read.spec.epochs
    # a resumed run keeps its gate, whatever the file says now
    rollback = (began or read.spec.gate) == ROLLBACK
    model, config = _optimizer(read, making)
    request = ModelRequest((), max_tokens=config.max_tokens if config else None)
    ask = Asked(model, request, room_of(config) if config else None)
    configs = {} if making.runners is not None else _configs(read, config)
    runs = [one for c in configs.values() for one in endpoints_of(read.spec.run, c)]
    # no text may copy a task, not even one that the proposer sees
    secret = Cases(holdout=read.cases.holdout) if read.shared else read.cases
    scratch, stop = Scratch(), Stop()
    make = making.runners or partial(_runners, scratch=scratch, configs=configs)
    train = len(read.cases.train)
    plan = Plan(
        recipe=SUITE,
        seed=Candidate({name: read.texts.artifacts[name] for name in ARTIFACTS}),
        rules=Rules({name: Artifact(name, max_chars=LONGEST) for name in ARTIFACTS}, max_files=1),
        cases=read.cases,
        runner=ByTask(make(read, stop), scratch.close, stop),
        scorer=FoundScorer(),
        objective=Objective(LOSS, "minimize"),
        proposers=(Update(asked=ask, told=read.told, step=read.spec.step, halves=rollback),),
        schedule=Epochs(cases=train, epochs=epochs, batch=max(1, train), proposer=UPDATE),
        gate=_gate(read, rollback=rollback),
        guards=(EmptyGuard(), copy_guard(secret)),
        budget=Budget(**read.spec.budget.model_dump()),
        workers=read.spec.workers,
        random_seed=read.spec.random_seed,
        priced=not all(is_free(one) for one in _models(configs, config)),
        dear=True,
        probes=probes_of(runs, [("optimizer", config)]),
        inputs=_inputs(read, configs, model.name),
        spec=SpecSettings(
            path=str(read.source.path.resolve()),
            overrides=tuple(overrides),
            id=read.spec.name,
            description=read.spec.description.strip(),
        ),
        sampled=False,
        request=asked,
        facts=SuiteFacts(
            registry=str(read.registry.path.absolute()), epochs=epochs, shared=read.shared
        ),
    )
    plan = with_race(replace(plan, inputs={**plan.inputs, "gate": hash_of(repr(plan.gate))}))
    tasks = [one.model_dump(mode="json", exclude_defaults=True) for one in read.spec.tasks]
    name = read.spec.name
    suite = Suite(id=hash_of([name, tasks]), name=name, tasks=tasks, baseline=read.baseline())
    optimized = Optimized(
        registry=read.registry,
        suite=suite,
        metric=LOSS,
        seed=plan.seed.texts,
        named=read.spec.baseline_artifacts.keys(),
        place=place[1] if place else None,
    )
    plan = replace(plan, views=(partial(EpochsView, optimized),))
    return Compiled(plan, tuple(_warnings(read, rollback, configs, config)))


def _gate(read: ReadSuite, *, rollback: bool) -> Gate:
    if rollback:
        # the source's rule, except that a tie is no gain: one pass, and a worse result is undone
        return Strict(name=ROLLBACK)
    race = PRESETS["balanced"] if read.spec.race is None else race_of(read.spec.race)
    if read.shared or len(read.cases.holdout) < MIN_RACE_CASES:
        return FixedRace.of(race)
    return unhurried(race, len(read.cases.train))


def _optimizer(read: ReadSuite, making: Making) -> tuple[Model, ModelConfig | None]:
    if making.optimizer is not None:
        return making.optimizer, None
    given, named = read.spec.optimizer, named_model()
    if given is None and named is None:
        hint = "give `optimizer: provider/model`, or set KEPT_MODEL"
        raise SetupError("no model is named to propose updates", hint=hint)
    folder = read.source.folder
    usual = replace(config_of(named), folder=folder) if named else None
    config = given.config(folder) if given is not None else usual
    assert config is not None, "one of the two is there"
    if lack := missing(config):
        raise SetupError(f"cannot ask `{config.name}`: {lack}")
    return connect_role("optimizer", config), config


def spec_of(read: ReadSuite, task: SuiteTaskSpec) -> AgentRunSpec:
    """Spec of one task's run: the common one, with the task's own settings on top."""
    run = read.spec.run
    models = {"manager": task.model, "worker": task.worker_model}
    given = {role: one for role, one in models.items() if one is not None}
    return run.model_copy(
        update={
            "models": run.models.model_copy(update=given),
            "budget": task.budget.over(run.budget),
        }
    )


def _configs(read: ReadSuite, optimizer: ModelConfig | None) -> dict[str, Configs]:
    """Models of each task, after all of them were checked."""
    found: dict[str, Configs] = {}
    for task in read.spec.tasks:
        spec = spec_of(read, task)
        found[task.name] = configs_of(spec, read.source.folder)
        check(spec, found[task.name])
    if read.spec.budget.max_usd is not None:
        for config in _models(found, optimizer):
            if (what := unbounded(config)) is not None:
                message = f"`budget.max_usd` cannot be kept: `{config.name}` has no `{what}`"
                raise SetupError(message, hint="leave it out, or set `budget.max_rollouts`")
    return found


def _models(configs: Mapping[str, Configs], optimizer: ModelConfig | None) -> list[ModelConfig]:
    asked = [one for c in configs.values() for one in (c.manager, c.worker, c.critic)]
    return list(dict.fromkeys([*asked, *([optimizer] if optimizer else [])]))


def measures_of(task: SuiteTaskSpec) -> Measures:
    """Loss of a task's run and its parts, with the task's weights."""
    return partial(measures, weights=replace(Weights(), **task.weights.told()))


def _runners(
    read: ReadSuite, stop: Stop, scratch: Scratch, configs: Mapping[str, Configs]
) -> dict[str, AgentRunner]:
    hidden = hidden_from(read.source.folder, read.home.path)

    async def close() -> None:
        return None

    made: dict[str, AgentRunner] = {}
    for task in read.spec.tasks:
        spec, found = spec_of(read, task), read.inputs[task.name]
        kit = kit_of(spec, configs[task.name], limits_of(spec.budget), scratch, hidden)
        assignment = Assignment(task=task.task, tags=("suite", read.spec.name))
        made[task.name] = AgentRunner(
            kit=replace(kit, prompts=read.texts.prompts),
            assignment_of=partial(_assignment, assignment),
            files_of=lambda case, found=found: found.read(),
            measures=measures_of(task),
            closes=close,
            stop=stop,
        )
    return made


def _assignment(assignment: Assignment, case: Case) -> Assignment:
    return assignment


def _inputs(read: ReadSuite, configs: Mapping[str, Configs], optimizer: str) -> dict[str, str]:
    """Hashes of all inputs of a run besides texts and tasks."""
    settings = [
        [
            task.name,
            task.weights.told(),
            spec_of(read, task).budget.model_dump(mode="json"),
            settings_hash(spec_of(read, task), configs[task.name]) if configs else "",
        ]
        for task in read.spec.tasks
    ]
    return {
        "settings": hash_of(settings),
        "prompts": hash_of([dict(read.texts.prompts), read.told]),
        "optimizer": hash_of([optimizer, read.spec.step]),
        "files": read.files_hash(),
    }


def _warnings(
    read: ReadSuite,
    rollback: bool,
    configs: Mapping[str, Configs],
    optimizer: ModelConfig | None,
) -> Iterator[str]:
    for task, found in read.inputs.items():
        for name in found.left_out[:5]:
            yield f"`{name}` of `{task}` is no plain file, and is not given to its runs"
    for config in _models(configs, optimizer):
        if unbounded(config) == "price":
            yield f"the price of `{config.name}` is not known: what it costs is not counted"
    if read.shared:
        yield (
            "all tasks are shown to who proposes, and decide: what is kept is better on these "
            "tasks, and nothing is said of others"
        )
    elif len(read.cases.holdout) < MIN_RACE_CASES and not rollback:
        few = count(len(read.cases.holdout), "task")
        yield f"{few} decide: what is kept is better on these, and nothing is said of others"
    if read.cases.test and rollback:
        yield "the test tasks are not looked at: `rollback` makes no claim by them; `race` does"
