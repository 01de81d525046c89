"""Plan of an agent run: one task, one execution; nothing is proposed or kept."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

from kept.core.artifact import Artifact, Candidate, Rules
from kept.core.budget import Budget, StopKind, StopReason
from kept.core.case import Case, Cases
from kept.core.event import SpecSettings
from kept.core.objective import Objective
from kept.core.plan import AGENT_RUN, Plan
from kept.core.ports import Journal, Scope, Sink
from kept.core.rollout import Failure, Job, Rollout
from kept.core.schedules.round_robin import MEASURE, Turns
from kept.engine.budget import Halt
from kept.errors import SetupError
from kept.evaluators.runners.function import RecordedScorer
from kept.gates.fixed_cases import Sweep
from kept.models.roles import probes_of
from kept.orchestrator.budget import REASONS, is_raise
from kept.orchestrator.events import Hearer
from kept.orchestrator.loss import Weights, run_loss
from kept.orchestrator.record import AgentRun, Limits
from kept.orchestrator.runner import AgentRunner
from kept.orchestrator.state import Assignment
from kept.orchestrator.workers import Stop
from kept.proposers.variants import SEED_ALONE
from kept.recipes.agent_run.journal_view import CASE, RunFolder, agent_run_of
from kept.recipes.agent_run.make_toolkit import (
    Configs,
    check,
    configs_of,
    endpoints_of,
    find_inputs,
    hidden_from,
    kit_of,
    limits_of,
    run_texts,
    unpriced,
)
from kept.recipes.agent_run.request import Asked
from kept.recipes.agent_run.spec import AgentRunSpec
from kept.recipes.base import Compiled
from kept.recipes.task.make_coding_agent import hash_of
from kept.sandbox.workspace import Scratch
from kept.spec.source import read_source, source_of
from kept.spec.validate import validate
from kept.store.home import Home
from kept.store.reader import Run

LOSS = "loss"


@dataclass(frozen=True, slots=True)
class Watched:
    """Listeners for the moments of a run, and its stop signal."""

    hear: Hearer | None = None
    """Receives every moment; in a resume also those of earlier sessions."""
    say: Callable[[str], None] | None = None
    """Receives a line for each thing that happens now."""
    stop: Stop = field(default_factory=Stop)

    def tell(self, line: str) -> None:
        """Say a line if it happens now; a resume first replays what was said before."""
        if self.say is not None and self.stop.live:
            self.say(line)


@dataclass(frozen=True, slots=True)
class Before:
    """State that a resumed run must keep."""

    texts: Mapping[str, str]
    """Versions of prompt artifacts that it began with, whatever is active now."""
    limits: Limits | None = None
    """None if the run had not asked any model yet."""
    budget: str = ""
    """Hash of the budget."""


def before_of(run: Run) -> Before:
    """State that a run began with."""
    texts = run.candidate(run.state.seed).texts
    record, started = agent_run_of(run), run.state.started
    if record is None or started is None:
        return Before(texts)
    limits = record.raised[0].before if record.raised else record.limits
    return Before(texts, limits, started.inputs["budget"])


def compile_agent_run(
    asked: Asked, watched: Watched | None = None, before: Before | None = None
) -> Compiled:
    """Build the plan of an agent run; raises `SpecError` or `SetupError` with all problems."""
    watched = watched or Watched()
    folder = Path(asked.folder)
    home = Home.find(folder)
    if asked.config is None:
        source = source_of(folder / "(command line)", "{}", asked.settings)
    else:
        source = read_source(folder / asked.config, asked.settings)
    spec = validate(source, AgentRunSpec)
    # target and views of an experiment's task; empty for other runs
    target = ""
    views: tuple[Callable[[Journal], Sink], ...] = ()
    if asked.tags:
        from kept.recipes.agent_run.experiment_run import targets_in, task_views

        target = next(iter(targets_in(asked.tags)), "")
        views = task_views(folder, asked.tags)
    texts = run_texts(source, home, before.texts if before else None, target=target)
    source.check()
    assert spec is not None, "a spec without problems is one"
    if not asked.task.strip():
        raise SetupError("the task is empty", hint='say what is to be done: kept agent run "TASK"')
    configs = configs_of(spec, source.folder)
    check(spec, configs)
    never = (home.path, *([folder / asked.output] if asked.output else []))
    found = find_inputs(folder, asked.inputs, never)
    scratch = Scratch()
    limits, budget = limits_of(spec.budget), hash_of(spec.budget.model_dump(mode="json"))
    raised = None
    if before is not None and before.limits is not None and is_raise(before.limits, limits):
        # the manager sees the remaining budget: replies are replayed only for equal requests
        limits, raised, budget = before.limits, limits, before.budget
    kit = kit_of(spec, configs, limits, scratch, hidden_from(folder, home.path))
    kit = replace(kit, prompts=texts.prompts, say=watched.tell, raised=raised)
    seed = Candidate(texts.artifacts)

    async def close() -> None:
        scratch.close()

    runner = AgentRunner(
        kit=kit,
        assignment_of=lambda case: Assignment(
            task=asked.task, brief=asked.brief, parent_run_id=asked.parent_run_id, tags=asked.tags
        ),
        files_of=lambda case: found.read(),
        measures=measures,
        closes=close,
        limited=_leave_open,
        hear=watched.hear,
        stop=watched.stop,
    )
    case = Case(CASE, {"task": asked.task, "inputs": sorted(found.files), "brief": asked.brief})
    plan = Plan(
        recipe=AGENT_RUN,
        seed=seed,
        rules=Rules({name: Artifact(name) for name in seed.texts}),
        cases=Cases(holdout=(case,)),
        runner=Halting(runner),
        scorer=RecordedScorer(),
        objective=Objective(LOSS, "minimize"),
        proposers=(SEED_ALONE,),
        schedule=Turns(MEASURE, 1),
        gate=Sweep(1),
        budget=Budget(),
        tries_one=False,
        probes=probes_of(endpoints_of(spec, configs)),
        views=(RunFolder, *views),
        inputs={
            "prompts": hash_of(dict(texts.prompts)),
            "budget": budget,
            "settings": settings_hash(spec, configs),
        },
        spec=SpecSettings(description=asked.task[:200]),
        request=asked,
    )
    odd = found.left_out[:10]
    left_out = [f"`{name}` is no plain file, and is not given to the run" for name in odd]
    return Compiled(plan, (*left_out, *unpriced(configs)))


def settings_hash(spec: AgentRunSpec, configs: Configs) -> str:
    """Hash of the settings for a resume, including models named only by the environment."""
    names = [one.name for one in (configs.manager, configs.worker, configs.critic)]
    errand = spec.budget.usd_per_errand
    return hash_of([spec.model_dump(mode="json", exclude={"budget"}), names, errand])


def measures(record: AgentRun, weights: Weights | None = None) -> Mapping[str, float]:
    """Loss and its parts, under their names in the journal."""
    parts = run_loss(record, weights).parts()
    return {LOSS: parts.pop("total"), **{f"{LOSS}_{name}": value for name, value in parts.items()}}


def _leave_open(reason: str) -> None:
    """Leave the only step open, so that the run can be resumed with a higher limit."""
    kinds: Mapping[str, StopKind] = {REASONS["wall_seconds"]: "minutes", REASONS["usd"]: "usd"}
    raise Halt(StopReason(kinds.get(reason, "iterations"), f"the run came to its {reason}"))


@dataclass(frozen=True, slots=True)
class Halting:
    """Runner that stops the run on an infrastructure failure, so that it can be resumed.

    There is only one execution: recording it as missing would end the run for good.
    """

    runner: AgentRunner

    async def run(
        self, job: Job, candidate: Candidate, case: Case, scope: Scope
    ) -> Rollout | Failure:
        """Run the job; raises `Halt` if the infrastructure fails."""
        ran = await self.runner.run(job, candidate, case, scope)
        if isinstance(ran, Failure) and ran.blame == "infrastructure":
            raise Halt(StopReason("error", ran.message))
        return ran

    async def close(self) -> None:
        """Close the inner runner."""
        await self.runner.close()
