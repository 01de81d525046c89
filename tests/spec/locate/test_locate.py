"""Values found by path in every format: set, they change themselves and nothing else."""
# ruff: noqa: E501 # a row of a table reads better than it wraps

import io
import json
import string
import tomllib
from collections.abc import Callable, Mapping
from typing import Any, cast

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from ruamel.yaml import YAML

from kept.core.artifact import NoSpan, Span, Value
from kept.spec.locate.tree import Selector, locate, parse_path, read_value, show_path

CONFIG_YAML = """\
# how the agent works
model: {name: small, temperature: 0.7}  # in line
limits:
  tokens: 1_000
  rate: !!float 3
tools:
- name: search   # first
  top_k: 5
  on: yes
- {name: 'read file', top_k: 7}
"my.key":
  value: &kept 'it''s'
empty:
"""

CONFIG_JSON = """\
{"model": {"name": "small", "temperature": 7e-1},
\t"tools": [{"name": "search", "top_k": 5}, {"name": "read file", "top_k": 7}],
 "my.key": {"value": "it's \\u00e9 \\"quoted\\""}, "empty": null, "on": true, "none": [], "no": {}}
"""

CONFIG_TOML = """\
# how the agent works
title = 'plain'
model.name = "small"
model.temperature = 0.7 # in line
when = 1979-05-27 07:32:00

[limits]
tokens = 1_000
"my.key".value = "it's # no comment"
spread = [1,
  2, # two
  [3, 4]]

[[tools]]
name = "search"
top_k = 5
[tools.deep]
on = true

[[tools]]
name = "read file"
top_k = 7
inline = {a = 1, b = {c = "x, }"}}
text = \"\"\"
several "lines" ""\"\"\"
"""


def yaml_values(text: str) -> Any:
    yaml: Any = YAML(typ="safe", pure=True)
    return yaml.load(text)


READERS: Mapping[str, Callable[[str], Any]] = {
    "a.yaml": yaml_values,
    "a.json": json.loads,
    "a.toml": tomllib.loads,
}
TEXTS = {"a.yaml": CONFIG_YAML, "a.json": CONFIG_JSON, "a.toml": CONFIG_TOML}


def put(path: str, text: str, key: str, value: Value) -> str:
    span = locate(path, text, key)
    assert isinstance(span, Span), span
    return text[: span.start] + span.render(value) + text[span.end :]


def why_not(path: str, text: str, key: str) -> str:
    found = locate(path, text, key)
    assert isinstance(found, NoSpan)
    return f"{found.why}: {found.detail}"


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ("a", ("a",)),
        ("a.b-c.d_1", ("a", "b-c", "d_1")),
        ("a[0].b", ("a", 0, "b")),
        ("a[0][12]", ("a", 0, 12)),
        ("tools[name=x].top_k", ("tools", Selector("name", "x"), "top_k")),
        ("tools[name=read file].top_k", ("tools", Selector("name", "read file"), "top_k")),
        ('"my.key".v', ("my.key", "v")),
        ('a["k=1"="]\\""].b', ("a", Selector("k=1", ']"'), "b")),
        ("[1].x", (1, "x")),
    ],
)
def test_a_path_is_read(text: str, parts: tuple[object, ...]):
    assert parse_path(text) == parts


@pytest.mark.parametrize("text", ["", ".a", "a.", "a..b", "a[", "a[x]", "a]", "a b", "a[-1]", '"a'])
def test_what_is_no_path_is_said_to_be_none(text: str):
    assert isinstance(parse_path(text), str)


keys = st.text(min_size=1, max_size=8).filter(str.isprintable)
paths = st.lists(keys | st.integers(0, 99), min_size=1, max_size=5).map(tuple)


@given(paths)
def test_a_path_that_is_shown_reads_back(parts: tuple[str | int, ...]):
    assert parse_path(show_path(parts)) == parts


@pytest.mark.parametrize(
    ("path", "key", "value"),
    [
        ("a.yaml", "model.temperature", 0.7),
        ("a.yaml", "tools[name=search].top_k", 5),
        ("a.yaml", "tools[name=read file].top_k", 7),
        ("a.yaml", "tools[1].name", "read file"),
        ("a.yaml", '"my.key".value', "it's"),
        ("a.json", "model.temperature", 0.7),
        ("a.json", "tools[name=read file].top_k", 7),
        ("a.json", '"my.key".value', 'it\'s é "quoted"'),
        ("a.json", "on", True),
        ("a.toml", "model.temperature", 0.7),
        ("a.toml", "title", "plain"),
        ("a.toml", "limits.tokens", 1000),
        ("a.toml", 'limits."my.key".value', "it's # no comment"),
        ("a.toml", "limits.spread[2][1]", 4),
        ("a.toml", "tools[name=search].top_k", 5),
        ("a.toml", "tools[top_k=5].deep.on", True),
        ("a.toml", "tools[1].inline.b.c", "x, }"),
    ],
)
def test_a_value_is_read_and_a_new_one_stands_in_its_place(path: str, key: str, value: Value):
    text = TEXTS[path]
    assert read_value(path, text, key) == value
    for new in (0.25, 3, True, "word", "two: words #", 1e-05):
        changed = put(path, text, key, new)
        assert read_value(path, changed, key) == new
        assert changed.count("\n") == text.count("\n")


def test_comments_order_and_quotes_stay():
    assert put("a.yaml", CONFIG_YAML, "model.temperature", 0.1) == CONFIG_YAML.replace("0.7", "0.1")
    assert "name: 'other'," in put("a.yaml", CONFIG_YAML, "tools[1].name", "other")
    assert "value: &kept 'so'" in put("a.yaml", CONFIG_YAML, '"my.key".value', "so")
    assert "rate: !!float 4.5" in put("a.yaml", CONFIG_YAML, "limits.rate", 4.5)
    assert "top_k: 9\n" in put("a.yaml", CONFIG_YAML, "tools[0].top_k", 9)
    assert put("a.toml", CONFIG_TOML, "title", "x").startswith("# how the agent works\ntitle = 'x'")
    assert put("a.json", CONFIG_JSON, "empty", 1) == CONFIG_JSON.replace("null", "1")


def test_line_ends_and_a_byte_order_mark_do_not_shift_the_place():
    windows = CONFIG_YAML.replace("\n", "\r\n")
    assert put("a.yaml", windows, "tools[0].top_k", 9) == windows.replace("top_k: 5", "top_k: 9")
    marked = "\ufeffa: 1\nb: 2\n"
    assert put("a.yaml", marked, "b", 3) == "\ufeffa: 1\nb: 3\n"


@pytest.mark.parametrize(
    ("path", "text", "key", "said"),
    [
        ("a.yaml", "a: 1", "b", "target missing: no key `b` in a.yaml, which has `a`"),
        ("a.yaml", "a: {b: 1}", "a.c", "target missing: no key `c` in `a` of a.yaml, which has `b`"),
        ("a.yaml", "a: {b: 1}", "a", "target missing: `a` of a.yaml is a mapping, not a value"),
        ("a.yaml", "a: [1]", "a[1]", "target missing: no item 1 in `a` of a.yaml, which has 1"),
        ("a.yaml", "a: [1]", "a.b", "target missing: `a` of a.yaml is not a mapping"),
        ("a.yaml", "a: 1", "a[0]", "target missing: `a` of a.yaml is not a list"),
        ("a.yaml", "a: 1\na: 2", "a", "ambiguous: key `a` stands 2 times in a.yaml"),
        ("a.json", '{"a": 1, "a": 2}', "a", "ambiguous: key `a` stands 2 times in a.json"),
        ("a.yaml", "[{n: x}, {n: x}]", "[n=x]", "ambiguous: `[n=x]` stands 2 times in a.yaml"),
        ("a.yaml", "[{n: x}]", "[n=y].z", "target missing: no item of a.yaml has `n` = `y`"),
        ("a.yaml", "a: &x 1\nb: *x", "a", "ambiguous: `a` of a.yaml is shared through an alias"),
        ("a.yaml", "a: &x 1\nb: *x", "b", "ambiguous: `b` of a.yaml is shared through an alias"),
        ("a.yaml", "a: &x {c: 1}\nb: *x", "b.c", "ambiguous: `b` of a.yaml is shared through an alias"),
        ("a.toml", CONFIG_TOML, "tools[1].text", "ambiguous: `tools[1].text` of a.toml runs over several lines"),
        ("a.yaml", "a:", "a", "ambiguous: `a` of a.yaml has no value"),
        ("a.yaml", "a: [", "a", "target missing: a.yaml is not YAML: "),
        ("a.yaml", "a: 1\n---\na: 2", "a", "target missing: a.yaml is not YAML: "),
        ("a.yaml", "", "a", "target missing: no key `a` in a.yaml, which has none"),
        ("a.json", "{", "a", "target missing: a.json is not JSON: "),
        ("a.toml", "a = ", "a", "target missing: a.toml is not TOML: "),
        ("a.yaml", "a: 1", "a[", "target missing: `a[` is no path"),
        ("a.env", "A=1", "B", "target missing: no line `B = …` or `B: …` in a.env"),
    ],
)  # fmt: skip
def test_a_value_that_cannot_be_had_is_explained(path: str, text: str, key: str, said: str):
    assert why_not(path, text, key).startswith(said)


def test_an_alias_that_holds_itself_is_no_trap():
    assert why_not("a.yaml", "a: &x [*x, 1]", "a[0][0][0]").startswith("ambiguous")


@pytest.mark.parametrize(
    ("path", "text", "value", "new", "changed"),
    [
        (".env", "A=1\nRATE=0.5\n", 0.5, 0.25, "A=1\nRATE=0.25\n"),
        (".env", 'RATE="0.5" # note\n', 0.5, 0.25, 'RATE="0.25" # note\n'),
        ("a.ini", "[x]\nRATE : slow\n", "slow", "fast", "[x]\nRATE : fast\n"),
        ("a.py", "RATE: float = 1e-3  # why\n", 0.001, 0.5, "RATE: float = 0.5  # why\n"),
        ("a.py", "RATE = True\n", True, False, "RATE = False\n"),
        ("a.cfg", "RATE = true\n", True, False, "RATE = false\n"),
    ],
)
def test_lines_have_values_too(path: str, text: str, value: Value, new: Value, changed: str):
    assert read_value(path, text, "RATE") == value
    assert put(path, text, "RATE", new) == changed


def test_what_is_no_value_is_not_read_as_one():
    assert isinstance(read_value("a.yaml", "a:", "a"), NoSpan)
    assert isinstance(read_value("a.toml", "a = 1979-05-27", "a"), NoSpan)
    assert isinstance(read_value("a.py", "a = f(1)", "a"), NoSpan)


words = st.text(string.ascii_letters + string.digits + " _-.:#'\"{}[],&*!|>%@`\\é☃😀", max_size=9)
scalars = (
    st.booleans()
    | st.integers(-(10**9), 10**9)
    | st.floats(allow_nan=False, allow_infinity=False, width=32)
    | words
)
trees = st.recursive(
    scalars,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(words, inner, max_size=3),
    max_leaves=8,
)
documents = st.dictionaries(words, trees, min_size=1, max_size=4)


Loc = tuple[str | int, ...]


def below(tree: Any) -> list[tuple[str | int, Any]]:
    """Keys or places, and what is there; nothing below a scalar."""
    if isinstance(tree, dict):
        return list(cast("dict[str, Any]", tree).items())
    return list(enumerate(cast("list[Any]", tree))) if isinstance(tree, list) else []


def leaves(tree: Any, at: Loc = ()) -> list[Loc]:
    if not isinstance(tree, dict | list):
        return [at]
    return [leaf for key, value in below(tree) for leaf in leaves(value, (*at, key))]


def replaced(tree: Any, at: Loc, value: Value) -> Any:
    if not at:
        return value
    changed = {key: replaced(v, at[1:], value) if key == at[0] else v for key, v in below(tree)}
    return list(changed.values()) if isinstance(tree, list) else changed


def as_json(tree: Any) -> str:
    return json.dumps(tree, indent="\t", ensure_ascii=False)


def as_ascii(tree: Any) -> str:
    return json.dumps(tree)


def as_toml(tree: Any) -> str:
    """TOML with inline tables below the first level."""
    if isinstance(tree, dict):
        return "{" + ", ".join(f"{as_json(key)} = {as_toml(v)}" for key, v in below(tree)) + "}"
    if isinstance(tree, list):
        return "[" + ", ".join(as_toml(v) for _, v in below(tree)) + "]"
    return json.dumps(tree, ensure_ascii=False)


def write_toml(tree: Any) -> str:
    return "\n".join(f"{as_json(key)} = {as_toml(v)} # note" for key, v in below(tree))


def write_yaml(tree: Any) -> str:
    out = io.StringIO()
    yaml: Any = YAML(pure=True)
    yaml.width = 10_000
    yaml.dump(tree, out)
    return out.getvalue()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("path", "write"),
    [
        ("a.json", as_json),
        ("a.json", as_ascii),
        ("a.yaml", write_yaml),
        ("a.toml", write_toml),
    ],
)
@settings(deadline=None)
@given(data=st.data())
def test_a_value_that_is_set_reads_back_and_every_other_stays(
    path: str, write: Callable[[Any], str], data: st.DataObject
):
    read = READERS[path]
    tree = data.draw(documents.filter(lambda tree: bool(leaves(tree))))
    text = write(tree)
    at = data.draw(st.sampled_from(leaves(tree)))
    new = data.draw(scalars)
    changed = put(path, text, show_path(at), new)
    after = read(changed)
    assert after == replaced(read(text), at, new)
    got = after
    for part in at:
        got = got[part]
    assert type(got) is type(new)
