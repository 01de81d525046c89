"""Toolkit of an agent run from its spec: models, tools, workers, checks, prompts, inputs.

The measure is the usual one plus tests of the user.

Prompts are Kept's own, versions of a registry, or files of a folder. A file replaces both. For
the six that can be improved, the registry gives the active version.

Inputs are files and folders, read once; the outputs of the run are never among them.
"""

import os
import stat
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from difflib import get_close_matches
from pathlib import Path
from shlex import join

from kept import settings
from kept.core.ports import Scope, Tool
from kept.core.rollout import Failure
from kept.core.text import count
from kept.engine.replay import request_key
from kept.engine.stop import SystemClock
from kept.errors import SetupError
from kept.evaluators.tools.arithmetic import ArithmeticTool
from kept.evaluators.tools.files import MOST_BYTES, MOST_FILES, SharedFiles, file_tools
from kept.evaluators.tools.python_code import Bench, CodeTool
from kept.models.context_window import room_of
from kept.models.prompts import ARTIFACTS, RUN
from kept.models.providers import ModelConfig, config_of, missing
from kept.models.roles import connect_uncached, unbounded
from kept.orchestrator.checks.base import Ran, Runs
from kept.orchestrator.checks.chain import chain
from kept.orchestrator.checks.execution import (
    USUAL,
    ByCommand,
    DeterministicPhase,
    Evaluation,
    Invariant,
    RunsOn,
)
from kept.orchestrator.prompt_registry import OF_EXPERIMENT, PromptRegistry, registry_path
from kept.orchestrator.record import Limits, Models
from kept.orchestrator.toolkit import ROLES, Kit, Works, own_artifacts, own_prompts
from kept.orchestrator.workers import ChatWorker
from kept.recipes.agent_run.spec import AgentRunSpec, RunBudgetSpec
from kept.sandbox.capabilities import abilities
from kept.sandbox.command import Command, Exit, View
from kept.sandbox.tree_copies import LEFT_OUT
from kept.sandbox.workspace import Scratch
from kept.settings import without_secrets
from kept.spec.shared_sections import ModelSpec
from kept.spec.source import Source
from kept.spec.validate import said
from kept.spec.yaml import Loc
from kept.store.home import Home


def evaluation_of(spec: AgentRunSpec) -> Evaluation:
    """Final check of a deliverable: the usual metrics and those of the user."""
    own = (
        ByCommand(name, tuple(one.command), one.weight, one.threshold, one.seconds)
        for name, one in spec.metrics.items()
    )
    return Evaluation((*USUAL, *own))


@dataclass(frozen=True, slots=True)
class Configs:
    """Models of the three roles of a run."""

    manager: ModelConfig
    worker: ModelConfig
    critic: ModelConfig


def endpoints_of(spec: AgentRunSpec, configs: Configs) -> list[ModelConfig]:
    """Models that Kept itself asks; an agent CLI that works asks its own."""
    workers = [] if spec.worker_agent else [configs.worker]
    return [configs.manager, configs.critic, *workers]


def unpriced(configs: Configs) -> list[str]:
    """Warnings about models without a known price."""
    asked = dict.fromkeys((configs.manager, configs.worker, configs.critic))
    return [
        f"the price of `{config.name}` is not known: what it costs is not counted"
        for config in asked
        if unbounded(config) == "price"
    ]


def limits_of(budget: RunBudgetSpec) -> Limits:
    """Limits from the budget of a spec."""
    return Limits(
        loops=budget.max_loops,
        workers=budget.max_workers,
        tokens=budget.max_tokens,
        tool_calls=budget.max_tool_calls,
        wall_seconds=budget.max_minutes * 60,
        depth=budget.max_depth,
        usd=budget.max_usd,
        rejected_completions=budget.max_rejected_completions,
        parallel_workers=budget.max_parallel_workers,
        workers_per_iteration=budget.max_workers_per_turn,
        repairs=budget.max_repairs,
    )


def configs_of(spec: AgentRunSpec, folder: Path) -> Configs:
    """Models of a run; raises `SetupError` if none is named."""

    def config(given: ModelSpec | None, otherwise: ModelConfig) -> ModelConfig:
        return otherwise if given is None else given.config(folder)

    named = settings.model()
    if spec.models.manager is None and named is None:
        hint = "give --model provider/model, or set KEPT_MODEL"
        raise SetupError("no model is named for the manager", hint=hint)
    usual = replace(config_of(named), folder=folder) if named else None
    first = spec.models.manager.config(folder) if spec.models.manager else usual
    assert first is not None, "one of the two is there"
    worker, critic = spec.models.worker, spec.models.critic
    return Configs(first, config(worker, first), config(critic, first))


def check(spec: AgentRunSpec, configs: Configs) -> None:
    """Refuse a run that cannot work, before any model is asked."""
    if spec.worker_agent is not None:
        _check_agent(spec.worker_agent, configs.worker)
    asked = (configs.manager, configs.critic)
    asked += () if spec.worker_agent else (configs.worker,)
    for config in dict.fromkeys(asked):
        _check_model(config)
        if spec.budget.max_usd is not None and (what := unbounded(config)) is not None:
            message = f"`budget.max_usd` cannot be kept: `{config.name}` has no `{what}`"
            raise SetupError(message, hint=f"declare `{what}` in a block of `models`")
    if spec.walls == "required" and not (able := abilities()).walls:
        message = f"workers run commands, and nothing holds them here: {able.why_not}"
        raise SetupError(message, hint="install bubblewrap, or accept it with `walls: off`")


def _check_model(config: ModelConfig) -> None:
    if lack := missing(config):
        raise SetupError(f"cannot ask `{config.name}`: {lack}")


def _check_agent(name: str, config: ModelConfig) -> None:
    """Refuse a missing agent CLI, and a model of a provider that it cannot ask."""
    from kept.sandbox.coding_agents.definition import program_of
    from kept.sandbox.coding_agents.run import CLIS

    cli = CLIS[name]
    if config.provider not in cli.providers:
        hint = f"it can ask {', '.join(cli.providers)}: name such a model as the worker's"
        raise SetupError(f"`{name}` cannot ask `{config.name}`", hint=hint)
    _check_model(config)
    if program_of(cli) is None:
        message = f"there is no program `{cli.program}` on the PATH"
        raise SetupError(message, hint=f"`{cli.install}` installs it")


def kit_of(
    spec: AgentRunSpec,
    configs: Configs,
    limits: Limits,
    scratch: Scratch,
    hidden: tuple[Path, ...],
) -> Kit:
    """Toolkit of a run, without its prompts."""
    walls = spec.walls == "required"
    bench = Bench(scratch=scratch, hidden=hidden, walls=walls, seconds=spec.code_seconds)

    def tools(files: SharedFiles, texts: Mapping[str, str]) -> Sequence[Tool]:
        code = CodeTool(files, bench, texts.get("code_execute", ""))
        return (*file_tools(files, texts), code, ArithmeticTool(texts.get("arithmetic", "")))

    named = (configs.manager, configs.critic, *(() if spec.worker_agent else (configs.worker,)))
    # one connection per model: replies of a scripted model continue across roles
    models = {config: connect_uncached(config) for config in dict.fromkeys(named)}
    rooms = [room for one in (configs.manager, configs.critic) if (room := room_of(one))]
    worker = configs.worker.name
    phases = (
        DeterministicPhase(
            name=one.name,
            command=one.command,
            seconds=one.seconds,
            invariants=tuple(Invariant(**each.model_dump()) for each in one.invariants),
        )
        for one in spec.phases
    )
    return Kit(
        models=Models(
            manager=configs.manager.name,
            worker=f"{spec.worker_agent}:{worker}" if spec.worker_agent else worker,
            critic=configs.critic.name,
        ),
        manager=models[configs.manager],
        critic=models[configs.critic],
        works=_works(spec, configs, scratch, hidden) or ChatWorker(models[configs.worker], tools),
        tools=tools,
        checks=chain(evaluation_of(spec)),
        beside=lambda files: beside(bench, files),
        limits=limits,
        clock=SystemClock(),
        prompts={},
        phases=tuple(phases),
        runs_on=runs_on(bench) if spec.phases else None,
        says_tools=spec.plan_tools == "required",
        room=min(rooms) if rooms else None,
    )


def _works(
    spec: AgentRunSpec, configs: Configs, scratch: Scratch, hidden: tuple[Path, ...]
) -> Works | None:
    """Agent CLI that works; None if a model does."""
    if spec.worker_agent is None:
        return None
    from kept.orchestrator.coding_agent_worker import CliWorker
    from kept.sandbox.coding_agents.definition import program_of
    from kept.sandbox.coding_agents.run import CLIS, Harness

    cli = CLIS[spec.worker_agent]
    program = program_of(cli)
    view = View(
        Path("/"),
        hidden=hidden,
        seen=program.folders if program else (),
        # an agent CLI needs the network to ask its model
        network="on",
        bare=True,
        walls=spec.walls == "required",
    )
    command = Command(cli.program, Path("/"), spec.errand_seconds, view=view)
    worst = spec.budget.usd_per_errand
    harness = Harness(cli, configs.worker, command, scratch, MOST_BYTES, worst)
    return CliWorker(harness, worst)


def beside(bench: Bench, files: Mapping[str, bytes]) -> Runs:
    """Runner of commands in a copy of deliverables; changes are discarded."""
    known_by = {path: request_key(data) for path, data in files.items()}

    async def run(command: Sequence[str], seconds: float, scope: Scope) -> Ran | Failure:
        async def do() -> Ran | Failure:
            began = time.monotonic()
            ended, _ = await bench.run(join(command), files, MOST_BYTES, seconds)
            if not isinstance(ended, Exit):
                return ended
            said = "\n".join(part for part in (ended.stdout, ended.stderr) if part.strip())
            took = round(time.monotonic() - began, 4)
            return Ran(ended.code, said[-20_000:], ended.timed_out, seconds=took)

        request = {"run": list(command), "files": known_by}
        return await scope.call(request, Ran, do, 0.0)

    return run


def runs_on(bench: Bench) -> RunsOn:
    """Runner of commands in a copy of files, which returns the files as they are afterwards."""

    async def run(
        line: str, files: Mapping[str, bytes], seconds: float
    ) -> tuple[Exit | Failure, Mapping[str, bytes]]:
        ended, output = await bench.run(line, files, MOST_BYTES, seconds)
        if isinstance(output, Failure):
            return (ended if isinstance(ended, Failure) else output), files
        return ended, settings.without_secrets(output.files)

    return run


def hidden_from(folder: Path, home: Path) -> tuple[Path, ...]:
    """Paths hidden from workers: Kept's runs, and the project unless it contains Python."""
    needed = (Path(sys.prefix).resolve(), Path(sys.base_prefix).resolve())
    project = folder.resolve()
    own = () if any(path.is_relative_to(project) for path in needed) else (project,)
    return (*own, home.resolve())


@dataclass(frozen=True, slots=True)
class RunTexts:
    """Texts shown to models in a run."""

    prompts: Mapping[str, str]
    """Prompts of manager, worker and critic."""
    artifacts: Mapping[str, str]
    """The six improvable artifacts."""
    files: frozenset[str] = frozenset()
    """Names of the texts that come from a user's file."""


def registry_of(home: Home, target: str = "") -> PromptRegistry:
    """Prompt registry of a project, or of the experiment of a target."""
    if target:
        from kept.orchestrator.experiments import EXPERIMENTS, target_of

        experiment, _ = target_of(home.path / EXPERIMENTS, target)
        return experiment_registry(home, experiment.folder)
    return PromptRegistry(registry_path(home), own_artifacts())


def experiment_registry(home: Home, folder: Path) -> PromptRegistry:
    """Registry of an experiment; while it is empty, the project's texts apply."""
    return PromptRegistry(folder / OF_EXPERIMENT, own_artifacts(), registry_of(home).texts)


def run_texts(
    source: Source,
    home: Home | None = None,
    began: Mapping[str, str] | None = None,
    loc: Loc = ("prompts",),
    target: str = "",
) -> RunTexts:
    """Read all texts; problems of a prompt folder are reported.

    A resumed run has the versions that it `began` with, whatever is active now. One with a
    `target`, EXP:TASK, has those of the experiment.
    """
    if began is None:
        began = registry_of(home or Home.find(source.folder), target).texts()
    prompts, artifacts = own_prompts(), {name: began[name] for name in ARTIFACTS}
    files: set[str] = set()
    given = said(source, loc)
    if not isinstance(given, str) or not given:
        return RunTexts(prompts, artifacts)
    folder = source.folder / given
    if not folder.is_dir():
        hint = f"`kept prompts copy {given} {' '.join(RUN[:3])}` makes one"
        source.report(loc, f"there is no folder `{given}`", hint)
        return RunTexts(prompts, artifacts)
    # imported at use: the import is slow, and few runs have a prompt folder
    from kept.spec.checks import read_prompt

    for path in sorted(folder.glob("*.md")):
        if path.stem not in RUN:
            near = get_close_matches(path.stem, RUN, n=1)
            hint = f"did you mean `{near[0]}.md`?" if near else f"there are {', '.join(RUN)}"
            source.report(loc, f"`{path.name}` is no prompt of an agent run", hint)
    for name in RUN:
        path = folder / f"{name}.md"
        text = read_prompt(source, loc, f"{given}/{name}.md", name) if path.is_file() else None
        if text is not None:
            (artifacts if name in ARTIFACTS else prompts)[name] = text
            files.add(name)
    assert set(prompts) == set(ROLES), "no other prompt is asked for"
    return RunTexts(prompts, artifacts, frozenset(files))


@dataclass(frozen=True, slots=True)
class Found:
    """Files found in the inputs, by path below the input folder."""

    files: dict[str, Path]
    left_out: tuple[str, ...] = ()
    """Paths that are not plain files."""

    def read(self) -> Mapping[str, bytes]:
        """Read the files, without secrets of Kept's environment."""
        return without_secrets({name: path.read_bytes() for name, path in self.files.items()})


def find_inputs(folder: Path, inputs: Sequence[str], never: Sequence[Path] = ()) -> Found:
    """Find all files of the inputs; raises `SetupError` if one is missing, or they are too large.

    Folders in `never` are left out: the output folder of the run may be inside an input.
    """
    places = {name: folder / name for name in inputs}
    _check_there(places)
    files: dict[str, Path] = {}
    strange: list[str] = []
    apart = {path.resolve() for path in never}
    for given in inputs:
        for name, path in _files(places[given].resolve(), apart):
            if name in files:
                hint = "rename one of them, or give the folder that both are in"
                raise SetupError(f"two inputs would be `input/{name}`", hint=hint)
            # a link may lead anywhere, and reading a pipe may never end
            if stat.S_ISREG(path.lstat().st_mode):
                files[name] = path
            else:
                strange.append(name)
    _check_size(files)
    return Found(files, tuple(strange))


def _check_there(places: Mapping[str, Path]) -> None:
    """Refuse missing inputs: a run without them would be paid for in vain."""
    wrong = [f"there is no input `{name}`" for name, path in places.items() if not path.exists()]
    wrong += [
        f"the input `{name}` is no file and no folder"
        for name, path in places.items()
        if path.exists() and not path.is_dir() and not path.is_file()
    ]
    if wrong:
        raise SetupError("; ".join(wrong))


def _files(given: Path, apart: set[Path]) -> Iterator[tuple[str, Path]]:
    if not given.is_dir():
        yield given.name, given
        return
    for folder, folders, names in os.walk(given):
        here = Path(folder)
        folders[:] = sorted(
            one for one in folders if one not in LEFT_OUT and (here / one).resolve() not in apart
        )
        links = [one for one in folders if (here / one).is_symlink()]
        for name in sorted([*names, *links]):
            path = here / name
            yield f"{given.name}/{path.relative_to(given).as_posix()}", path


def _check_size(files: dict[str, Path]) -> None:
    if len(files) > MOST_FILES:
        hint = f"give {count(MOST_FILES, 'file')} at most"
        raise SetupError(f"the inputs are {count(len(files), 'file')}", hint=hint)
    size = sum(path.stat().st_size for path in files.values())
    if size > MOST_BYTES:
        hint = f"give {MOST_BYTES / 2**20:g} MiB at most"
        raise SetupError(f"the inputs are {size / 2**20:.0f} MiB", hint=hint)
