"""Deterministic assertions, without processes and models.

A reason says what the output is and never what was expected. Proposers see the expected value with
the train case itself, and reasons of holdout cases must not reveal it.
"""

import json
import math
from collections.abc import Iterator, Mapping
from typing import cast

from kept.core.parsing import ParseLimit, parse_json, parse_json_at
from kept.core.text import count, one_line
from kept.evaluators.scorers.assertions.spec import Assertion, Grade
from kept.sandbox.json_schema import first_error

LATENCY = "latency_ms"
COST = "cost_usd"
"""Metrics that the runner measured."""

MOST_TRIES = 1000
"""Maximum number of places at which JSON is tried."""

MOST_READ = 50_000_000
"""Maximum number of characters parsed in vain at such places."""

LONGEST = 200
"""Characters of an output that a reason quotes."""

SHAPE = ("type", "required", "additionalProperties", "minItems", "maxItems")
"""Schema rules that a reason may quote: others may hold the answer."""

NEAR = 5
"""Default number of edits that `levenshtein` allows."""


def compared(one: Assertion, output: str, metrics: Mapping[str, float]) -> Grade:
    """Grade a deterministic assertion."""
    missing = _missing(one, output, metrics)
    passed = (missing is None) != one.negated
    if passed:
        return Grade(True, 1.0)
    return Grade(False, 0.0, missing or f"it holds, and must not: the output is {quoted(output)}")


def _missing(one: Assertion, output: str, metrics: Mapping[str, float]) -> str | None:
    """Reason why it does not hold; None if it does."""
    value = one.value
    shown = f"the output {quoted(output)}"
    match one.type:
        case "equals":
            return _equals(value, output)
        case "contains":
            return None if _said(value) in output else f"what must be in it is not in {shown}"
        case "icontains":
            found = _said(value).lower() in output.lower()
            return None if found else f"what must be in it is not, in any case, in {shown}"
        case "contains-any" | "icontains-any" | "contains-all" | "icontains-all":
            return _contains_some(one, output)
        case "starts-with":
            begins = output.startswith(_said(value))
            return None if begins else f"{shown} does not begin as it must"
        case "is-json":
            return _is_json(value, output)
        case "contains-json":
            return _contains_json(value, output)
        case "levenshtein":
            most = int(one.threshold or NEAR)
            near = within(output, _said(value), most)
            far = f"{shown} is more than {count(most, 'edit')} away from what was expected"
            return None if near else far
        case "word-count":
            return _words(value, output)
        case "latency":
            took = metrics.get(LATENCY, math.inf)
            slow = f"it took {took:.0f} ms, {one.threshold:g} allowed"
            return None if took <= (one.threshold or 0) else slow
        case "cost":
            paid = metrics.get(COST, math.inf)
            dear = f"it cost {paid:g} US dollars, {one.threshold:g} allowed"
            return None if paid <= (one.threshold or 0) else dear
        case kind:
            raise AssertionError(f"`{kind}` is for somebody else")


def _said(value: object) -> str:
    if isinstance(value, float) and value.is_integer():
        return str(int(value))
    if isinstance(value, bool):
        return str(value).lower()
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def quoted(output: str) -> str:
    """Output as quoted in a reason."""
    return f"`{one_line(output, LONGEST)}`"


def _equals(value: object, output: str) -> str | None:
    if type(value) in (dict, list):
        try:
            same = _plain(parse_json(output)) == _plain(value)
        except ValueError:
            return f"JSON was expected, and the output is {quoted(output)}"
    else:
        same = _said(value) == output
    return None if same else f"the output is {quoted(output)}, which is not what was expected"


def _plain(value: object) -> str:
    """Canonical JSON: key order and `1.0` versus 1 do not matter, and `true` is not 1."""

    def whole(text: str) -> float | int:
        number = float(text)
        return int(number) if number.is_integer() else number

    return json.dumps(json.loads(json.dumps(value), parse_float=whole), sort_keys=True)


def _contains_some(one: Assertion, output: str) -> str | None:
    given = one.value
    parts = [part.strip() for part in given.split(",")] if isinstance(given, str) else given
    wanted = [_said(part) for part in cast("list[object]", parts) if part != ""]
    fold = one.type.startswith("i")
    text = output.lower() if fold else output
    lack = [part for part in wanted if (part.lower() if fold else part) not in text]
    if one.type.endswith("any"):
        if len(lack) < len(wanted):
            return None
        return f"none of {len(wanted)} that may be in it is in the output {quoted(output)}"
    told = f"{len(lack)} of {len(wanted)} that must be in it are not in the output {quoted(output)}"
    return told if lack else None


def _is_json(schema: object, output: str) -> str | None:
    try:
        value = parse_json(output)
    except ValueError as error:
        why = getattr(error, "msg", None) or str(error)
        return f"the output is not JSON: {why}"
    return _unfit(schema, value)


def _contains_json(schema: object, output: str) -> str | None:
    wrong = "there is no JSON in the output"
    for value in _documents(output):
        unfit = _unfit(schema, value)
        if unfit is None:
            return None
        wrong = unfit
    return wrong


def _documents(text: str) -> Iterator[object]:
    """Outermost JSON objects and lists in a text."""
    at = tries = read = 0
    while tries < MOST_TRIES and read < MOST_READ:
        starts = [place for place in (text.find("{", at), text.find("[", at)) if place >= 0]
        if not starts:
            return
        tries += 1
        at = min(starts)
        try:
            value, at = parse_json_at(text, at)
        except ValueError as error:
            read += getattr(error, "pos", at) - at
            at += 1
            continue
        yield value


def _unfit(schema: object, value: object) -> str | None:
    if schema is None:
        return None
    try:
        error = first_error(value, schema)
    except ParseLimit as limit:
        return f"JSON that cannot be checked: {limit}"
    if error is None:
        return None
    why = error.message if error.rule in SHAPE else f"`{error.rule}` does not hold"
    return f"JSON that does not fit, at `{error.where or 'the top'}`: {why}"[:500]


def _words(value: object, output: str) -> str | None:
    words = len(output.split())
    exactly = {"min": value, "max": value}
    bounds = cast("dict[str, int]", value if isinstance(value, dict) else exactly)
    least, most = bounds.get("min", 0), bounds.get("max", words)
    if least <= words <= most:
        return None
    return f"{count(words, 'word')}, too {'few' if words < least else 'many'}"


def within(one: str, other: str, most: int) -> bool:
    """True if the edit distance is at most `most`; computes only that band of the table."""
    if abs(len(one) - len(other)) > most:
        return False
    # only cells within `most` of the diagonal can be small enough
    row = {at: at for at in range(min(most, len(other)) + 1)}
    for down, letter in enumerate(one, 1):
        low, high = max(0, down - most), min(len(other), down + most)
        fresh: dict[int, int] = {}
        for at in range(low, high + 1):
            if at == 0:
                fresh[0] = down
                continue
            kept = row.get(at - 1, most + 1) + (letter != other[at - 1])
            fresh[at] = min(kept, row.get(at, most + 1) + 1, fresh.get(at - 1, most + 1) + 1)
        row = fresh
        if min(row.values(), default=0) > most:
            return False
    return row.get(len(other), most + 1) <= most
