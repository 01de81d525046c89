"""What a task may say about agent CLIs, as runners and as proposers."""

import shlex
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BeforeValidator, Field

from kept.core.model import Effort
from kept.models.config import ModelConfig, Price
from kept.models.providers import check_provider
from kept.sandbox.coding_agents.harness import CLIS
from kept.spec.base import Finite, Model, OneOrMore, Seconds, Text
from kept.spec.models import PriceSpec, model_block, open_address, reference

TIMEOUT = 600.0
"""Seconds an agent gets when nobody says otherwise."""

AgentName = Literal["codex_exec", "claude_code_exec", "opencode_exec"]


class AgentModelSpec(Model):
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


class AgentRunnerSpec(Model):
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


class AgentProposerSpec(Model):
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
