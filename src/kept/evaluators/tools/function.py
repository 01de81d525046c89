"""User functions and prompts as tools.

A function runs in reusable processes, started on demand, so its imports, crashes and hangs are
isolated. In the sandbox it cannot write to the user's files. The model receives the error of a
failed call and may retry. A function that cannot be imported is a harness failure.

A prompt as tool fills in a template and returns the answer of a model.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from kept.core.llm import Message, ModelRequest, ToolAnswer, ToolOffer
from kept.core.ports import Model, Scope
from kept.core.rollout import Failure
from kept.core.text import count
from kept.errors import SetupError
from kept.evaluators.tools.journalled_call import MOST_TEXT, cut, journalled, merged, plain, unsound
from kept.models.ask import ask
from kept.models.structured_output import problem_with
from kept.sandbox.capabilities import abilities
from kept.sandbox.command import Network
from kept.sandbox.worker import Child, ChildEnded, Room, explained, start_confined
from kept.sandbox.worker_pool import (
    MAX_WAITING,
    WORKER,
    CallRaised,
    CannotServe,
    WorkerPool,
    worker_command,
)
from kept.settings import processors

_HANDLER = Path(__file__).parents[1] / "workers" / "tool_handler.py"


@dataclass(frozen=True, slots=True)
class FunctionConfig:
    """Function by file and name, with its description for the model."""

    name: str
    file: str
    """Path below the folder, or an absolute one."""
    function: str
    folder: Path
    """Working directory and import path of the function."""
    description: str = ""
    """Description for the model; empty to use the docstring."""
    parameters: Mapping[str, Mapping[str, object]] | None = None
    """Schemas of parameters by name; the rest comes from the signature."""
    timeout: float = 60.0
    """Seconds for one call."""
    network: Network = "on"
    passed_on: tuple[str, ...] = ()
    """Further variables of Kept's environment that it may see."""


class FunctionTools:
    """Worker processes of one function, for a whole run."""

    def __init__(self, config: FunctionConfig) -> None:
        self._config = config
        self._pool = WorkerPool(self._start, most=max(MAX_WAITING, processors()))
        self._failed: Failure | None = None
        """Failure of the import of the function; None if there was none."""

    @property
    def warnings(self) -> tuple[str, ...]:
        """Warning if the function cannot be confined on this machine."""
        able = abilities()
        if able.walls:
            return ()
        words = f"nothing keeps the tool `{self._config.name}` from writing to your files"
        return (f"{words}: {able.why_not}",)

    async def tools(self, description: str = "") -> "tuple[FunctionTool, ...] | Failure":
        """Return the tool, with the description of a candidate if it has one."""
        config = self._config
        # checked before the conversation, so that a missing function does not cut one off
        if self._failed is not None:
            return self._failed
        try:
            told = await self._pool.about()
        except (ChildEnded, OSError) as error:
            failure = self._not_started(error)
            self._failed = None if failure.retryable else failure
            return failure
        parameters = merged(config.parameters or {}, told["parameters"])
        if isinstance(parameters, str):
            return self._broken(parameters)
        words = description or config.description or told["description"]
        return (FunctionTool(self, ToolOffer(config.name, words, parameters)),)

    async def call(self, arguments: Mapping[str, object]) -> ToolAnswer | Failure:
        """Call the function once in a worker process."""
        config = self._config
        async with self._pool.turns.take():
            try:
                child = await self._pool.take()
            except (ChildEnded, OSError) as error:
                return self._not_started(error)
            try:
                result = await self._pool.ask_one(child, arguments, config.timeout)
                return ToolAnswer(_clean(str(result)))
            except CallRaised as error:
                return ToolAnswer(_clean(explained(cut(str(error)))), wrong=True)
            except TimeoutError:
                seconds = count(config.timeout, "second")
                return ToolAnswer(f"`{config.name}` did not answer within {seconds}", wrong=True)
            except ChildEnded as error:
                return ToolAnswer(f"the process of `{config.name}` {error}", wrong=True)
            except (ValueError, TypeError):
                return ToolAnswer(f"`{config.name}` answered with what is no answer", wrong=True)
            finally:
                self._pool.give_back(child)

    async def close(self) -> None:
        """End the processes."""
        self._pool.close()

    def _start(self) -> Child:
        config = self._config
        folder = config.folder.resolve()
        file = (folder / config.file).resolve()
        top = folder / Path(config.file).parts[0]
        if top.is_symlink():
            # a link to the agent's own folder: the function runs there, as it does for the agent
            folder = top.resolve().parent
        argv = worker_command(_HANDLER, str(folder), str(file), config.function, str(MOST_TEXT))
        seen = (file.parent, _HANDLER, WORKER)
        return start_confined(argv, Room(folder, seen, config.network, config.passed_on))

    def _not_started(self, error: ChildEnded | OSError) -> Failure:
        if isinstance(error, OSError):
            message = f"cannot start a process for `{self._config.name}`: {error.strerror}"
            return Failure("limit", "infrastructure", message)
        if isinstance(error, CannotServe):
            return self._broken(error.problem)
        return self._broken(f"its process {error}", error.detail)

    def _broken(self, why: str, detail: str = "") -> Failure:
        config = self._config
        message = f"the tool `{config.name}` (`{config.function}` of {config.file}): {why}"
        return Failure("harness", "infrastructure", message, detail)


@dataclass(frozen=True, slots=True)
class FunctionTool:
    """Tool that calls the function with a model's arguments."""

    _functions: FunctionTools
    offer: ToolOffer

    async def use(self, arguments: Mapping[str, object], scope: Scope) -> ToolAnswer | Failure:
        """Call the function once if the arguments fit its schema."""
        request = {"tool": self.offer.name, "arguments": dict(arguments)}
        return await journalled(scope, request, lambda: self._call(arguments))

    async def _call(self, arguments: Mapping[str, object]) -> ToolAnswer | Failure:
        if wrong := problem_with(dict(arguments), self.offer.parameters):
            return ToolAnswer(f"the arguments are wrong, {wrong}", wrong=True)
        return await self._functions.call(arguments)


def _clean(text: str) -> str:
    """Replace lone surrogates, which no provider accepts."""
    return text.encode("utf-8", "replace").decode()


_BLANK = re.compile(r"\{\{\s*(\w+)\s*\}\}")


@dataclass(frozen=True, slots=True)
class PromptConfig:
    """Prompt as a tool, with its description for the model."""

    name: str
    template: str
    """Text with `{{name}}` for each parameter."""
    description: str = ""
    parameters: Mapping[str, Mapping[str, object]] | None = None
    """Schemas of parameters by name; a parameter without one is a text."""
    temperature: float | None = None
    max_tokens: int | None = None


@dataclass(frozen=True, slots=True)
class PromptTool:
    """Tool that asks a model; question and answer are journalled like any other."""

    config: PromptConfig
    model: Model

    def __post_init__(self) -> None:
        if wrong := unsound(self.offer.parameters):
            raise SetupError(f"the tool `{self.config.name}`: {wrong}")

    @property
    def offer(self) -> ToolOffer:
        """Offer of the tool to a model."""
        config = self.config
        said = config.parameters or {}
        names = tuple(dict.fromkeys((*_BLANK.findall(config.template), *said)))
        return ToolOffer(config.name, config.description, plain(said, names))

    async def use(self, arguments: Mapping[str, object], scope: Scope) -> ToolAnswer | Failure:
        """Ask the model once."""
        if wrong := problem_with(dict(arguments), self.offer.parameters):
            return ToolAnswer(f"the arguments are wrong, {wrong}", wrong=True)
        config = self.config
        message = Message("user", self._filled(arguments))
        request = ModelRequest(
            (message,), temperature=config.temperature, max_tokens=config.max_tokens
        )
        reply = await ask(scope, self.model, request)
        if isinstance(reply, Failure):
            mends = reply.blame == "candidate"
            return ToolAnswer(cut(reply.message), wrong=True) if mends else reply
        if reply.finish == "refused":
            return ToolAnswer(cut(reply.text) or "it would not answer that", wrong=True)
        return ToolAnswer(cut(reply.text), usage=reply.usage, seconds=reply.seconds)

    def _filled(self, arguments: Mapping[str, object]) -> str:
        said = self.config.parameters or {}

        def value(match: re.Match[str]) -> str:
            name = match[1]
            return str(arguments.get(name, said.get(name, {}).get("default", "")))

        # values are not expanded again, whatever they hold
        return _BLANK.sub(value, self.config.template)
