"""Expressions of numbers, and nothing else."""

import asyncio
from collections.abc import Mapping

import pytest

from kept.core.llm import ToolAnswer
from kept.core.ports import Tool
from kept.engine.replay import JournalScope
from kept.evaluators.tools.arithmetic import ArithmeticTool, NoNumber, worked_out
from kept.testing import MemoryJournal, ToolSuite


class TestArithmetic(ToolSuite):
    async def open_tool(self) -> Tool:
        return ArithmeticTool()

    async def open_hanging_tool(self) -> Tool | None:
        return None

    def arguments(self) -> Mapping[str, object]:
        return {"expression": "1 + 1"}

    def wrong_arguments(self) -> Mapping[str, object] | None:
        return {"expression": "open('x')"}


@pytest.mark.parametrize(
    ("expression", "value"),
    [("(3 + 4) * 2 ** 5", 224), ("-7 // 2", -4), ("sqrt(16) + max(1, 2)", 6), ("1 / 4", 0.25)],
)
def test_an_expression_is_worked_out(expression: str, value: float) -> None:
    assert worked_out(expression) == value


@pytest.mark.parametrize(
    "expression",
    ["__import__('os')", "a + 1", "9 ** 9 ** 9", "1 / 0", "(-1) ** 0.5", "[1]", "1 +", "True"],
)
def test_what_is_no_number_is_told(expression: str) -> None:
    with pytest.raises(NoNumber):
        worked_out(expression)


def test_a_model_is_told_what_is_wrong() -> None:
    scope = JournalScope(MemoryJournal(), "rollout/a/measure/b/0")
    answer = asyncio.run(ArithmeticTool().use({"expression": "x"}, scope))
    assert isinstance(answer, ToolAnswer) and answer.wrong


@pytest.mark.parametrize(
    ("expression", "value"),
    [("round(1234, -2)", 1200), ("round(2.567, 2)", 2.57), ("round(7, -400)", 0)],
)
def test_a_number_is_rounded_to_so_many_places(expression: str, value: float) -> None:
    assert worked_out(expression) == value


@pytest.mark.parametrize("places", ["-401", "401", "-99999", "-(2 ** 16)"])
def test_places_that_only_take_time_are_refused(places: str) -> None:
    """`round(7, -999999999)` makes a number of so many digits first, and holds up everybody."""
    with pytest.raises(NoNumber, match="at most 400 places"):
        worked_out(f"round(7, {places})")
