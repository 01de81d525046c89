"""Schemas of models and users: nothing is fetched, and nothing takes for ever."""

import json
import math
import time
from typing import Any

import pytest

from kept.core.parsing import ParseLimit
from kept.models.structured_output import problem_with
from kept.sandbox import json_schema
from kept.sandbox.json_schema import SchemaError, check_schema, expansions, first_error

TREE = {"type": "object", "properties": {"rows": {"type": "array", "items": {"$ref": "#"}}}}


def fan(levels: int) -> dict[str, Any]:
    """A schema of a few lines that holds a value against 2**levels others."""
    defs: dict[str, Any] = {
        f"a{n}": {"allOf": [{"$ref": f"#/$defs/a{n + 1}"}] * 2} for n in range(levels)
    }
    return {"$ref": "#/$defs/a0", "$defs": {**defs, f"a{levels}": {"type": "string"}}}


def test_the_first_error_says_where_and_by_which_rule():
    schema = {"properties": {"rows": {"items": {"type": "integer"}}}}
    assert first_error({"rows": [1]}, schema) is None
    told = SchemaError("rows[1]", "type", '"x" is not of type "integer"')
    assert first_error({"rows": [1, "x"]}, schema) == told


@pytest.mark.parametrize("uri", ["file:///etc/hostname", "http://127.0.0.1:9/schema.json"])
def test_nothing_is_fetched_for_a_schema(uri: str):
    with pytest.raises(ValueError, match="is not in the schema, and nothing is fetched"):
        check_schema({"$ref": uri})


def test_what_is_no_schema_is_a_value_error():
    with pytest.raises(ValueError, match="5"):
        check_schema({"type": 5})


def test_half_a_character_is_refused_and_does_not_reach_the_validator():
    # JSON can escape it, and the validator's own code raises
    schema = {"properties": {"a": {"pattern": "^a"}}, "additionalProperties": False}
    for value in ({"a": "a\ud800"}, {"\udfff": 1}):
        with pytest.raises(ParseLimit, match="holds half of a character"):
            first_error(value, schema)
    assert problem_with("\ud800", {"enum": ["a"]}) == "a text in it holds half of a character"
    with pytest.raises(ValueError, match="surrogates not allowed"):
        check_schema({"const": "\ud800"})


def test_a_value_that_is_too_deep_is_refused_before_the_validator_recurses():
    value: object = 1
    for _ in range(100_000):
        value = [value]
    with pytest.raises(ParseLimit, match="nested more than 100 levels deep"):
        first_error(value, {"items": {"$ref": "#"}})
    assert problem_with(value, {}) == "it is nested more than 100 levels deep"


@pytest.mark.parametrize(
    ("schema", "found"),
    [
        ('{"type": "string"}', 1),
        ('{"a": {"b": [{}, {}]}}', 4),
        ('{"$ref": "#"}', math.inf),
        ('{"$ref": "#/no/such"}', math.inf),
        ('{"$ref": "other.json"}', math.inf),
        ('{"$dynamicRef": "#a"}', math.inf),
        ('{"pattern": "^(?=a)(a+)+$"}', math.inf),
    ],
)
def test_the_work_of_a_schema_is_estimated_from_above(schema: str, found: float):
    assert expansions(schema) == found


def test_references_that_fan_out_count_each_time():
    assert expansions(json.dumps(fan(10))) > 2**10
    assert first_error("x", fan(10)) is None


@pytest.mark.slow
def test_a_schema_that_refers_to_itself_is_checked_in_another_process():
    empty: dict[str, object] = {}
    assert first_error({"rows": [{"rows": [empty]}]}, TREE) is None
    error = first_error({"rows": [{"rows": 5}]}, TREE)
    assert error is not None and error.where == "rows[0].rows"


@pytest.mark.slow
def test_a_schema_that_takes_too_long_is_refused_in_time(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(json_schema, "MOST_SECONDS", 1.0)
    began = time.monotonic()
    with pytest.raises(ParseLimit, match="against its schema takes more than 1 seconds"):
        first_error("x", fan(60))
    assert time.monotonic() - began < 30
