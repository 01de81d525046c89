"""The far end of a code grader: calls a user's function for every line it is sent.

A script that imports nothing of Kept but its neighbour `serve.py`, which does not either:
`python -P grader_main.py FOLDER MODULE:FUNCTION`. What a grader is given and may return has the
shapes that holodeck's has, and where holodeck is not installed its module names lead here, so that
a grader that was written for it runs as it is.
"""

import importlib.util
import json
import os
import sys
import threading
import traceback
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from queue import SimpleQueue
from types import ModuleType
from typing import Any

CONTEXT_MODULE = "holodeck.lib.test_runner.code_grader"
TOOL_MODULE = "holodeck.models.test_result"


@dataclass(frozen=True)
class ToolInvocation:
    """One use of a tool."""

    name: str
    args: dict[str, Any] = field(default_factory=dict[str, Any])
    result: Any = None
    bytes: int = 0
    """Of the result."""
    duration_ms: int | None = None
    error: str | None = None


@dataclass(frozen=True)
class GraderContext:
    """What a grader is given: one exchange, with what its case says of it."""

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
    """What a grader may return instead of a truth or a number."""

    score: float
    passed: bool | None = None
    reason: str | None = None
    details: dict[str, Any] | None = None


def main(folder: str, target: str) -> None:
    """Say whether the function is there, then answer until nobody asks any more."""
    serve = load_serve()
    # what the function prints must not end up among our answers
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    requests: SimpleQueue[bytes] = SimpleQueue()
    threading.Thread(target=serve.listen, args=(requests,), daemon=True).start()
    sys.path.insert(0, folder)
    stand_in()
    try:
        function = serve.find(target)
    except serve.Problem as problem:
        serve.tell(answers, {"problem": str(problem)})
        return
    serve.tell(answers, {"wants": ["context"]})
    while True:
        serve.tell(answers, answer(function, requests.get()))


def load_serve() -> Any:  # noqa: ANN401 # a module
    """The far end of python scorers, under a name that no module of a user's has."""
    path = Path(__file__).with_name("function_main.py")
    spec = importlib.util.spec_from_file_location("_kept_serve", path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def stand_in() -> None:
    """Have holodeck's names lead to the classes above, where holodeck is not installed."""
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


def answer(function: Callable[..., Any], line: bytes) -> dict[str, object]:
    """What the function says of one exchange, or what it raised."""
    try:
        said = function(context_of(json.loads(line)["context"]))
        return {"result": read(said)}
    except BaseException as error:  # noqa: BLE001 # the near end turns it into a value
        words = f"{type(error).__name__}: {error}".splitlines()[0]
        return {"error": words, "detail": traceback.format_exc()}


def context_of(given: dict[str, Any]) -> Any:  # noqa: ANN401 # holodeck's own where it is there
    """The context, of holodeck's own classes where the grader has these imported."""
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
    """Score, verdict, reason and details of what a grader returned."""
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


if __name__ == "__main__":
    main(*sys.argv[1:])
