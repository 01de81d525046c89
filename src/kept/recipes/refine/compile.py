"""Refinement plans: run the task of a finished run again to improve its deliverable.

The proposer proposes by running. The incumbent is the last attempt, while the best is kept apart.
Models for an iteration are chosen by name. Runs of other tools use their own model names, so an
unknown name is refused with its origin: flag, file or seed run.
"""

from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple, Protocol

from kept.core.artifact import Artifact, Candidate, Rules
from kept.core.event import SpecSettings
from kept.core.plan import REFINE, Plan
from kept.core.schedules.refine import FEWEST, MOST, TIERS, Refining, Tier, clamped, halved
from kept.engine.stop import SystemClock
from kept.errors import SetupError
from kept.evaluators.runners.function import RecordedScorer
from kept.models.providers import ModelConfig, parse
from kept.models.roles import probes_of
from kept.orchestrator.events import Hearer
from kept.orchestrator.record import Limits
from kept.orchestrator.refine.attempt import BELOW, Made, findings_of
from kept.orchestrator.refine.proposer import MIXED, ModelPair, Rerun
from kept.orchestrator.refine.rescore import Reading
from kept.orchestrator.refine.session import IterationFolders, SessionFiles, SessionPlace
from kept.orchestrator.run_folder.read import FinishedRun, read_run
from kept.orchestrator.runner import AgentRunner
from kept.orchestrator.state import Assignment
from kept.orchestrator.toolkit import Kit
from kept.recipes.agent_run.compile import Watched, settings_hash
from kept.recipes.agent_run.make_toolkit import (
    RunTexts,
    check,
    configs_of,
    endpoints_of,
    hidden_from,
    kit_of,
    limits_of,
    run_texts,
    unpriced,
)
from kept.recipes.agent_run.spec import AgentRunSpec
from kept.recipes.base import Compiled
from kept.recipes.race_choice import with_race
from kept.recipes.refine.request import RACE, Refinement, RefinementFacts, follows, races
from kept.recipes.task.make_coding_agent import hash_of
from kept.sandbox.coding_agents.run import CLIS
from kept.sandbox.workspace import Scratch
from kept.spec.source import Source, read_source, source_of
from kept.spec.validate import said, validate
from kept.store.home import Home

_FLAGS = {"manager": "--model", "worker": "--worker-model"}


class Who(NamedTuple):
    """A model by role and name."""

    role: str
    name: str
    inherited: bool
    """True if the name comes from the seed run and not from a flag."""


def parted(role: str, name: str) -> tuple[str, str]:
    """Split a worker's name into agent CLI, if any, and model."""
    cli, colon, rest = name.partition(":")
    return (cli, rest) if role == "worker" and colon and cli in CLIS else ("", name)


def check_names(named: list[Who], asked: Refinement) -> None:
    """Refuse invalid model names, all at once, with the origin of each."""
    problems: list[str] = []
    inherited = False
    for who in dict.fromkeys(named):
        try:
            parse(parted(who.role, who.name)[1])
        except ValueError as error:
            inherited |= who.inherited
            problems.append(f"{_from(who, asked)}: {error}")
    if problems:
        hint = (
            "name others with --model and --worker-model; `openai_compatible/NAME` is asked of the "
            "server that OPENAI_COMPATIBLE_BASE_URL names"
        )
        raise SetupError("\n".join(problems), hint=hint if inherited else None)


def _from(who: Who, asked: Refinement) -> str:
    if who.inherited:
        return f"the {who.role} of the seed run, `{who.name}`"
    at = 0 if who.role == "manager" else 1
    tiers = {"low": asked.low, "mid": asked.mid, "high": asked.high}
    flags = [f"--tier-{tier}" for tier, pair in tiers.items() if pair[at] == who.name]
    return flags[0] if flags else _FLAGS[who.role]


def compile_refine(
    asked: Refinement, watched: Watched | None = None, began: Mapping[str, str] | None = None
) -> Compiled:
    """Build the plan of a refinement; raises `SetupError` or `SpecError` with all problems.

    A resumed one has the prompt artifacts that it `began` with.
    """
    run = read_run(Path(asked.run))
    if not run.task.strip():
        raise SetupError(f"{run.folder} does not say what its task was", hint="name another run")
    if run.delivered is None:
        raise SetupError(
            f"{run.folder} has left no deliverable to start from",
            hint="it is looked for in FINAL, output/FINAL, output/<id> and output of its own "
            "workspace; what several runs share is nobody's",
        )
    start = start_of(asked, run)
    making = _Making(asked, (run, start), watched or Watched(), began)
    plan = plan_refinement(asked, run, making, start)
    probes = probes_of(making.configs)
    plan = replace(plan, inputs={**plan.inputs, **making.inputs()}, probes=probes)
    return Compiled(plan, tuple(making.warnings()))


def start_of(asked: Refinement, run: FinishedRun) -> FinishedRun:
    """Run that the first iteration starts from: that of BEST, or the seed run.

    Raises `SetupError` if the run of BEST has no deliverable any more.
    """
    if not asked.start:
        return run
    start = read_run(Path(asked.start))
    if start.delivered is None:
        hint = "`--from seed` starts from the seed run"
        raise SetupError(f"{start.folder} no longer has the deliverable of BEST", hint=hint)
    return start


class Making(Protocol):
    """Factory for what an iteration needs."""

    @property
    def artifacts(self) -> Mapping[str, str]:
        """Prompt artifacts of the runs."""
        ...

    def pair_for(self, tier: Tier | None) -> ModelPair:
        """Models of an iteration in a tier."""
        ...

    def say(self, line: str) -> None:
        """Show a line to the user."""
        ...

    def runner_for(
        self,
        pair: ModelPair,
        assignment: Assignment,
        files: Mapping[str, bytes],
        hear: Hearer,
    ) -> AgentRunner:
        """Build the runner of one iteration."""
        ...

    def reading(self) -> Reading:
        """Build the runner that reads deliverables in a race, always with the same critic."""
        ...

    def close(self) -> None:
        """Release resources."""
        ...


def plan_refinement(
    asked: Refinement, run: FinishedRun, making: Making, start: FinishedRun | None = None
) -> Plan:
    """Build the plan for a run that was read.

    The deliverable is that of the run itself, or of the run to `start` from.
    """
    start = start or run
    seed = Candidate(_made(start).texts())
    tiers = not asked.tiers.trivial
    place = SessionPlace(
        shelf=asked.shelf,
        root=asked.root,
        session_id=asked.session,
        seed_run_id=run.run_id,
        tiers=tiers,
        start_run_id=start.run_id,
        seed_loss=None if start is run else run.loss.total,
    )
    rerun = Rerun(
        seed=seed,
        task=run.task,
        texts=making.artifacts,
        runner_for=making.runner_for,
        pair_for=making.pair_for,
        places=IterationFolders(asked.root),
        clock=SystemClock(),
        from_last=asked.from_last,
        iterations=clamped(asked.iterations),
        say=making.say,
        # without findings nothing is run or read, and no model is needed
        raced=asked.gate == RACE and not findings_of(start).empty,
    )
    judging = (
        races(asked, making.reading())
        if rerun.raced
        else follows(run.task, making.close, from_last=asked.from_last)
    )
    plan = Plan(
        recipe=REFINE,
        seed=seed,
        rules=Rules({name: Artifact(name) for name in seed.texts}, new_files=(f"{BELOW}*",)),
        cases=judging.cases,
        runner=judging.runner,
        scorer=RecordedScorer(),
        objective=judging.objective,
        proposers=(rerun,),
        schedule=Refining(
            clamped(asked.iterations),
            run.observed_seconds or None,
            nothing=findings_of(start).empty,
            tiers=tiers,
        ),
        gate=judging.gate,
        budget=judging.budget,
        tries_one=False,
        inputs={"seed": seed.id, "refinement": hash_of(repr(replace(asked, folder="")))},
        spec=SpecSettings(path=asked.run, description=run.task[:200]),
        request=asked,
        facts=RefinementFacts(
            seed_run=run.run_id,
            start_run=start.run_id,
            iterations=str(asked.root),
            artifacts=dict(making.artifacts),
            measure=judging.measure,
        ),
        # a race reads the start again, so the seed's numbers come from there
        seed_value=None if rerun.raced else round(start.loss.total, 6),
        views=(partial(SessionFiles, place),),
    )
    return with_race(plan)


def _made(run: FinishedRun) -> Made:
    return Made(
        run_id=run.run_id,
        status=run.status,
        seconds=run.observed_seconds,
        parts=run.loss.parts(),
        findings=findings_of(run),
        files=run.delivered.read() if run.delivered else {},
        manager=run.manager,
        worker=run.worker,
    )


class _Making:
    """Builds toolkits of iterations, one for every pair of models."""

    def __init__(
        self,
        asked: Refinement,
        runs: tuple[FinishedRun, FinishedRun],
        watched: Watched,
        began: Mapping[str, str] | None,
    ) -> None:
        """Store the settings; the runs are the seed, and the one to start from."""
        run, start = runs
        self._scratch = Scratch()
        self._asked = asked
        self._run = run
        self._watched = watched
        self._began = began
        self._kits: dict[ModelPair, Kit] = {}
        self.configs: tuple[ModelConfig, ...] = ()
        """Models that Kept itself asks."""
        self._settings: list[object] = []
        """Settings that each kit was built from."""
        self._unpriced: dict[str, None] = {}
        """Warnings about prices, each once."""
        pairs = [self.pair_for(tier) for tier in TIERS.values()] if not asked.tiers.trivial else []
        pairs = pairs or [self.pair_for(None)]
        # report all problems before anything is spent; without findings nothing is run
        needed = [] if findings_of(start).empty else [*dict.fromkeys(pairs)]
        check_names([who for pair in needed for who in self._who(pair)], asked)
        for pair in needed:
            self._kits[pair] = self._kit(pair)
        self.artifacts = self._texts(self._source(ModelPair())).artifacts

    def pair_for(self, tier: Tier | None) -> ModelPair:
        """Models of an iteration given by flags; else the file and the seed run apply."""
        if tier is not None:
            return self._asked.tiers.of(tier)
        return ModelPair(self._asked.model, self._asked.worker_model)

    def say(self, line: str) -> None:
        """Show a line to the user: a new iteration, or a resumed one."""
        if self._watched.say is not None:
            self._watched.say(line)

    def runner_for(
        self,
        pair: ModelPair,
        assignment: Assignment,
        files: Mapping[str, bytes],
        hear: Hearer,
    ) -> AgentRunner:
        """Build the runner of one iteration."""

        async def close() -> None:
            return None

        def heard(moment: Any) -> None:  # noqa: ANN401 # a moment, whatever it is of
            hear(moment)
            if self._watched.hear is not None:
                self._watched.hear(moment)

        return AgentRunner(
            kit=self._kits[pair],
            assignment_of=lambda case: assignment,
            files_of=lambda case: files,
            measures=lambda record: {},
            closes=close,
            hear=heard,
            stop=self._watched.stop,
        )

    def reading(self) -> Reading:
        """Build the reader with the critic of the last iterations; others may know less."""
        pair = self.pair_for(None if self._asked.tiers.trivial else "high")
        kit = self._kits.get(pair) or self._kit(pair)
        return Reading(
            kit=kit,
            task=self._run.task,
            texts=self.artifacts,
            closes=self.close,
            stop=self._watched.stop,
        )

    def close(self) -> None:
        """Remove remains of sandboxes."""
        self._scratch.close()

    def warnings(self) -> list[str]:
        """Warnings for the user."""
        mixed = not self._asked.tiers.trivial and (self._asked.model or self._asked.worker_model)
        asked, may = self._asked.iterations, clamped(self._asked.iterations)
        bounds = f"a session has {FEWEST} to {MOST} iterations: {may} instead of {asked}"
        told = [*([MIXED] if mixed else []), *([bounds] if may != asked else [])]
        return [*told, *self._unpriced]

    def inputs(self) -> dict[str, str]:
        """Hashes of settings and prompts; a resume with others is refused."""
        prompts = [dict(kit.prompts) for kit in self._kits.values()]
        return {
            "settings": hash_of(self._settings),
            "prompts": hash_of([*prompts, dict(self.artifacts)]),
        }

    def _kit(self, pair: ModelPair) -> Kit:
        source = self._source(pair)
        spec = validate(source, AgentRunSpec)
        texts = self._texts(source)
        source.check()
        assert spec is not None, "a spec without problems is one"
        configs = configs_of(spec, source.folder)
        check(spec, configs)
        self._unpriced.update(dict.fromkeys(unpriced(configs)))
        self.configs += tuple(endpoints_of(spec, configs))
        budget = spec.budget.model_dump(mode="json")
        self._settings.append([list(pair), settings_hash(spec, configs), budget])
        folder = Path(self._asked.folder)
        hidden = hidden_from(folder, Home.find(folder).path)
        limits = self._limits(limits_of(spec.budget))
        kit = kit_of(spec, configs, limits, self._scratch, hidden)
        return replace(kit, prompts=texts.prompts, say=self._watched.tell)

    def _texts(self, source: Source) -> RunTexts:
        home = Home.find(Path(self._asked.folder))
        return run_texts(source, home, self._began, target=self._asked.target)

    def _limits(self, usual: Limits) -> Limits:
        """Limits at half of the seed run's."""
        caps = halved(self._run.caps, self._run.observed_seconds)
        return replace(
            usual,
            loops=caps.loops,
            workers=caps.workers,
            tokens=caps.tokens,
            tool_calls=caps.tool_calls,
            wall_seconds=float(caps.wall_seconds),
            depth=caps.depth,
        )

    def _source(self, pair: ModelPair) -> Source:
        """Spec with models by precedence: flags, then the file, then the seed run."""
        settings: list[str] = []
        for who in self._who(pair):
            # a worker that is an agent CLI is named together with its model
            cli, model = parted(who.role, who.name)
            settings += [f"worker_agent={cli}"] if cli else []
            settings.append(f"models.{who.role}={model}")
        return self._read((*self._asked.settings, *settings))

    def _who(self, pair: ModelPair) -> list[Who]:
        """Models named by flags, else by the seed run if the file names none."""
        bare = self._read(self._asked.settings)
        seed = ModelPair(self._run.manager, self._run.worker)
        rows = zip(("manager", "worker"), pair, seed, strict=True)
        return [
            Who(role, flag or inherited, inherited=not flag)
            for role, flag, inherited in rows
            if flag or (inherited and said(bare, ("models", role)) is None)
        ]

    def _read(self, settings: tuple[str, ...]) -> Source:
        folder = Path(self._asked.folder)
        if self._asked.config is None:
            return source_of(folder / "(command line)", "{}", settings)
        return read_source(folder / self._asked.config, settings)
