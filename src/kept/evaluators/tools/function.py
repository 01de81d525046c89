"""User functions and prompts as tools.

A function runs in reusable processes, started on demand, so its imports, crashes and hangs are
isolated. In the sandbox it cannot write to the user's files. The model receives the error of a
failed call and may retry. A function that cannot be imported is a harness failure.

A prompt as tool fills in a template and returns the answer of a model.
"""

import json
import re
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kept.core.llm import Message, ModelRequest, ToolAnswer, ToolOffer
from kept.core.parsing import parse_json
from kept.core.ports import Model, Scope
from kept.core.rollout import Failure
from kept.core.text import count
from kept.errors import SetupError
from kept.evaluators.tools.journalled_call import MOST_TEXT, cut, journalled, merged, plain, unsound
from kept.models.ask import ask
from kept.models.structured_output import problem_with
from kept.sandbox.capabilities import abilities
from kept.sandbox.command import Network
from kept.sandbox.process import Turns
from kept.sandbox.worker import Child, ChildEnded, Room, explained, start_confined
from kept.settings import processors

MOST_PROCESSES = 8
"""At once; more only where there are as many processors. Functions may wait for a service."""

START = 60.0
"""Seconds that a process gets to import the function."""

_SCRIPT = Path(__file__).parents[1] / "workers" / "tool_main.py"


@dataclass(frozen=True, slots=True)
class FunctionConfig:
    """A function by its file and its name, and what a model is told of it."""

    name: str
    file: str
    """Below the folder, or a whole path."""
    function: str
    folder: Path
    """Where it runs, and where its imports are looked for: what it belongs to."""
    description: str = ""
    """Empty for what its docstring says."""
    parameters: Mapping[str, Mapping[str, object]] | None = None
    """What is said of its parameters, by name; the rest is what its signature tells."""
    timeout: float = 60.0
    """Seconds for one call."""
    network: Network = "on"
    passed_on: tuple[str, ...] = ()
    """Further variables of our environment that it may see."""


class FunctionTools:
    """The processes of one function, for a whole run."""

    def __init__(self, config: FunctionConfig) -> None:
        self._config = config
        self._idle: list[Child] = []
        self._turns = Turns(max(MOST_PROCESSES, processors()))
        self._first = Turns(1)
        self._told: Mapping[str, Any] | Failure | None = None
        """What its first process said of it, or why it could not be imported."""

    @property
    def warnings(self) -> tuple[str, ...]:
        """What does not hold on this machine."""
        able = abilities()
        if able.walls:
            return ()
        words = f"nothing keeps the tool `{self._config.name}` from writing to your files"
        return (f"{words}: {able.why_not}",)

    async def tools(self, description: str = "") -> "tuple[FunctionTool, ...] | Failure":
        """The one tool, with a description of a candidate's own if it has one."""
        config = self._config
        # before it is used, so that one that is not there ends no conversation in the middle
        async with self._first.take():
            if self._told is None:
                child = await self._start()
                if isinstance(child, Child):
                    self._idle.append(child)
                elif child.retryable:
                    return child
                else:
                    self._told = child
            told = self._told
        if isinstance(told, Failure):
            return told
        assert told is not None, "a process that was started has said what it serves"
        parameters = merged(config.parameters or {}, told["parameters"])
        if isinstance(parameters, str):
            return self._broken(parameters)
        words = description or config.description or told["description"]
        return (FunctionTool(self, ToolOffer(config.name, words, parameters)),)

    async def call(self, arguments: Mapping[str, object]) -> ToolAnswer | Failure:
        """Call it once."""
        config = self._config
        async with self._turns.take():
            child = self._rested() or await self._start()
            if isinstance(child, Failure):
                return child
            try:
                line = json.dumps(arguments).encode() + b"\n"
                reply: dict[str, object] = dict(parse_json(await child.ask(line, config.timeout)))
            except TimeoutError:
                seconds = count(config.timeout, "second")
                return ToolAnswer(f"`{config.name}` did not answer within {seconds}", wrong=True)
            except ChildEnded as error:
                return ToolAnswer(f"the process of `{config.name}` {error}", wrong=True)
            except (ValueError, TypeError):
                child.end()
                return ToolAnswer(f"`{config.name}` answered with what is no answer", wrong=True)
            self._idle.append(child)
        if "error" in reply:
            return ToolAnswer(_clean(explained(cut(str(reply["error"])))), wrong=True)
        return ToolAnswer(_clean(str(reply.get("result"))))

    async def close(self) -> None:
        """End the processes."""
        while self._idle:
            self._idle.pop().end()

    def _rested(self) -> Child | None:
        """A process that has nothing to do; not one that ended meanwhile."""
        while self._idle:
            child = self._idle.pop()
            if child.alive:
                return child
            child.end()
        return None

    async def _start(self) -> Child | Failure:
        """A process that has the function imported, or why there is none."""
        config = self._config
        folder = config.folder.resolve()
        file = (folder / config.file).resolve()
        top = folder / Path(config.file).parts[0]
        if top.is_symlink():
            # a link to the agent's own folder: the function runs there, as it does for the agent
            folder = top.resolve().parent
        # -B: nothing is written beside the user's modules
        argv = [sys.executable, "-B", "-P", str(_SCRIPT), str(folder), str(file)]
        argv += [config.function, str(MOST_TEXT)]
        room = Room(folder, (file.parent, _SCRIPT), config.network, config.passed_on)
        try:
            child = start_confined(argv, room)
        except OSError as error:
            message = f"cannot start a process for `{config.name}`: {error.strerror}"
            return Failure("limit", "infrastructure", message)
        try:
            hello = json.loads(await child.ask(None, START))
        except TimeoutError:
            return self._broken(f"importing it takes more than {count(START, 'second')}")
        except ChildEnded as error:
            return self._broken(f"its process {error}", error.detail)
        if "problem" in hello:
            child.end()
            return self._broken(hello["problem"])
        self._told = hello
        return child

    def _broken(self, why: str, detail: str = "") -> Failure:
        config = self._config
        message = f"the tool `{config.name}` (`{config.function}` of {config.file}): {why}"
        return Failure("harness", "infrastructure", message, detail)


@dataclass(frozen=True, slots=True)
class FunctionTool:
    """Calls the function with what a model gives for it."""

    _functions: FunctionTools
    offer: ToolOffer

    async def use(self, arguments: Mapping[str, object], scope: Scope) -> ToolAnswer | Failure:
        """Call it once, if the arguments are what it takes."""
        request = {"tool": self.offer.name, "arguments": dict(arguments)}
        return await journalled(scope, request, lambda: self._call(arguments))

    async def _call(self, arguments: Mapping[str, object]) -> ToolAnswer | Failure:
        if wrong := problem_with(dict(arguments), self.offer.parameters):
            return ToolAnswer(f"the arguments are wrong, {wrong}", wrong=True)
        return await self._functions.call(arguments)


def _clean(text: str) -> str:
    """A text without halves of characters, which no provider takes."""
    return text.encode("utf-8", "replace").decode()


_BLANK = re.compile(r"\{\{\s*(\w+)\s*\}\}")


@dataclass(frozen=True, slots=True)
class PromptConfig:
    """What is asked, and what a model is told of it."""

    name: str
    template: str
    """With `{{name}}` where a parameter goes."""
    description: str = ""
    parameters: Mapping[str, Mapping[str, object]] | None = None
    """What is said of its parameters, by name; where nothing is, they are texts."""
    temperature: float | None = None
    max_tokens: int | None = None


@dataclass(frozen=True, slots=True)
class PromptTool:
    """Asks a model. What it asks and what it is answered is journalled as any question is."""

    config: PromptConfig
    model: Model

    def __post_init__(self) -> None:
        if wrong := unsound(self.offer.parameters):
            raise SetupError(f"the tool `{self.config.name}`: {wrong}")

    @property
    def offer(self) -> ToolOffer:
        """What a model is told of it."""
        config = self.config
        said = config.parameters or {}
        names = tuple(dict.fromkeys((*_BLANK.findall(config.template), *said)))
        return ToolOffer(config.name, config.description, plain(said, names))

    async def use(self, arguments: Mapping[str, object], scope: Scope) -> ToolAnswer | Failure:
        """Ask once."""
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

        # what is filled in is not looked at again, whatever it holds
        return _BLANK.sub(value, self.config.template)
