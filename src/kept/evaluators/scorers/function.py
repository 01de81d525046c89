"""A function of the user as scorer.

It runs in processes of its own, started when needed and used again, so that its imports, its
crashes and its hanging are not ours. Like every scorer it is part of the harness: when it fails, no
candidate is to blame.
"""

import base64
import json
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal, cast

from pydantic import AfterValidator

from kept.core.artifact import Candidate
from kept.core.case import Case
from kept.core.parsing import parse_json
from kept.core.ports import Scope
from kept.core.rollout import Failure, Job, Rollout
from kept.core.score import Score
from kept.core.text import count
from kept.evaluators.scorers.command import Fields, read_score
from kept.sandbox.command import TIMEOUT, Command
from kept.sandbox.worker import Child, ChildEnded, Room, start_apart, start_confined
from kept.settings import child_environment
from kept.spec.components import BuildContext, CheckContext, Component, Needs
from kept.spec.shared_sections import SandboxSpec
from kept.spec.validate import Seconds, SpecModel, Text, section

_SCRIPT = Path(__file__).parents[1] / "workers" / "function_main.py"


@dataclass(frozen=True, slots=True)
class Function:
    """A function by its name, and where it is found."""

    target: str
    """`module:function`."""
    folder: Path
    """On the path when the module is imported, and the folder the function runs in."""
    timeout: float = TIMEOUT
    """Seconds for one call; the first one includes the import."""
    passed_on: tuple[str, ...] = ()
    """Further variables of our environment that it may see."""
    script: Path = _SCRIPT
    """The far end, which calls it."""
    walls: bool = False
    """Whether it writes to no file of ours, where this machine can build walls."""

    def start(self) -> Child:
        """A process that has the function imported, or says why it cannot."""
        # -B: nothing is written beside the user's modules, least of all by a check
        argv = [sys.executable, "-B", "-P", str(self.script), str(self.folder), self.target]
        if self.walls:
            # a function may ask a service
            room = Room(self.folder, (_SCRIPT.parent,), "on", self.passed_on)
            return start_confined(argv, room)
        return start_apart(argv, self.folder, child_environment({}, self.passed_on))


class PythonScorer:
    """Calls a function for every rollout, with those of the arguments on offer that it takes.

    `candidate`: texts by path; `case`: its data; `output`: what the runner printed; `files`: bytes
    by path, what the runner left; `metrics`: what the runner measured. It returns a number, or what
    a command would print as JSON.
    """

    def __init__(self, function: Function, metric: str = "score") -> None:
        self._function = function
        self._metric = metric
        self._idle: list[tuple[Child, frozenset[str]]] = []

    async def score(
        self, job: Job, rollout: Rollout, candidate: Candidate, case: Case, scope: Scope
    ) -> Score | Failure:
        """Call it once."""
        try:
            child, wanted = self._idle.pop() if self._idle else await self._start()
            asked = _request(wanted, rollout, candidate, case)
            answer = await child.ask(asked, self._function.timeout)
        except ChildEnded as error:
            return _failure(f"the process of `{self._function.target}` {error}", error.detail)
        except TimeoutError:
            seconds = count(self._function.timeout, "second")
            return _failure(f"`{self._function.target}` did not answer within {seconds}")
        except OSError as error:
            message = f"cannot start a process for `{self._function.target}`: {error.strerror}"
            return Failure("limit", "infrastructure", message)
        self._idle.append((child, wanted))
        try:
            reply = parse_json(answer, unique_keys=True)
        except ValueError as error:
            return _failure(f"`{self._function.target}` returned what cannot be used: {error}")
        if "error" in reply:
            return _failure(f"`{self._function.target}` raised {reply['error']}", reply["detail"])
        return self._read(reply["result"], rollout)

    async def close(self) -> None:
        """End the processes."""
        while self._idle:
            self._idle.pop()[0].end()

    async def _start(self) -> tuple[Child, frozenset[str]]:
        child = self._function.start()
        hello: dict[str, Any] = json.loads(await child.ask(None, self._function.timeout))
        if "problem" in hello:
            child.end()
            raise ChildEnded(f"cannot begin: {hello['problem']}")
        return child, frozenset(hello["wants"])

    def _read(self, result: object, rollout: Rollout) -> Score | Failure:
        fields = Fields(metric=self._metric)
        if isinstance(result, int | float):
            return read_score({self._metric: result}, rollout, fields)
        if isinstance(result, dict):
            return read_score(cast("dict[str, object]", result), rollout, fields)
        what = f"{result!r:.80}, not a number or a mapping"
        return _failure(f"`{self._function.target}` returned {what}")


def problem_with(function: Function) -> str | None:
    """Why a function cannot be a scorer, found by importing it in a process of its own."""
    child = function.start()
    try:
        hello: dict[str, str] = json.loads(child.first_line(function.timeout))
    except TimeoutError:
        return f"importing it takes more than {count(function.timeout, 'second')}"
    except ChildEnded as error:
        return f"its process {error}"
    finally:
        child.end()
    return hello.get("problem")


def _request(wanted: frozenset[str], rollout: Rollout, candidate: Candidate, case: Case) -> bytes:
    given: dict[str, object] = {"case": case.data, "output": rollout.output}
    given["candidate"] = dict(candidate.texts)
    given["metrics"] = dict(rollout.metrics)
    if "files" in wanted:
        files = rollout.files.items()
        given["files"] = {name: base64.b64encode(data).decode() for name, data in files}
    asked = {name: value for name, value in given.items() if name in wanted}
    return json.dumps(asked, default=repr).encode() + b"\n"


def _failure(message: str, detail: str = "") -> Failure:
    return Failure("harness", "infrastructure", message, detail)


def _is_function(text: str) -> str:
    module, _, name = text.partition(":")
    dotted = (*module.split("."), *name.split("."))
    if not all(part.isidentifier() for part in dotted):
        raise ValueError(f"`{text}` is not a function; write `module:function`")
    return text


class PythonScorerSpec(SpecModel):
    """A function that returns the score."""

    type: Literal["python"]
    function: Annotated[Text, AfterValidator(_is_function)]
    timeout_seconds: Seconds = TIMEOUT


class PythonScorerComponent(Component[PythonScorerSpec, PythonScorer]):
    """A function that returns the score."""

    Spec = PythonScorerSpec

    def check(self, spec: PythonScorerSpec, context: CheckContext) -> None:
        """Report a function that cannot be imported."""
        sandbox = section(context.source, ("sandbox",), SandboxSpec) or SandboxSpec()
        function = Function(spec.function, context.folder, spec.timeout_seconds, sandbox.env)
        problem = problem_with(function)
        if problem is not None:
            context.report("function", problem)

    def build(self, spec: PythonScorerSpec, context: BuildContext) -> PythonScorer:
        """The function, which sees as much of the environment as a command would."""
        passed_on = context.sandbox.scorer(Command("true", context.folder)).passed_on
        function = Function(spec.function, context.folder, spec.timeout_seconds, passed_on)
        return PythonScorer(function, context.metric)

    def needs(self, spec: PythonScorerSpec) -> Needs:
        """The function and its time."""
        return Needs(commands=(spec.function,), worst_seconds=spec.timeout_seconds)
