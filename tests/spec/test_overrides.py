"""`--set KEY=VALUE`: which value of a spec a key means."""

from pathlib import Path
from typing import Any

import pytest

from kept.errors import SpecError
from kept.spec.source import read_source, set_by, split_override

SPEC = """\
id: x
tools:
  - {name: search, database: a.db, filters: [{field: kind, value: "="}]}
  - {name: fetch, database: b.db}
  - {name: fetch, kind: second}
  - {name: 7}
proposers: [{kind: edit}, {kind: prune}]
"""


def data_of(folder: Path, *overrides: str) -> Any:
    (folder / "spec.yaml").write_text(SPEC)
    source = read_source(folder / "spec.yaml", overrides)
    source.check()
    return source.data


@pytest.mark.parametrize(
    ("override", "place", "value"),
    [
        ("proposers[0].kind=reflect", ("proposers", 0, "kind"), "reflect"),
        ("proposers.1.kind=reflect", ("proposers", 1, "kind"), "reflect"),
        ("proposers[1]={kind: edit}", ("proposers", 1), {"kind": "edit"}),
        ("tools[name=search].database=c.db", ("tools", 0, "database"), "c.db"),
        ("tools[kind=second].top_k=5", ("tools", 2, "top_k"), 5),
        ("tools[name=7].database=x=y", ("tools", 3, "database"), "x=y"),
        (
            "tools[name=search].filters[field=kind].value=z",
            ("tools", 0, "filters", 0, "value"),
            "z",
        ),
        ('"id"=y', ("id",), "y"),
    ],
)
def test_a_key_reaches_an_item_of_a_list(
    tmp_path: Path, override: str, place: tuple[str | int, ...], value: object
):
    here = data_of(tmp_path, override)
    assert set_by(override, data_of(tmp_path)) == (place, value)
    for part in place:
        here = here[part]
    assert here == value


@pytest.mark.parametrize(
    ("override", "words"),
    [
        ("tools[name=none].x=1", "tools: no item whose `name` is `none`; there are `search`, "),
        ("tools[name=fetch].x=1", "tools: 2 items whose `name` is `fetch`"),
        ("id[name=a].x=1", "id: no item whose `name` is `a`"),
        ("tools[9].x=1", "unknown key"),
        ("tools[.x=1", "is no path"),
    ],
)
def test_a_key_that_names_no_item_is_a_problem_with_its_flag(
    tmp_path: Path, override: str, words: str
):
    with pytest.raises(SpecError) as caught:
        data_of(tmp_path, override)
    (problem,) = caught.value.problems
    assert problem.where == f"--set {override}"
    assert words in problem.message


@pytest.mark.parametrize(
    ("override", "parts"),
    [
        ("a.b=c=d", ("a.b", "=", "c=d")),
        ("a[b=c].d=e", ("a[b=c].d", "=", "e")),
        ('"a=b".c=d', ('"a=b".c', "=", "d")),
        ("a", ("a", "", "")),
        ("=3", ("", "=", "3")),
    ],
)
def test_an_override_is_split_at_the_sign_outside_brackets(override: str, parts: tuple[str, ...]):
    assert split_override(override) == parts
