"""Conversations read back from the trace of a rollout, whoever wrote the trace."""

import pytest

from kept.core.llm import exchanges_of
from kept.core.rollout import TraceItem


@pytest.mark.parametrize(
    ("data", "name", "arguments"),
    [
        ({"name": "add", "arguments": {"a": 1}}, "add", {"a": 1}),
        ({"command": "ls", "step": 1}, "command", {"command": "ls"}),
        ({"step": 1}, "tool", {}),
        ({"name": "add", "arguments": "[1"}, "add", {"arguments": "[1"}),
    ],
)
def test_a_use_of_a_tool_is_read_from_whatever_its_runner_recorded(
    data: dict[str, object], name: str, arguments: dict[str, object]
):
    (exchange,) = exchanges_of([TraceItem("user", "q"), TraceItem("tool", "came back", data)])
    (use,) = exchange.uses
    assert (use.name, dict(use.arguments), use.result) == (name, arguments, "came back")


def test_an_answer_is_found_before_a_last_use_of_a_tool():
    trace = [
        TraceItem("user", "q"),
        TraceItem("assistant", "done", {"final": True}),
        TraceItem("tool", "", {"command": "rm -r scratch"}),
    ]
    (exchange,) = exchanges_of(trace)
    assert (exchange.answered, exchange.response) == (True, "done")
