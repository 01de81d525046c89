"""Compiler from agent.yaml to a measuring plan, and hashes of its other inputs.

The hashes cover all that the measure depends on besides texts and cases.
"""

import hashlib
import os
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from kept.core.artifact import Artifact, Candidate, Rules
from kept.core.budget import Budget
from kept.core.case import SPLITS, Cases
from kept.core.event import SpecSettings
from kept.core.llm import PASSED, Message, ModelRequest
from kept.core.objective import Objective
from kept.core.plan import AGENT_CONFIG, Plan
from kept.core.ports import Model
from kept.core.rollout import Failure
from kept.core.schedules.round_robin import MEASURE, Turns
from kept.errors import SetupError
from kept.evaluators.metrics.code_grader import grader_warnings, problem_with_grader
from kept.evaluators.metrics.config import keyed, read_metrics
from kept.evaluators.metrics.evaluate import Means
from kept.evaluators.metrics.scorer import DialogueScorer
from kept.evaluators.runners.model import DialogueRunner
from kept.gates.fixed_cases import Sweep
from kept.models.client import connect
from kept.models.providers import ModelConfig
from kept.models.roles import connect_uncached, is_priced, probes_of
from kept.models.tool_loop import Agent
from kept.proposers.variants import SEED_ALONE
from kept.recipes.agent_config.cases import (
    Inputs,
    all_cases,
    all_metrics,
    metric_problems,
    metric_warnings,
)
from kept.recipes.agent_config.spec.case_files import FILE, OPTIMIZER
from kept.recipes.agent_config.spec.common import NEVER_ASKED, LlmSpec
from kept.recipes.agent_config.spec.config import NAMES as CONFIGS
from kept.recipes.agent_config.spec.config import hidden_settings, shown_settings
from kept.recipes.agent_config.spec.read import ParsedAgent, ReadAgent, parse_agent, read_agent
from kept.recipes.agent_config.tools import Toolbox, tool_models, tool_problems, tool_warnings
from kept.recipes.base import Compiled
from kept.recipes.evaluate.compile import as_sweep
from kept.recipes.evaluate.request import Evaluation, Wanted
from kept.recipes.task.make_coding_agent import digest, hash_of
from kept.recipes.task.prompts import metric_prompt_files, metric_prompts
from kept.spec.locate.tree import locate
from kept.spec.validate import said
from kept.spec.yaml import Loc

MAX_FILES = 2000
"""Number of files of a folder that are hashed; of further ones only the count matters."""


def depends_on(read: ReadAgent) -> dict[str, str]:
    """Hash of each file that scores depend on, by a name for the user."""
    folder = read.place.folder
    found = {"config": hash_of(repr(read.place.config.data))}
    for name in dict.fromkeys(_named(read)):
        path = folder / name
        found[f"`{name}`"] = _tree(path) if path.is_dir() else digest(path)
    return found


def named_files(read: ReadAgent) -> tuple[str, ...]:
    """All files and folders that an agent needs besides its agent.yaml, by relative path."""
    folder = read.place.folder
    found = [*_named(read), *(name for name in read.agent.texts if name != read.place.path.name)]
    found += CONFIGS
    for key in (FILE, *((*OPTIMIZER, f"{split}_cases_file") for split in SPLITS)):
        name = said(read.source, key)
        found += [name] if isinstance(name, str) else []
    for tool in read.agent.spec.tools:
        found += [file.path for file in tool.files() if not file.decides]
        # a server runs in the agent's folder, and its arguments may be paths there
        found += [word for word in tool.words if (folder / word).exists()]
    for _, metric in all_metrics(read):
        if metric.function:
            top = metric.function.partition(":")[0].partition(".")[0]
            found += [top, f"{top}.py"]
    return tuple(dict.fromkeys(found))


def _named(read: ReadAgent) -> Iterator[str]:
    for tool in read.agent.spec.tools:
        yield from (file.path for file in tool.files() if file.decides)
    for metric in read.agent.spec.metrics:
        if metric.function:
            yield metric.function.partition(":")[0].replace(".", "/") + ".py"
    yield from metric_prompt_files(read.source).values()
    for case in read.cases:
        for turn in case.exchanges:
            yield from (file.path for file in turn.files if file.path)


def _tree(folder: Path) -> str:
    """Hash of all files of a folder."""
    whole = hashlib.sha256()
    paths = sorted(Path(inner, name) for inner, _, names in os.walk(folder) for name in names)
    for path in paths[:MAX_FILES]:
        whole.update(f"{path.relative_to(folder)}\0{digest(path)}\0".encode("utf-8", "replace"))
    return f"{len(paths)} files {whole.hexdigest()[:16]}"


WORKERS = 8
"""Default number of concurrent cases."""

PATIENCE = 10
"""Model calls of maximal length before an exchange times out."""

WAITS = 120.0
"""Additional seconds for retries, so that an outage is reported as one."""


def compile_agent(
    path: Path,
    wanted: Wanted,
    overrides: Sequence[str] = (),
    *,
    workers: int | None = None,
    force: bool = False,
    strict: bool = False,
) -> Compiled:
    """Build the measuring plan of an agent; raises `SpecError` with all problems.

    By default an invalid row of a case file becomes a case that cannot run. With `strict` it is a
    problem; nothing is run then, so an API key that the agent does not use may be missing.
    """
    read = read_agent(path, overrides, lenient=not strict)
    check_agent(read, runs=not strict)
    plan = plan_of(read, wanted, overrides, force=force)
    spec = read.agent.spec
    at_once = workers or spec.execution.parallel_test_cases or WORKERS
    plan = replace(plan, workers=at_once)
    asked = Evaluation(of=AGENT_CONFIG, wanted=wanted)
    plan = as_sweep(plan, asked, spec.name, _about(read))
    return Compiled(plan, agent_warnings(read))


def agent_warnings(read: ReadAgent) -> tuple[str, ...]:
    """Warnings about an agent before a run."""
    folder = read.place.folder
    tools = tool_warnings(read.agent.spec, folder)
    metrics = (*metric_warnings(read), *grader_warnings(_graders(read)))
    configs = {llm.config(folder).name: llm.config(folder) for _, llm in models_of(read)}
    unpriced = (
        f"the price of `{name}` is not known: what it costs is not counted"
        for name, config in configs.items()
        if not is_priced(config)
    )
    warnings = (*read.warnings, *tools, *metrics, *unpriced)
    return tuple(dict.fromkeys(warnings))


def plan_of(
    read: ReadAgent,
    wanted: Wanted,
    overrides: Sequence[str] = (),
    *,
    force: bool = False,
    needed: Collection[str] | None = None,
) -> Plan:
    """Plan of an agent and its cases; a case without all metrics in `needed` has no score."""
    agent, folder = read.agent, read.place.folder
    spec = agent.spec
    seed = Candidate(agent.texts)
    toolbox = Toolbox(folder, force=force)
    # the timeout of a case allows for its longest conversation, with retries
    turns = max((len(case.exchanges) for case in read.cases), default=1)
    timeout = wanted.timeout or turns * PATIENCE * spec.execution.llm_timeout + WAITS
    candidates, inputs = Agents(read, toolbox), Inputs(folder, read.cases, read.broken)
    return Plan(
        recipe="agent",
        seed=seed,
        rules=Rules({name: Artifact(name) for name in seed.texts}),
        cases=Cases(holdout=all_cases(read.cases, read.broken)),
        runner=DialogueRunner(candidates.of, inputs.of, toolbox.close, timeout),
        scorer=_scorer(read, needed),
        objective=Objective(PASSED, "maximize", (0.0, 1.0)),
        proposers=(SEED_ALONE,),
        schedule=Turns(MEASURE, 1),
        gate=Sweep(),
        budget=Budget(),
        locate=locate,
        inputs=depends_on(read),
        spec=SpecSettings(
            path=str(read.place.path.resolve()),
            overrides=tuple(shown_settings(overrides)),
            hidden=tuple(hidden_settings(overrides)),
            id=spec.name,
            source=str(folder.resolve()),
        ),
        worst_seconds=timeout,
        probes=probes_of(llm.config(folder) for _, llm in models_of(read)),
    )


class Agents:
    """Agents of candidates; the last 64 are cached, as their cases run in a row."""

    def __init__(self, read: ReadAgent, toolbox: Toolbox) -> None:
        self._place = read.place
        self._first = read.agent
        self._toolbox = toolbox
        self._models: dict[ModelConfig, Model] = {}
        self._known: dict[str, Agent] = {}

    async def of(self, candidate: Candidate) -> Agent | Failure:
        """Agent of a candidate, or the failure that prevents it."""
        if candidate.id not in self._known:
            agent = await self._made(candidate)
            if isinstance(agent, Failure):
                return agent
            while len(self._known) > 64:
                del self._known[next(iter(self._known))]
            self._known[candidate.id] = agent
        return self._known[candidate.id]

    async def _made(self, candidate: Candidate) -> Agent | Failure:
        parsed = self._first
        if candidate.texts != parsed.texts:
            again = parse_agent(self._place, candidate.texts)
            if isinstance(again, tuple):
                return Failure("crash", "candidate", "; ".join(map(str, again)))
            parsed = again
        tools = await self._toolbox.tools(parsed)
        if isinstance(tools, Failure):
            return tools
        config = parsed.model_config(self._place.folder)
        if config not in self._models:
            self._models[config] = connect_uncached(config)
        request = request_of(parsed)
        return Agent(self._models[config], request, tools, parsed.spec.max_turns)


def request_of(agent: ParsedAgent) -> ModelRequest:
    """Fields shared by all requests of an agent."""
    model = agent.spec.model
    return ModelRequest(
        (Message("system", agent.instructions.text),),
        schema=agent.response_format or {},
        temperature=model.temperature,
        top_p=model.top_p,
        max_tokens=model.max_tokens,
        effort=agent.spec.effort,
    )


def _scorer(read: ReadAgent, needed: Collection[str] | None) -> DialogueScorer:
    spec, folder = read.agent.spec, read.place.folder
    metrics = read_metrics([metric.model_dump() for metric in spec.metrics])
    judges: dict[ModelConfig, Model] = {}

    def judge_of(said: Mapping[str, object] | None) -> Model | None:
        shared = spec.evaluations.model if spec.evaluations else None
        llm = LlmSpec.model_validate(said) if said else shared or spec.model
        config = llm.config(folder, timeout=spec.execution.llm_timeout)
        if config not in judges:
            judges[config] = connect_uncached(config)
        return judges[config]

    prompts = metric_prompts(read.source)
    means = Means(judge_of, folder, spec.execution.llm_timeout, prompts)
    return DialogueScorer(metrics, means, needed)


def check_agent(read: ReadAgent, *, cases: bool = True, runs: bool = True) -> None:
    """Report problems beyond the schema: models, tools, graders, files of cases.

    Without `cases` their problems were reported already. Without `runs` a missing key is no problem
    for an agent whose `auth_provider` uses none; a warning mentions it.
    """
    source, spec, folder = read.source, read.agent.spec, read.place.folder
    if cases and not read.cases:
        hint = "give `test_cases`, `test_cases_file`, or the case files of `optimizer`"
        source.report(("test_cases",), "there are no test cases", hint)
    # report everything before the final check, so that the user sees all problems at once
    for number, problem, hint in tool_problems(spec, folder):
        source.report(("tools", number), problem, hint)
    for loc, llm in models_of(read):
        if not runs and llm.auth_provider in NEVER_ASKED and llm.api_key is None:
            continue
        try:
            connect(llm.config(folder))
        except SetupError as error:
            source.report(loc, error.message, error.hint)
    for loc, problem in metric_problems(read):
        source.report(loc, problem)
    for grader, loc in _graders(read).items():
        if problem := problem_with_grader(grader, folder):
            source.report(loc, problem)
    metric_prompts(source)
    for name, problem in Inputs(folder, read.cases).problems():
        source.report(("test_cases",), f"case `{name}`: {problem}")
    source.check()


def models_of(read: ReadAgent) -> Iterator[tuple[Loc, LlmSpec]]:
    """Models that are asked, each with its location."""
    spec = read.agent.spec
    yield ("model",), spec.model
    for number, metric in enumerate(spec.metrics):
        if metric.enabled and metric.is_judged:
            judge = spec.judge_of(metric)
            if judge is not spec.model:
                yield ("evaluations", "metrics", number, "model"), judge
    yield from tool_models(spec, read.place.folder)


def _graders(read: ReadAgent) -> dict[str, Loc]:
    """Grader functions, each with the first location that names it."""
    found: dict[str, Loc] = {}
    for loc, metric in all_metrics(read):
        if metric.function and metric.enabled:
            found.setdefault(metric.function, (*loc, "grader") if len(loc) > 1 else loc)
    return found


def _about(read: ReadAgent) -> dict[str, Any]:
    """Description of the agent for the report."""
    spec = read.agent.spec
    metrics = keyed(read_metrics([metric.model_dump() for metric in spec.metrics]))
    return {
        "model": spec.model.full_name,
        "temperature": spec.model.temperature,
        "prompt_version": read.agent.instructions.version,
        "metrics": [key for key, _ in metrics],
        "tools": [tool.name for tool in spec.tools],
        "prompts": list(metric_prompt_files(read.source).values()),
    }
