"""Tools that were expected: names, arguments, how often."""

import asyncio
import time
from collections.abc import Mapping
from typing import Any

import pytest

from kept.core.llm import ToolUse
from kept.core.rollout import Failure
from kept.evaluators.metrics.tool_calls import Expecting, Use, alike, read_expected, same
from tests.evaluators.metrics.talking import score, scorer, talk


def check(rows: list[Any], *uses: tuple[str, Mapping[str, object]]) -> list[Use]:
    one = Expecting(patience=0.5)
    try:
        made = [ToolUse(name, arguments, "") for name, arguments in uses]
        found = asyncio.run(one.check(read_expected(rows), made))
    finally:
        one.close()
    assert not isinstance(found, Failure), found
    return list(found)


def at(rows: list[Any], *uses: tuple[str, Mapping[str, object]]) -> list[int]:
    return [use.at for use in check(rows, *uses)]


def test_a_name_is_matched_as_a_whole():
    """Bug 18: `add` matched `address_lookup`."""
    assert at(["add"], ("address_lookup", {})) == [-1]
    assert at(["add"], ("address_lookup", {}), ("add", {})) == [1]
    assert at(["Add"], ("add", {})) == [-1]


def test_a_part_of_a_name_is_enough_where_that_is_said():
    assert at([{"name": "add", "match": "contains"}], ("math__add", {})) == [0]


def test_a_case_whose_tool_only_looks_alike_does_not_pass():
    """Bug 18, through the scorer."""
    rollout = talk(("done", [("address_lookup", {}, "ok")]))
    found = score(scorer([]), rollout, {"expected_tools": ["add"]})
    assert found.metrics["passed"] == 0.0
    assert [item.data for item in found.details] == [
        {
            "exchange": 0,
            "matched": False,
            "expected": ["add"],
            "arguments": [
                {
                    "expected_tool": "add",
                    "args_asserted": {},
                    "matched_call_index": -1,
                    "unmatched_reason": "`add` was not used",
                }
            ],
        }
    ]
    assert [finding.text for finding in found.findings] == ["tools: `add` was not used"]


@pytest.mark.parametrize(
    ("expected", "value", "held"),
    [
        (1, 1.0, True),
        (1, True, False),
        (False, 0, False),
        (True, True, True),
        ("1", 1, False),
        ("a", "A", False),
        (None, None, True),
        (None, 0, False),
        ([1, 2], [1.0, 2.0], True),
        ([1, 2], [2, 1], False),
        ({"a": [1]}, {"a": [1.0]}, True),
        ({"a": 1}, {"a": 1, "b": 2}, False),
        ({"a": 1}, {"a": True}, False),
    ],
)
def test_a_literal_is_the_same_value(expected: object, value: object, held: bool):
    assert same(expected, value) is held


@pytest.mark.parametrize(
    ("expected", "value", "held"),
    [
        ("206,588", "206588", True),
        ("206 588", "206_588.0", True),
        ("14.1%", "0.141", True),
        ("14.1 %", "14.1", False),
        ("New York", "new  york", True),
        ("New York", "newyork", True),
        ("Paris", "London", False),
        ("0.1", "0.1000000001", True),
        ("0.1", "0.10001", False),
        ("STRASSE", "straße", True),
        ("%", "%", True),
    ],
)
def test_fuzzy_does_not_mind_how_it_is_written(expected: str, value: str, held: bool):
    assert alike(expected, value) is held


@pytest.mark.parametrize(
    ("pattern", "value", "held"),
    [
        (r"\d+", "123", True),
        (r"\d+", "123 apples", False),
        (r"a|b", "b", True),
        (r"a|b", "ab", False),
        (r"(?i)paris", "PARIS", True),
        (r"(?x)pa ris # the city", "paris", True),
        (r"2[0-9]", 25, True),
        (r"True", True, True),
        (r"a.c", "a\nc", False),
    ],
)
def test_a_regex_is_held_against_the_whole_argument(pattern: str, value: object, held: bool):
    rows = [{"name": "t", "args": {"x": {"regex": pattern}}}]
    assert (at(rows, ("t", {"x": value})) == [0]) is held


def test_an_expression_that_would_never_end_is_given_up():
    rows = [{"name": "t", "args": {"x": {"regex": "(a+)+b"}}}]
    began = time.monotonic()
    assert at(rows, ("t", {"x": "a" * 5000})) == [-1]
    assert time.monotonic() - began < 20


def test_each_expectation_is_held_against_all_uses_and_counts_at_least():
    uses: list[tuple[str, Mapping[str, object]]] = [
        ("t", {"x": 1}),
        ("u", {}),
        ("t", {"x": 2}),
        ("t", {"x": 1.0}),
    ]
    assert at([{"name": "t", "args": {"x": 1}, "count": 2}], *uses) == [0]
    assert at([{"name": "t", "count": 3}, "u", "v"], *uses) == [0, 1, -1]
    (few,) = check([{"name": "t", "args": {"x": 1}, "count": 3}], *uses)
    assert few.reason == "`t` was used so 2 times, not 3"
    (without,) = check([{"name": "t", "args": {"y": 1}}], *uses)
    assert without.reason == "`t` was used without `y`"
    (other,) = check([{"name": "u", "args": {"y": 1}}], ("u", {"y": 7, "z": 1}))
    assert other.reason == "`u` was used with `y` = `7`, which was not expected"


def test_what_was_asserted_is_told_as_the_case_says_it():
    args = {"a": 1, "b": {"fuzzy": "x"}, "c": {"regex": "y"}, "d": {"fuzzy": 1, "e": 2}}
    (use,) = check([{"name": "t", "args": args}], ("t", {"a": 1, "b": "X", "c": "y", "d": {}}))
    assert use.told["args_asserted"] == args


def test_a_use_counts_for_its_own_exchange_alone():
    rollout = talk(("one", [("t", {}, "")]), "two")
    case = {"turns": [{"input": "a", "expected_tools": ["t"]}] * 2}
    found = score(scorer([]), rollout, case)
    assert [item.data["matched"] for item in found.details] == [True, False]
    assert found.metrics == {"passed": 0.0}
    assert [finding.text for finding in found.findings] == ["turn 2, tools: `t` was not used"]
