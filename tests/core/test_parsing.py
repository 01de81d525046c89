"""Bounds of the parsers, one by one; tests/test_hostile_texts.py has all of them at once."""

import ast
import json
from pathlib import Path

import pytest

from kept.core.artifact import NoSpan
from kept.core.parsing import (
    DuplicateKey,
    ParseLimit,
    check_depth,
    compile_pattern,
    parse_json,
    parse_json_at,
    parse_python,
    parse_toml,
)
from kept.orchestrator.checks.syntax import syntax_problem
from kept.spec import yaml
from kept.spec.locate.tree import read_value
from kept.spec.yaml import YamlFault, read_yaml

DEEP = "it is nested more than 100 levels deep"


def nested(depth: int, inner: str = "") -> str:
    return "[" * depth + inner + "]" * depth


def test_json_of_a_hundred_levels_is_read_and_one_more_is_refused():
    assert parse_json(nested(100, "1")) == json.loads(nested(100, "1"))
    for text in (
        nested(101),
        nested(101).encode(),
        nested(100_000),
        '{"a":' * 101 + "1" + "}" * 101,
    ):
        with pytest.raises(ParseLimit, match=DEEP):
            parse_json(text)


@pytest.mark.parametrize("text", ["-" * 100_000 + "1", "x" + "()" * 100_000, "a." * 100_000 + "a"])
def test_python_that_is_nested_too_deeply_is_refused(text: str):
    with pytest.raises(ParseLimit, match="nested too deeply"):
        parse_python(text)


def test_brackets_side_by_side_or_in_strings_are_no_depth():
    assert len(parse_json("[" + "[]," * 500 + "[]]")) == 501
    assert parse_json(json.dumps("[" * 500)) == "[" * 500


def test_a_number_with_too_many_digits_is_refused_in_every_format():
    digits = "1" * 5000
    with pytest.raises(ParseLimit, match="more than 308 digits"):
        parse_json(digits)
    with pytest.raises(ParseLimit, match="more than 308 digits"):
        parse_json_at(digits, 0)
    with pytest.raises(ParseLimit, match="more than 308 digits"):
        parse_toml(f"a = {digits}")
    # hexadecimal ones are not converted, and could not be printed
    with pytest.raises(ParseLimit, match="more than 308 digits"):
        parse_toml("a = 0x" + "f" * 5000)
    for text in (digits, "0x" + "f" * 4000, "%YAML 1.1\n---\n" + "1:" * 50_000 + "1"):
        with pytest.raises(YamlFault, match="more than 308 digits"):
            read_yaml(text)


def test_arithmetic_with_a_number_of_json_never_overflows():
    assert float(parse_json("9" * 308)) == pytest.approx(1e308)
    for text in ("9" * 309, "-" + "9" * 309, '{"a": [' + "1" * 400 + "]}"):
        for given in (text, text.encode(), text.encode("utf-16")):
            with pytest.raises(ParseLimit, match="more than 308 digits"):
                parse_json(given)
    digits = '["' + "9" * 400 + '", 0.' + "1" * 400 + "]"
    assert parse_json(digits) == json.loads(digits)


def test_json_after_an_index_is_bounded_too():
    assert parse_json_at("so: [1] ", 4) == ([1], 7)
    with pytest.raises(ParseLimit, match=DEEP):
        parse_json_at(f"so: {nested(500)}", 4)


def test_a_key_twice_is_an_error_only_where_keys_must_be_unique():
    text = '{"a": {"b": 1, "b": 2}}'
    assert parse_json(text) == {"a": {"b": 2}}
    with pytest.raises(DuplicateKey, match="the key `b` stands twice in one object"):
        parse_json(text, unique_keys=True)


@pytest.mark.parametrize(
    "text", ["a = " + nested(101), ".".join("a" * 50_000) + " = 1", f"[{'.'.join('a' * 50_000)}]"]
)
def test_toml_that_is_too_deep_is_refused(text: str):
    with pytest.raises(ParseLimit, match=DEEP):
        parse_toml(text)


def test_a_dotted_key_of_toml_that_is_not_too_deep_is_read():
    key = " . ".join(["a", '"b.c"', "'d'"] * 30)
    assert parse_toml(f'{key} = "{"." * 500}"')["a"]["b.c"]


@pytest.mark.parametrize(
    ("pattern", "told"),
    [
        ("(" * 5000 + ")" * 5000, "nested too deeply"),
        ("a{99999999999}", "repetition number is too large"),
        ("a" * 30_000, "more than 20,000 characters"),
        ("(", "missing"),
    ],
)
def test_a_pattern_that_cannot_be_compiled_is_a_value_error(pattern: str, told: str):
    with pytest.raises(ValueError, match=told):
        compile_pattern(pattern)


def test_depth_is_checked_without_recursion():
    value: object = 1
    for _ in range(100_000):
        value = {"a": [value]}
    with pytest.raises(ParseLimit, match=DEEP):
        check_depth(value)


@pytest.mark.parametrize("opening", ["[", "{a: ", "- ", "? ", "!!seq [", '{"[": '])
def test_yaml_that_is_too_deep_is_refused_by_every_reader(opening: str):
    # the C library recurses, and would end this process where the depth is not held back
    text = "a: 1\nb:\n  " + opening * 60_000
    with pytest.raises(YamlFault, match=DEEP) as raised:
        read_yaml(text)
    assert raised.value.line == 3
    missing = read_value("a.yaml", text, "b")
    assert isinstance(missing, NoSpan) and DEEP in missing.detail
    found = syntax_problem("a.yaml", text.encode())
    assert found is not None and (DEEP in found.detail, found.line) == (True, 3)


def test_yaml_that_the_slow_library_has_to_read_is_bounded_alike():
    with pytest.raises(YamlFault, match=DEEP):
        read_yaml("%YAML 1.1\n---\n" + "- " * 10_000)
    with pytest.raises(YamlFault, match=DEEP):
        read_yaml('a: "\t"\nb: ' + "[" * 60_000)


@pytest.mark.parametrize("text", ["!!bool x", "!!int x", "!!int ''", "!!float ''", "!!timestamp x"])
def test_a_tag_that_does_not_fit_its_value_is_no_yaml(text: str):
    with pytest.raises(YamlFault):
        read_yaml(f"a: {text}")
    assert isinstance(read_value("a.yaml", f"a: {text}", "a"), NoSpan)


def test_too_many_values_are_refused_before_they_fill_the_memory(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(yaml, "MAX_NODES", 1000)
    found = syntax_problem("a.yaml", b"[" + b"a," * 2000 + b"]")
    assert found is not None and "more than 1,000 values" in found.detail


BOUNDED = {
    "yaml": {
        *("spec/yaml.py", "spec/locate/yaml.py", "spec/yaml.py"),
        "orchestrator/checks/syntax.py",
        "evaluators/environments/swebench/instances.py",
    },
    "ruamel": {
        *("spec/yaml.py", "spec/locate/yaml.py", "spec/yaml.py", "evaluators/scorers/rules.py"),
        "recipes/agent_config/outputs/folder.py",
    },
    "tomllib": {"core/parsing.py", "spec/locate/toml.py"},
    "json_repair": {"models/structured_output.py"},
    "jsonschema_rs": {"sandbox/json_schema.py"},
}
"""Libraries without bounds of their own, and the modules that give them some."""


def test_texts_are_compared_only_where_that_is_bounded():
    # it takes the cube of the lines where many are alike
    source = Path(yaml.__file__).parents[1]
    users = [p for p in source.rglob("*.py") if "SequenceMatcher" in p.read_text(encoding="utf-8")]
    assert [path.relative_to(source).as_posix() for path in users] == ["core/text.py"]


def test_a_parser_is_imported_only_where_it_is_bounded():
    source = Path(yaml.__file__).parents[1]
    found: dict[str, set[str]] = {name: set() for name in BOUNDED}
    for path in source.rglob("*.py"):
        name = path.relative_to(source).as_posix()
        if name.startswith("ui/scaffold/"):
            continue  # it is copied to a user's folder, and reads the user's own file
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            names = [one.name for one in node.names] if isinstance(node, ast.Import) else []
            names += [node.module or ""] if isinstance(node, ast.ImportFrom) else []
            for imported in {one.partition(".")[0] for one in names} & found.keys():
                found[imported].add(name)
    assert found == BOUNDED
