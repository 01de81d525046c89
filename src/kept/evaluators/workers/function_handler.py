"""Worker for scorers and graders of a user (`sandbox/worker_main.py`).

Arguments and results of a grader have the same form as in holodeck. If holodeck is not installed,
its module names lead here, so that a grader written for it runs unchanged.
"""

import base64
import importlib
import importlib.util
import inspect
import json
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from types import ModuleType
from typing import Any

OFFERED = ("candidate", "case", "output", "files", "metrics")
CONTEXT_MODULE = "holodeck.lib.test_runner.code_grader"
TOOL_MODULE = "holodeck.models.test_result"


def prepare(
    kind: str, folder: str, target: str
) -> tuple[dict[str, object], Callable[[Any], Any], Callable[[Any], Any]]:
    """Import the function that `module:function` names; `kind` is `scorer` or `grader`."""
    sys.path.insert(0, folder)
    if kind == "grader":
        stand_in()
        function = find(target)
        return {}, lambda given: function(context_of(given["context"])), read
    function = find(target)
    wanted = wants(target, function)
    return {"wants": wanted}, lambda given: function(**decoded(given)), lambda result: result


def find(target: str) -> Callable[..., Any]:
    """Import the function that `module:function` names; raises `ValueError`."""
    module_name, _, name = target.partition(":")
    try:
        value: Any = importlib.import_module(module_name)
    except ModuleNotFoundError as error:
        if error.name and f"{module_name}.".startswith(f"{error.name}."):
            raise ValueError(f"there is no module `{error.name}`") from error
        raise ValueError(f"`{module_name}` cannot be imported: {error}") from error
    except BaseException as error:
        words = f"{type(error).__name__}: {error}".splitlines()[0]
        raise ValueError(f"`{module_name}` cannot be imported: {words}") from error
    for part in name.split("."):
        if not hasattr(value, part):
            raise ValueError(f"the module `{module_name}` has no `{name}`")
        value = getattr(value, part)
    if not callable(value):
        raise ValueError(f"`{target}` is not a function")
    return value


def wants(target: str, function: Callable[..., Any]) -> list[str]:
    """Names of the offered arguments that a scorer takes."""
    wanted: list[str] = []
    for parameter in inspect.signature(function).parameters.values():
        if parameter.kind is parameter.VAR_KEYWORD:
            return list(OFFERED)
        if parameter.name in OFFERED and parameter.kind is not parameter.POSITIONAL_ONLY:
            wanted.append(parameter.name)
        elif (
            parameter.default is parameter.empty and parameter.kind is not parameter.VAR_POSITIONAL
        ):
            offer = ", ".join(OFFERED)
            raise ValueError(f"`{target}` wants `{parameter.name}`; a scorer is given {offer}")
    return wanted


def decoded(given: dict[str, Any]) -> dict[str, Any]:
    """Decode the arguments of a scorer: files become bytes."""
    if "files" in given:
        files = given["files"].items()
        given["files"] = {name: base64.b64decode(data) for name, data in files}
    return given


@dataclass(frozen=True)
class ToolInvocation:
    """One call of a tool."""

    name: str
    args: dict[str, Any] = field(default_factory=dict[str, Any])
    result: Any = None
    bytes: int = 0
    """Size of the result."""
    duration_ms: int | None = None
    error: str | None = None


@dataclass(frozen=True)
class GraderContext:
    """Argument of a grader: one exchange with the annotations of its case."""

    turn_input: str
    agent_response: str
    ground_truth: str | None
    tool_invocations: tuple[ToolInvocation, ...]
    retrieval_context: tuple[str, ...] | None
    turn_index: int
    test_case_name: str | None
    turn_config: dict[str, Any] = field(default_factory=dict[str, Any])


@dataclass(frozen=True)
class GraderResult:
    """Result of a grader, in place of a bool or a number."""

    score: float
    passed: bool | None = None
    reason: str | None = None
    details: dict[str, Any] | None = None


def stand_in() -> None:
    """Register the classes above under holodeck's names if it is not installed."""
    if importlib.util.find_spec("holodeck") is not None:
        return
    for name in (CONTEXT_MODULE, TOOL_MODULE):
        parts = name.split(".")
        for end in range(1, len(parts) + 1):
            whole = ".".join(parts[:end])
            if whole not in sys.modules:
                module = sys.modules[whole] = ModuleType(whole)
                module.__path__ = []
                if end > 1:
                    setattr(sys.modules[".".join(parts[: end - 1])], parts[end - 1], module)
    sys.modules[CONTEXT_MODULE].__dict__.update(
        GraderContext=GraderContext, GraderResult=GraderResult, ToolInvocation=ToolInvocation
    )
    sys.modules[TOOL_MODULE].__dict__.update(ToolInvocation=ToolInvocation)


def context_of(given: dict[str, Any]) -> Any:  # noqa: ANN401 # holodeck's own where it is there
    """Build the context; with holodeck's own classes if the grader imported them."""
    make: Any = getattr(sys.modules.get(CONTEXT_MODULE), "GraderContext", GraderContext)
    use: Any = getattr(sys.modules.get(TOOL_MODULE), "ToolInvocation", ToolInvocation)
    passages = given["retrieval_context"]
    return make(
        **{
            **given,
            "tool_invocations": tuple(use(**one) for one in given["tool_invocations"]),
            "retrieval_context": None if passages is None else tuple(passages),
        }
    )


def read(said: Any) -> dict[str, object]:  # noqa: ANN401 # the user's
    """Read score, verdict, reason and details from a grader's result."""
    if isinstance(said, bool):
        return {"score": float(said), "passed": said}
    if isinstance(said, int | float):
        return {"score": float(said), "passed": None}
    if not hasattr(said, "score"):
        raise TypeError(
            f"it returned {type(said).__name__}, where bool, float or GraderResult was expected"
        )
    details = said.details
    json.dumps(details)
    passed = None if said.passed is None else bool(said.passed)
    return {
        "score": float(said.score),
        "passed": passed,
        "reason": said.reason,
        "details": details,
    }
