"""Whatever stands anywhere in an agent.yaml, there is an answer: an agent, or what is wrong."""

import copy
import json
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

import pytest

from kept.errors import SpecError
from kept.recipes.agent_config.spec.read import read_agent
from kept.spec.yaml import Loc, read_yaml
from tests.recipes.agent_config.spec.agents import AGENT, FINANCE, ROUTER, write

ODD: list[object] = [
    *(None, 0, -1, 1.5, True, "", " ", "x", "${NOT_SET}", "${DESK_KEY}", 10**30, "../x"),
    *([], {}, [None], {"a": None}, [[1]], {"type": "x"}, {"provider": 3}, [{"name": 1}], "a\0b"),
]
OTHERS = {"tools.py": "", "docs/a.md": ""}


def places(value: Any, loc: Loc = ()) -> Iterator[Loc]:
    pairs: Any = ()
    if isinstance(value, dict):
        pairs = cast("dict[str, Any]", value).items()
    elif isinstance(value, list):
        pairs = enumerate(cast("list[Any]", value))
    for key, inner in pairs:
        yield (*loc, key)
        yield from places(inner, (*loc, key))


@pytest.mark.parametrize(
    ("files", "name"),
    [
        ({"agent.yaml": AGENT, **OTHERS}, "agent.yaml"),
        (ROUTER, "agent.yaml"),
        (ROUTER, "config.yaml"),
        (FINANCE, "agent.yaml"),
        (FINANCE, "data/cases.yaml"),
    ],
)
def test_any_value_anywhere_is_taken_or_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, files: dict[str, str], name: str
):
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    for variable in ("DESK_KEY", "DESK_ENDPOINT", "SHELF"):
        monkeypatch.setenv(variable, "a-value-of-its-own")
    write(tmp_path, files)
    data: Any = read_yaml(files[name]).data
    chance = random.Random(7)
    told = 0
    for loc in places(data):
        changed = copy.deepcopy(data)
        holder = changed
        for part in loc[:-1]:
            holder = holder[part]
        holder[loc[-1]] = chance.choice(ODD)
        # JSON is YAML
        (tmp_path / name).write_text(json.dumps(changed))
        try:
            read_agent(tmp_path / "agent.yaml")
        except SpecError as error:
            told += 1
            assert all(problem.place for problem in error.problems)
    assert told > 3
