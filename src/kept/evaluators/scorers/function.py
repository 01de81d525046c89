"""User function as scorer.

It runs in reusable processes, started on demand, so its imports, crashes and hangs are isolated.
Like every scorer it is part of the harness: when it fails, no candidate is blamed.
"""

import base64
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal, cast

from pydantic import AfterValidator

from kept.core.artifact import Candidate
from kept.core.case import Case
from kept.core.ports import Scope
from kept.core.rollout import Failure, Job, Rollout
from kept.core.score import Score
from kept.core.text import count
from kept.evaluators.scorers.command import Fields, read_score
from kept.evaluators.workers.pool import FunctionPool
from kept.sandbox.command import TIMEOUT, Command
from kept.sandbox.worker import Child, ChildEnded, Room, start_apart, start_confined
from kept.sandbox.worker_pool import WORKER, worker_command
from kept.settings import child_environment
from kept.spec.components import BuildContext, CheckContext, Component, Needs
from kept.spec.shared_sections import SandboxSpec
from kept.spec.validate import Seconds, SpecModel, Text, section

_HANDLER = Path(__file__).parents[1] / "workers" / "function_handler.py"


@dataclass(frozen=True, slots=True)
class Function:
    """User function by name and folder."""

    target: str
    """`module:function`."""
    folder: Path
    """Import path and working directory of the function."""
    timeout: float = TIMEOUT
    """Seconds for one call; the first one includes the import."""
    passed_on: tuple[str, ...] = ()
    """Further variables of Kept's environment that it may see."""
    kind: Literal["scorer", "grader"] = "scorer"
    """A grader is confined if this machine can do so; a scorer is not."""

    def start(self) -> Child:
        """Start a process that imports the function, or says why it cannot."""
        argv = worker_command(_HANDLER, self.kind, str(self.folder), self.target)
        if self.kind == "grader":
            # the network is on: a function may call a service
            room = Room(self.folder, (_HANDLER, WORKER), "on", self.passed_on)
            return start_confined(argv, room)
        return start_apart(argv, self.folder, child_environment({}, self.passed_on))

    def pool(self, most: int | None = None) -> FunctionPool:
        """Pool of processes that call the function."""
        confined = self.kind == "grader"
        return FunctionPool(self.start, self.timeout, most, name=self.target, confined=confined)


class PythonScorer:
    """Scorer that calls a function for every rollout, with those arguments that it takes.

    `candidate`: texts by path; `case`: its data; `output`: printed by the runner; `files`: bytes by
    path, left by the runner; `metrics`: measured by the runner. The function returns a number, or
    the same object that a command would print as JSON.
    """

    def __init__(self, function: Function, metric: str = "score") -> None:
        self._function = function
        self._metric = metric
        self._pool = function.pool()

    async def score(
        self, job: Job, rollout: Rollout, candidate: Candidate, case: Case, scope: Scope
    ) -> Score | Failure:
        """Call the function once."""
        given: dict[str, object] = {"case": case.data, "output": rollout.output}
        given["candidate"] = dict(candidate.texts)
        given["metrics"] = dict(rollout.metrics)
        about = await self._pool.tell()
        if isinstance(about, Failure):
            return about
        wanted = about["wants"]
        if "files" in wanted:
            files = rollout.files.items()
            given["files"] = {name: base64.b64encode(data).decode() for name, data in files}
        asked = {name: value for name, value in given.items() if name in wanted}
        result = await self._pool.result(asked, self._function.timeout)
        return result if isinstance(result, Failure) else self._read(result, rollout)

    async def close(self) -> None:
        """End the processes."""
        self._pool.close()

    def _read(self, result: object, rollout: Rollout) -> Score | Failure:
        fields = Fields(metric=self._metric)
        if isinstance(result, int | float):
            return read_score({self._metric: result}, rollout, fields)
        if isinstance(result, dict):
            return read_score(cast("dict[str, object]", result), rollout, fields)
        what = f"{result!r:.80}, not a number or a mapping"
        message = f"`{self._function.target}` returned {what}"
        return Failure("harness", "infrastructure", message)


def problem_with(function: Function) -> str | None:
    """Import a function in a process; return why it cannot be a scorer, else None."""
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
        """Build the scorer; the function sees the same environment as a command."""
        passed_on = context.sandbox.scorer(Command("true", context.folder)).passed_on
        function = Function(spec.function, context.folder, spec.timeout_seconds, passed_on)
        return PythonScorer(function, context.metric)

    def needs(self, spec: PythonScorerSpec) -> Needs:
        """Return the function and its time limit."""
        return Needs(commands=(spec.function,), worst_seconds=spec.timeout_seconds)
