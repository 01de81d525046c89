"""What a task may say about how a candidate is executed.

By a command, by asking a model, or by an agent; one that does not say which is known by what it
names: an `agent`, or else a `model` or a `prompt`.
"""

import re
import shlex
from collections.abc import Iterator, Mapping
from typing import Annotated, Any, Literal, cast

from pydantic import AfterValidator, Discriminator, Field, Tag

from kept.evaluators.runners.agents import AgentRunnerSpec
from kept.sandbox.command import TIMEOUT
from kept.spec.base import Model, OneOrMore, Seconds, Text, no_nul
from kept.spec.models import RoleSpec

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


def _env(variables: dict[str, str]) -> dict[str, str]:
    odd = [f"`{name}`" for name in variables if not _NAME.fullmatch(name)]
    ours = [f"`{name}`" for name in variables if name.startswith("KEPT_")]
    told = [f"{name} is not the name of a variable" for name in odd]
    told += [f"{name} is not yours to set: names with KEPT_ are Kept's" for name in ours]
    if told:
        raise ValueError("; ".join(told))
    return variables


class CommandRunnerSpec(Model):
    """The command that executes a candidate."""

    type: Literal["command"] = "command"
    command: Text
    cwd: Text = "."
    timeout_seconds: Seconds = TIMEOUT
    env: Annotated[dict[str, Annotated[str, AfterValidator(no_nul)]], AfterValidator(_env)] = Field(
        default_factory=dict[str, str]
    )
    retry_exit: Annotated[int, Field(ge=1, le=255)] | None = None
    """The exit code by which the command says that an outage, not the candidate, is to blame."""

    @property
    def lines(self) -> tuple[str, ...]:
        """Command lines, whose words may name files."""
        return (self.command,)


class ModelRunnerSpec(Model):
    """The model that is asked, and what about."""

    type: Literal["model"] = "model"
    model: RoleSpec | None = None
    """`provider/name` or a block; by default the target of `models`."""
    prompt: OneOrMore
    """Artifacts, in the order in which they are put together."""
    input: OneOrMore
    """Fields of a case that the model sees; what else a case holds may be the answer."""
    schema_: Annotated[Text | None, Field(alias="schema")] = None
    """A file with the JSON schema of an answer."""
    settings: Text | None = None
    """An artifact with `temperature`, `top_p` and `max_tokens`, of which each may be missing."""
    template: Literal["fields", "nunjucks"] = "fields"
    """How a prompt is filled in: `{{field}}` alone, or as promptfoo does."""
    timeout_seconds: Seconds = TIMEOUT

    @classmethod
    def faults(cls, said: Mapping[str, Any]) -> Iterator[str]:
        """One prompt for one template."""
        if said.get("template") == "nunjucks" and len(said.get("prompt", ())) > 1:
            yield "`template: nunjucks` takes one `prompt`, which is the whole request"

    @property
    def lines(self) -> tuple[str, ...]:
        """The files that it is made of, as the words of a command line."""
        return (shlex.quote(self.schema_),) if self.schema_ else ()

    @property
    def cwd(self) -> str:
        """Where those files are."""
        return "."


def _kind(value: object) -> object:
    """What a runner says that it is, or else what it names."""
    if isinstance(value, Mapping):
        given = cast("Mapping[str, object]", value)
        asks = "model" if "model" in given or "prompt" in given else "command"
        said = given.get("type", "agent" if "agent" in given else asks)
        return said if isinstance(said, str) else str(said)
    return getattr(value, "type", None)


RunnerSpec = Annotated[
    Annotated[CommandRunnerSpec, Tag("command")]
    | Annotated[ModelRunnerSpec, Tag("model")]
    | Annotated[AgentRunnerSpec, Tag("agent")],
    Discriminator(_kind),
]
