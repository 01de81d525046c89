"""Agent CLI as runner: it works on a case in a workspace, and its output is scored.

Skill, instructions and prompt are artifacts. The agent sees only the case fields that a task
names, as a model would. The execution is journalled as one call, so a resumed run does not repeat
it. The spec models here serve runners and proposers.
"""

import shlex
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, Literal, cast

from pydantic import AfterValidator, BeforeValidator, Field

from kept.core.artifact import Candidate
from kept.core.case import Case
from kept.core.llm import Effort
from kept.core.ports import Scope
from kept.core.rollout import FREE, Failure, Job, Rollout, TraceItem
from kept.evaluators.runners.model import Form, request_for
from kept.models.providers import ModelConfig, Price, check_provider
from kept.sandbox.coding_agents.definition import Errand
from kept.sandbox.coding_agents.run import CLIS, Harness
from kept.spec.shared_sections import PriceSpec, model_block, open_address, reference
from kept.spec.validate import Finite, OneOrMore, Seconds, SpecModel, Text

_GONE = "removed"


@dataclass(frozen=True, slots=True)
class Outfit:
    """What an agent is sent out with, besides what it is told to do."""

    skill: tuple[str, ...] = ()
    """Artifacts."""
    instructions: tuple[str, ...] = ()
    """Artifacts."""
    files: Mapping[str, tuple[str, ...]] = field(default_factory=dict[str, tuple[str, ...]])
    """By case, paths in the task's folder."""
    folder: Path = field(default_factory=Path.cwd)


class AgentRunner:
    """Sends an agent for every pair."""

    def __init__(self, harness: Harness, form: Form, outfit: Outfit) -> None:
        self._harness = harness
        self._form = form
        self._outfit = outfit

    async def run(
        self, job: Job, candidate: Candidate, case: Case, scope: Scope
    ) -> Rollout | Failure:
        """Send it once."""
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
        # the scope has counted what it used
        return ran._replace(files={**given, **ran.files}, usage=FREE)

    async def _news(self, errand: Errand) -> Rollout | Failure:
        """What came of an errand, without the files that are as they were given.

        Those are at hand in the next sitting, too, and may be large.
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
        # without a field there is nothing but the prompt
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
"""Seconds an agent gets when nobody says otherwise."""

AgentName = Literal["codex_exec", "claude_code_exec", "opencode_exec"]


class AgentModelSpec(SpecModel):
    """The model that an agent uses: what a CLI can be told of it."""

    provider: Annotated[Text, AfterValidator(check_provider)]
    model: Text
    base_url: Annotated[Text | None, AfterValidator(open_address)] = None
    api_key: Annotated[Text | None, BeforeValidator(reference)] = None
    """`${NAME}`; by default the variable that the provider is known by."""
    effort: Effort | None = None
    price: PriceSpec | None = None
    """Where it is not, or not rightly, in the list of prices."""

    @property
    def name(self) -> str:
        """`provider/model`."""
        return f"{self.provider}/{self.model}"

    def config(self, folder: Path) -> ModelConfig:
        """The same for those who use it; paths begin in a folder."""
        price = None if self.price is None else Price(**self.price.model_dump())
        return ModelConfig(**self.model_dump(exclude={"price"}), price=price, folder=folder)


AgentModel = Annotated[AgentModelSpec, BeforeValidator(model_block)]


def _strangers(said: Mapping[str, Any]) -> Iterator[str]:
    """A model that a CLI cannot speak with, or a setting of it that it does not know."""
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
    """The agent that is given a task in a workspace of its own."""

    type: Literal["agent"] = "agent"
    agent: AgentName
    model: AgentModel
    skill: OneOrMore | None = None
    """Artifacts that are a skill; the first is its SKILL.md."""
    instructions: OneOrMore | None = None
    """Artifacts that the CLI always reads, put together in this order."""
    prompt: OneOrMore | None = None
    """Artifacts that say what is to be done, put together in this order."""
    input: OneOrMore | None = None
    """Fields of a case that the agent sees; what else a case holds may be the answer."""
    files: OneOrMore | None = None
    """Patterns of files that lie in its workspace; `{{field}}` stands for that of the case."""
    timeout_seconds: Seconds = TIMEOUT

    @classmethod
    def faults(cls, said: Mapping[str, Any]) -> Iterator[str]:
        """A model that fits, and something to do."""
        yield from _strangers(said)
        if {"prompt", "input"} <= said.keys() and said["prompt"] is None and said["input"] is None:
            yield "gives the agent nothing to do: name a `prompt`, or fields of a case in `input`"

    @property
    def artifacts(self) -> Mapping[str, tuple[str, ...]]:
        """The artifacts that it names, by key."""
        keys = ("skill", "instructions", "prompt")
        return {key: getattr(self, key) or () for key in keys}

    @property
    def lines(self) -> tuple[str, ...]:
        """The files that it is made of, as the words of a command line."""
        return tuple(shlex.quote(pattern) for pattern in self.files or ())

    @property
    def cwd(self) -> str:
        """Where those files are."""
        return "."


class AgentProposerSpec(SpecModel):
    """An agent that reads a brief and edits a copy of the files."""

    kind: Literal["agent"]
    agent: AgentName
    model: AgentModel
    prompt: Text | None = None
    """A file to stand for Kept's own prompt."""
    timeout_seconds: Seconds = TIMEOUT
    usd_per_call: Annotated[Finite, Field(ge=0)] | None = None
    """The most that one proposal may cost; needed where money is limited."""
    fields: OneOrMore | None = None
    """Of train cases; by default those that the runner's model or agent sees, so no answers."""

    @classmethod
    def faults(cls, said: Mapping[str, Any]) -> Iterator[str]:
        """A model that fits."""
        yield from _strangers(said)
