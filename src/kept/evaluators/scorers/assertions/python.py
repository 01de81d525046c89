"""Python assertions: an expression, the body of a function, or a function of a file."""

from contextlib import suppress
from pathlib import Path
from typing import Any, cast

from kept.core.parsing import parse_json
from kept.core.rollout import Failure
from kept.core.text import one_line
from kept.evaluators.scorers.assertions.deterministic import quoted
from kept.evaluators.scorers.assertions.llm import Asked
from kept.evaluators.scorers.assertions.spec import Assertion, Grade
from kept.evaluators.workers.pool import FunctionPool
from kept.sandbox.worker import start_apart
from kept.sandbox.worker_pool import MAX_WAITING, START_SECONDS, worker_command
from kept.settings import child_environment, processors

FILE = "file://"
DEFAULT = "get_assert"
"""Default function of a file."""

_SHOWN = 500
_HANDLER = Path(__file__).parents[2] / "workers" / "assertion_handler.py"


class PythonAssertions:
    """Python assertions and their worker processes, started on demand and reused."""

    def __init__(self, folder: Path, timeout: float, passed_on: tuple[str, ...]) -> None:
        self._folder = folder.resolve()
        self._timeout = timeout
        environment = child_environment({}, passed_on)
        argv = worker_command(_HANDLER)
        self._pool = FunctionPool(
            lambda: start_apart(argv, self._folder, environment),
            START_SECONDS,
            max(MAX_WAITING, processors()),
        )

    async def grade(self, one: Assertion, asked: Asked) -> Grade | Failure:
        """Grade an output by calling the assertion."""
        result = await self._pool.result(self._request(one, asked), self._timeout)
        return result if isinstance(result, Failure) else _grade(one, asked.rollout.output, result)

    def close(self) -> None:
        """End the processes."""
        self._pool.close()

    def _request(self, one: Assertion, asked: Asked) -> dict[str, object]:
        value = str(one.value)
        file, function = file_of(value)
        said = [item.text for item in asked.rollout.trace if item.role in ("system", "user")]
        return {
            "folder": str(self._folder),
            "code": "" if file else function_of(value),
            "file": str(self._folder / file) if file else "",
            "function": function,
            "output": asked.rollout.output,
            "context": {
                "vars": asked.given,
                "prompt": "\n\n".join(said),
                "config": dict(one.config),
                "test": {"vars": asked.given},
                "metadata": {},
            },
        }


def file_of(value: str) -> tuple[str, str]:
    """File and function that a value names; an empty file for inline Python."""
    if not value.startswith(FILE):
        return "", "main"
    file, _, function = value.removeprefix(FILE).partition(".py:")
    return (f"{file}.py", function) if function else (file, DEFAULT)


def function_of(code: str) -> str:
    """Source of the function `main(output, context)` for an inline assertion."""
    lines = code.strip("\n").split("\n")
    if len(lines) == 1:
        return f"def main(output, context):\n    return ({code.strip()}\n    )\n"
    wide = min((len(line) - len(line.lstrip()) for line in lines if line.strip()), default=0)
    body = "\n".join(f"    {line[wide:]}" for line in lines)
    return f"def main(output, context):\n{body}\n"


def _grade(one: Assertion, output: str, result: dict[str, Any]) -> Grade | Failure:
    if "unloaded" in result:
        message = f"it cannot be loaded: {result['unloaded']}"
        return Failure("harness", "infrastructure", message)
    if "raised" in result:
        # as in promptfoo: an assertion that raises does not hold
        return Grade(False, 0.0, f"it raised {result['raised']}")
    said: object = result["said"]
    if isinstance(said, str):
        with suppress(ValueError):
            said = parse_json(said.strip() if said.startswith("{") else said.strip().lower())
    reason = ""
    if isinstance(said, dict):
        told = cast("dict[str, Any]", said)
        reason = one_line(str(told.get("reason") or ""), _SHOWN)
        passed = told.get("pass", told.get("pass_"))
        score = told.get("score", float(bool(passed)))
        known = isinstance(passed, bool) and isinstance(score, int | float)
        if not known or not _finite(score):
            return _odd(told)
        if one.threshold is not None and score < one.threshold:
            passed = False
            reason = reason or f"{score:g}, {one.threshold:g} needed"
        return _settled(one, output, bool(passed), float(score), reason)
    if isinstance(said, bool):
        return _settled(one, output, said, None)
    if isinstance(said, int | float) and _finite(said):
        passed = said > 0 if one.threshold is None else said >= one.threshold
        return _settled(one, output, passed, float(said))
    return _odd(said)


def _settled(
    one: Assertion, output: str, passed: bool, score: float | None, reason: str = ""
) -> Grade:
    held = passed != one.negated
    if score is None:
        value = float(held)
    else:
        value = min(1.0, max(0.0, score))
        if value != score:
            counts = f"it said {score:g}, which counts as {value:g}"
            reason = f"{counts}: {reason}" if reason else counts
        value = 1.0 - value if one.negated else value
    if not held and not reason:
        # not the code, which may hold the answer
        reason = f"it is {'true' if passed else 'false'} of the output {quoted(output)}"
    return Grade(held, value, reason)


def _finite(value: float) -> bool:
    return value == value and abs(value) != float("inf")


def _odd(said: object) -> Failure:
    message = f"it returned {said!r:.80}, where true, false, a number or a mapping was expected"
    return Failure("harness", "infrastructure", message)
