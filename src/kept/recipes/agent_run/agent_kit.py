"""What an agent run is done with, from what a spec says: models, tools, workers, checks."""

import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from shlex import join

from kept import settings
from kept.core.ports import Scope, Tool
from kept.core.rollout import Failure
from kept.engine.clock import SystemClock
from kept.engine.scope import request_key
from kept.errors import SetupError
from kept.evaluators.tools.arithmetic import ArithmeticTool
from kept.evaluators.tools.files import file_tools
from kept.evaluators.tools.python_code import Bench, CodeTool
from kept.evaluators.tools.shared_files import MOST_BYTES, SharedFiles
from kept.models.config import ModelConfig
from kept.models.providers import config_of, missing
from kept.models.roles import connect_uncached, unbounded
from kept.models.window import room_of
from kept.orchestrator.checks.base import Ran, Runs
from kept.orchestrator.checks.chain import chain
from kept.orchestrator.checks.deterministic import DeterministicPhase, Invariant, RunsOn
from kept.orchestrator.kit import Kit, Works
from kept.orchestrator.record import Limits, Models
from kept.orchestrator.worker import ChatWorker
from kept.recipes.agent_run.agent_metrics import evaluation_of
from kept.recipes.agent_run.spec import AgentRunSpec, PhaseSpec, RunBudgetSpec
from kept.sandbox.capabilities import abilities
from kept.sandbox.command import Command, Exit, View
from kept.sandbox.workspace import Scratch
from kept.spec.models import ModelSpec


@dataclass(frozen=True, slots=True)
class Configs:
    """Who is asked."""

    manager: ModelConfig
    worker: ModelConfig
    critic: ModelConfig


def endpoints_of(spec: AgentRunSpec, configs: Configs) -> list[ModelConfig]:
    """Models that Kept itself asks; an agent CLI that works has its own ways."""
    workers = [] if spec.worker_agent else [configs.worker]
    return [configs.manager, configs.critic, *workers]


def unpriced(configs: Configs) -> list[str]:
    """What a person should know of models whose price nobody knows."""
    asked = dict.fromkeys((configs.manager, configs.worker, configs.critic))
    return [
        f"the price of `{config.name}` is not known: what it costs is not counted"
        for config in asked
        if unbounded(config) == "price"
    ]


def limits_of(budget: RunBudgetSpec) -> Limits:
    """What a spec allows, by our names."""
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
    """The models of a run; a `SetupError` where none is named."""

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
    """Refuse what cannot be run, before anything is asked."""
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
    """Refuse an agent CLI that is not there, and a model that it would send a foreign key to."""
    from kept.sandbox.coding_agents.harness import CLIS
    from kept.sandbox.coding_agents.program import program_of

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
    """All that a run needs but for its prompts."""
    walls = spec.walls == "required"
    bench = Bench(scratch=scratch, hidden=hidden, walls=walls, seconds=spec.code_seconds)

    def tools(files: SharedFiles, texts: Mapping[str, str]) -> Sequence[Tool]:
        code = CodeTool(files, bench, texts.get("code_execute", ""))
        return (*file_tools(files, texts), code, ArithmeticTool(texts.get("arithmetic", "")))

    named = (configs.manager, configs.critic, *(() if spec.worker_agent else (configs.worker,)))
    # one connection for each: a script that all are asked of goes on from one to the other
    models = {config: connect_uncached(config) for config in dict.fromkeys(named)}
    rooms = [room for one in (configs.manager, configs.critic) if (room := room_of(one))]
    return Kit(
        models=Models(
            manager=configs.manager.name,
            worker=_worker_name(spec, configs),
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
        phases=tuple(map(phase_of, spec.phases)),
        runs_on=runs_on(bench) if spec.phases else None,
        says_tools=spec.plan_tools == "required",
        room=min(rooms) if rooms else None,
    )


def _worker_name(spec: AgentRunSpec, configs: Configs) -> str:
    name = configs.worker.name
    return f"{spec.worker_agent}:{name}" if spec.worker_agent else name


def _works(
    spec: AgentRunSpec, configs: Configs, scratch: Scratch, hidden: tuple[Path, ...]
) -> Works | None:
    """The agent CLI that works; None where a model does."""
    if spec.worker_agent is None:
        return None
    from kept.orchestrator.coding_agent_worker import CliWorker
    from kept.sandbox.coding_agents.harness import CLIS
    from kept.sandbox.coding_agents.program import program_of
    from kept.sandbox.coding_agents.run import Harness

    cli = CLIS[spec.worker_agent]
    program = program_of(cli)
    view = View(
        Path("/"),
        hidden=hidden,
        seen=program.folders if program else (),
        network="on",
        bare=True,
        walls=spec.walls == "required",
    )
    command = Command(cli.program, Path("/"), spec.errand_seconds, view=view)
    worst = spec.budget.usd_per_errand
    harness = Harness(cli, configs.worker, command, scratch, MOST_BYTES, worst)
    return CliWorker(harness, worst)


def beside(bench: Bench, files: Mapping[str, bytes]) -> Runs:
    """Runs commands in a copy of deliverables, and throws away what they change."""
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


def phase_of(spec: PhaseSpec) -> DeterministicPhase:
    """A phase, by our names."""
    invariants = tuple(Invariant(**one.model_dump()) for one in spec.invariants)
    return DeterministicPhase(
        name=spec.name, command=spec.command, seconds=spec.seconds, invariants=invariants
    )


def runs_on(bench: Bench) -> RunsOn:
    """Runs commands in a copy of files, and tells what became of those."""

    async def run(
        line: str, files: Mapping[str, bytes], seconds: float
    ) -> tuple[Exit | Failure, Mapping[str, bytes]]:
        ended, output = await bench.run(line, files, MOST_BYTES, seconds)
        if isinstance(output, Failure):
            return (ended if isinstance(ended, Failure) else output), files
        return ended, settings.without_secrets(output.files)

    return run


def hidden_from(folder: Path, home: Path) -> tuple[Path, ...]:
    """What no worker may read: the project that the task was given in, and runs of Kept."""
    needed = (Path(sys.prefix).resolve(), Path(sys.base_prefix).resolve())
    project = folder.resolve()
    own = () if any(path.is_relative_to(project) for path in needed) else (project,)
    return (*own, home.resolve())
