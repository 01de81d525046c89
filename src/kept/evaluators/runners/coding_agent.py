"""Agent CLI as runner: it works on a case in a workspace, and its output is scored.

Skill, instructions and prompt are artifacts. The agent sees only the case fields that a task
names, as a model would. The execution is journalled as one call, so a resumed run does not repeat
it. The spec models here serve runners and proposers.
"""

import re
import shlex
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import gettempdir
from typing import Annotated, Any, Literal, Protocol, cast

from pydantic import AfterValidator, BeforeValidator

from kept.core.artifact import Candidate
from kept.core.case import Case, Cases, fields_of, implicit_cases
from kept.core.llm import Effort
from kept.core.ports import Scope
from kept.core.rollout import FREE, Failure, Job, Rollout, TraceItem
from kept.evaluators.runners.model import Form, check_input, request_for
from kept.models.prices import rates_of
from kept.models.providers import ModelConfig, Price, check_provider, missing
from kept.sandbox.bwrap import can_be_seen
from kept.sandbox.capabilities import abilities
from kept.sandbox.coding_agents.definition import Errand, program_of
from kept.sandbox.coding_agents.run import CLIS, Harness
from kept.sandbox.command import Command
from kept.sandbox.workspace import MAX_OUTPUT
from kept.spec.components import BuildContext, CheckContext, Component, ModelNeed, Needs
from kept.spec.paths import find
from kept.spec.shared_sections import PriceSpec, model_block, open_address, reference
from kept.spec.source import Source
from kept.spec.validate import OneOrMore, Seconds, SpecModel, Text, said
from kept.spec.yaml import Loc

_GONE = "removed"
_FIELD = re.compile(r"\{\{\s*([\w-]+)\s*\}\}")


@dataclass(frozen=True, slots=True)
class Outfit:
    """Artifacts and files of an agent, besides its prompt."""

    skill: tuple[str, ...] = ()
    """Artifacts of the skill."""
    instructions: tuple[str, ...] = ()
    """Artifacts of the instructions."""
    files: Mapping[str, tuple[str, ...]] = field(default_factory=dict[str, tuple[str, ...]])
    """Paths in the task's folder, by case."""
    folder: Path = field(default_factory=Path.cwd)


class AgentRunner:
    """Runner that starts an agent CLI once for each candidate and case."""

    def __init__(self, harness: Harness, form: Form, outfit: Outfit) -> None:
        self._harness = harness
        self._form = form
        self._outfit = outfit

    async def run(
        self, job: Job, candidate: Candidate, case: Case, scope: Scope
    ) -> Rollout | Failure:
        """Run the agent once."""
        errand = self._errand(candidate, case)
        if isinstance(errand, Failure):
            return errand
        harness = self._harness
        request = {"agent": harness.cli.name, "model": harness.config.name, "job": list(job)}
        ran = await scope.call(request, Rollout, lambda: self._news(errand))
        if isinstance(ran, Failure):
            return ran
        gone = {name for item in ran.trace for name in cast("list[str]", item.data.get(_GONE, []))}
        given = {path: data for path, data in errand.files.items() if path not in gone}
        # the scope has already counted its usage
        return ran._replace(files={**given, **ran.files}, usage=FREE)

    async def _news(self, errand: Errand) -> Rollout | Failure:
        """Run an errand and drop unchanged files from the result.

        Unchanged files may be large, and a resumed session has them anyway.
        """
        ran = await self._harness.run(errand)
        if isinstance(ran, Failure):
            return ran
        news = {path: data for path, data in ran.files.items() if errand.files.get(path) != data}
        gone = [path for path in errand.files if path not in ran.files]
        told = (TraceItem("info", f"removed: {', '.join(gone)}", {_GONE: gone}),) if gone else ()
        return ran._replace(files=news, trace=(*ran.trace, *told))

    async def close(self) -> None:
        """Remove the scratch folder."""
        self._harness.scratch.close()

    def _errand(self, candidate: Candidate, case: Case) -> Errand | Failure:
        request = request_for(self._form, candidate, case)
        if isinstance(request, Failure):
            return request
        # without input fields the prompt is all
        said = [m.text for m in request.messages if self._form.input or m.role == "system"]
        outfit, texts = self._outfit, candidate.texts
        try:
            files = {path: self._file(path, candidate) for path in outfit.files.get(case.id, ())}
        except OSError as error:
            message = f"cannot read `{error.filename}`: {error.strerror}"
            return Failure("harness", "infrastructure", message)
        return Errand(
            prompt="\n\n".join(said),
            files=files,
            instructions="\n\n".join(texts[name].strip() for name in outfit.instructions),
            skill={name: texts[name] for name in outfit.skill},
        )

    def _file(self, path: str, candidate: Candidate) -> bytes:
        if path in candidate.texts:
            return candidate.texts[path].encode("utf-8", "surrogateescape")
        return (self._outfit.folder / path).read_bytes()


TIMEOUT = 600.0
"""Default time limit of an agent in seconds."""

AgentName = Literal["codex_exec", "claude_code_exec", "opencode_exec"]


class AgentModelSpec(SpecModel):
    """Model of an agent, with the settings that a CLI accepts."""

    provider: Annotated[Text, AfterValidator(check_provider)]
    model: Text
    base_url: Annotated[Text | None, AfterValidator(open_address)] = None
    api_key: Annotated[Text | None, BeforeValidator(reference)] = None
    """`${NAME}`; by default the provider's usual variable."""
    effort: Effort | None = None
    price: PriceSpec | None = None
    """Price, if the price list lacks it or is wrong."""

    @property
    def name(self) -> str:
        """`provider/model`."""
        return f"{self.provider}/{self.model}"

    def config(self, folder: Path) -> ModelConfig:
        """Convert to a `ModelConfig`; relative paths begin in `folder`."""
        price = None if self.price is None else Price(**self.price.model_dump())
        return ModelConfig(**self.model_dump(exclude={"price"}), price=price, folder=folder)


AgentModel = Annotated[AgentModelSpec, BeforeValidator(model_block)]


def misfits(said: Mapping[str, Any]) -> Iterator[str]:
    """Report a model or an effort that the CLI does not support."""
    cli, model = CLIS.get(said.get("agent") or ""), said.get("model")
    if cli is None or not isinstance(model, AgentModelSpec):
        return
    if model.provider not in cli.providers:
        known = ", ".join(cli.providers)
        yield f"`{cli.name}` cannot ask `{model.provider}`; it can ask {known}"
    if model.effort is not None and model.effort not in cli.efforts:
        known = ", ".join(cli.efforts) or "none"
        yield f"`{cli.name}` knows no `effort: {model.effort}`; it knows {known}"


class AgentRunnerSpec(SpecModel):
    """Agent CLI that works on a task in its own workspace."""

    type: Literal["agent"] = "agent"
    agent: AgentName
    model: AgentModel
    skill: OneOrMore | None = None
    """Artifacts of a skill; the first is its SKILL.md."""
    instructions: OneOrMore | None = None
    """Artifacts that the CLI always reads, joined in this order."""
    prompt: OneOrMore | None = None
    """Artifacts of the prompt, joined in this order."""
    input: OneOrMore | None = None
    """Case fields that the agent sees; others may hold the answer."""
    files: OneOrMore | None = None
    """Patterns of files in its workspace; `{{field}}` is replaced by the case's field."""
    timeout_seconds: Seconds = TIMEOUT

    @classmethod
    def faults(cls, said: Mapping[str, Any]) -> Iterator[str]:
        """Check that the model fits the CLI, and that there is something to do."""
        yield from misfits(said)
        if {"prompt", "input"} <= said.keys() and said["prompt"] is None and said["input"] is None:
            yield "gives the agent nothing to do: name a `prompt`, or fields of a case in `input`"

    @property
    def artifacts(self) -> Mapping[str, tuple[str, ...]]:
        """Artifacts that it names, by key."""
        keys = ("skill", "instructions", "prompt")
        return {key: getattr(self, key) or () for key in keys}


class AgentRunnerComponent(Component[AgentRunnerSpec, AgentRunner]):
    """Agent CLI that works on a task in its own workspace."""

    Spec = AgentRunnerSpec

    def check(self, spec: AgentRunnerSpec, context: CheckContext) -> None:
        """Report an agent that cannot be run here, and missing artifacts, fields and files."""
        check_agent(context, spec)
        texts = context.texts
        known = f"there are {', '.join(sorted(texts)[:5])}"
        for key, names in spec.artifacts.items():
            for name in names if texts else ():
                if name not in texts:
                    context.report(key, f"there is no artifact `{name}`", known)
        if texts and not any(spec.artifacts.values()) and not spec.files:
            message = "the agent is given no artifact, so that no change could make a difference"
            context.report((), message, "name it in `skill`, `instructions` or `prompt`")
        check_input(context, spec.input or ())
        context.given.update(given_files(context.source, spec, context.cases))

    def build(self, spec: AgentRunnerSpec, context: BuildContext) -> AgentRunner:
        """Build the runner with the CLI in its sandbox."""
        form = Form(spec.prompt or (), spec.input or ())
        outfit = Outfit(spec.skill or (), spec.instructions or (), context.given, context.folder)
        return AgentRunner(harness_of(spec, context, context.max_output), form, outfit)

    def needs(self, spec: AgentRunnerSpec) -> Needs:
        """Return the model, files, fields and time limit."""
        return Needs(
            models=(ModelNeed("target", spec.model, by_agent=spec.agent),),
            commands=tuple(shlex.quote(pattern) for pattern in spec.files or ()),
            case_fields=spec.input or (),
            worst_seconds=spec.timeout_seconds,
            worst_usd=None,
        )

    def warnings(self, spec: AgentRunnerSpec, context: BuildContext) -> Iterator[str]:
        """Warnings about the agent before a run."""
        return agent_warnings(spec, context.folder)


class AgentSpec(Protocol):
    """Keys that all agent specs share."""

    @property
    def agent(self) -> AgentName:
        """The CLI."""
        ...

    @property
    def model(self) -> AgentModelSpec:
        """The model that it uses."""
        ...

    @property
    def timeout_seconds(self) -> float:
        """Seconds for one task."""
        ...


def harness_of(
    spec: AgentSpec,
    context: BuildContext,
    most_output: int = MAX_OUTPUT,
    worst_usd: float | None = None,
) -> Harness:
    """Build the harness that runs an agent."""
    cli = CLIS[spec.agent]
    command = Command(cli.program, context.folder, spec.timeout_seconds)
    held = context.sandbox.agent(command, program_of(cli))
    config = spec.model.config(context.folder)
    return Harness(cli, config, held, context.scratch, most_output, worst_usd)


def check_agent(context: CheckContext, spec: AgentSpec) -> None:
    """Report what prevents an agent from running here: program, sandbox, network."""
    source, cli = context.source, CLIS[spec.agent]
    walls = said(source, ("sandbox", "walls"), "auto") != "off"
    program = program_of(cli)
    if program is None:
        message = f"there is no program `{cli.program}` on the PATH"
        context.report("agent", message, f"`{cli.install}` installs it")
    elif (
        walls
        and abilities().walls
        # beside the place where scratch folders are made
        and not all(can_be_seen(one, Path(gettempdir()).resolve()) for one in program.folders)
    ):
        message = f"`{program.path}` lies beside what no agent may see between walls"
        context.report("agent", message, f"`{cli.install}` installs it elsewhere")
    if walls and not (able := abilities()).walls:
        message = f"an agent runs commands, and nothing holds them here: {able.why_not}"
        hint = "install bubblewrap, or accept it with `sandbox.walls: off`"
        context.report("agent", message, hint)
    network = said(source, ("sandbox", "network"))
    if network in ("none", "loopback"):
        message = f"`{network}` would keep `{spec.agent}` from its model"
        hint = "leave it out, and agents alone have the network; or write `on`"
        source.report(("sandbox", "network"), message, hint)


def agent_warnings(spec: AgentSpec, folder: Path) -> Iterator[str]:
    """Warnings about an agent before a run."""
    config = spec.model.config(folder)
    if lack := missing(config):
        yield f"`{spec.agent}` cannot ask `{config.name}`: {lack}"
    if rates_of(config) is None:
        yield f"the price of `{config.name}` is not known: what it costs is not counted"


def given_files(
    source: Source, spec: AgentRunnerSpec, cases: Cases | None
) -> dict[str, tuple[str, ...]]:
    """Paths of each case's files in the task's folder; problems are reported."""
    if cases is None and said(source, ("cases",)) is not None:
        return {}  # reported already
    rows = (cases or implicit_cases()).by_id.values()
    hits: dict[str, tuple[str, ...]] = {}
    found: dict[str, tuple[str, ...]] = {}
    for case in rows if spec.files else ():
        names: list[str] = []
        for number, pattern in enumerate(spec.files or ()):
            loc = ("runner", "files", number)
            whole = _filled(source, loc, pattern, case)
            if whole is not None and whole not in hits:
                hits[whole] = tuple(_below(source, path) for path in _files(source, loc, whole))
            names += hits.get(whole or "", ())
        found[case.id] = tuple(dict.fromkeys(names))
    return found


def _filled(source: Source, loc: Loc, pattern: str, case: Case) -> str | None:
    """Fill a pattern with fields of a case; None, and a report, if the case lacks one."""
    data = fields_of(case)
    for name in _FIELD.findall(pattern):
        if not isinstance(data.get(name), str | int):
            source.report(loc, f"case `{case.id}` has no text or number in a field `{name}`")
            return None
    return _FIELD.sub(lambda hit: str(data[hit[1]]), pattern)


def _files(source: Source, loc: Loc, pattern: str) -> list[Path]:
    hits = find(source, loc, pattern)
    files = [path for path in hits if path.is_file()]
    if hits and not files:
        source.report(loc, f"`{pattern}` matches folders only", f"write `{pattern}/**`")
    outside = source.folder.resolve()
    for path in files:
        if not path.resolve().is_relative_to(outside):
            source.report(loc, f"`{_below(source, path)}` is a link that leaves the folder")
    return files


def _below(source: Source, path: Path) -> str:
    return path.relative_to(source.folder).as_posix()
