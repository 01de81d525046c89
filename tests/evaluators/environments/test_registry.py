import re
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from kept.errors import SpecError
from kept.evaluators.environments.base import EnvSettings
from kept.evaluators.environments.qa import SearchQa
from kept.evaluators.environments.registry import BUILT_IN, find_env, names

OWN = """\
from kept.evaluators.environments.jsonl import Jsonl


class Own(Jsonl):
    name = "own"


def not_one(): ...


half = 7
"""


@pytest.fixture(autouse=True)
def clean_path() -> Iterator[None]:
    before = list(sys.path)
    yield
    sys.path[:] = before
    sys.modules.pop("own_env", None)


def test_a_built_in_environment_is_found_with_its_options():
    env = find_env(EnvSettings(name="searchqa", options={"max_turns": 3}))
    assert env == SearchQa(max_turns=3)


def test_every_built_in_environment_can_be_named():
    assert set(BUILT_IN) <= set(names())
    for name in BUILT_IN:
        assert find_env(EnvSettings(name=name)).name == name


def test_a_class_of_the_users_is_found_beside_the_config(tmp_path: Path):
    (tmp_path / "own_env.py").write_text(OWN)
    env = find_env(EnvSettings(name="own_env:Own", folder=tmp_path))
    assert env.name == "own"


def test_an_entry_point_is_found_by_its_name(tmp_path: Path):
    (tmp_path / "own_env.py").write_text(OWN)
    info = tmp_path / "own_env-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: own-env\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text("[kept.environments]\nmine = own_env:Own\n")
    sys.path.insert(0, str(tmp_path))
    assert find_env(EnvSettings(name="mine")).name == "own"
    assert "mine" in names()


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("serchqa", "there is no environment `serchqa` (hint: did you mean `searchqa`?"),
        ("own_env:Nobody", "`own_env:Nobody` cannot be loaded: module 'own_env' has no attribute"),
        ("nowhere:Env", "there is no module `nowhere`"),
        (
            "own_env:not_one",
            "`own_env:not_one` is no environment: it lacks `name`, `about`, `begin`",
        ),
        ("own_env:half", "`own_env:half` is no class"),
    ],
)
def test_what_is_no_environment_is_refused(tmp_path: Path, name: str, message: str):
    (tmp_path / "own_env.py").write_text(OWN)
    with pytest.raises(SpecError) as error:
        find_env(EnvSettings(name=name, folder=tmp_path, where=lambda key: "config.yaml:3"))
    assert str(error.value).startswith(f"config.yaml:3 env.name: {message}")


def test_the_guide_makes_an_environment_in_forty_lines():
    page = (Path(__file__).parents[3] / "docs/guide/environments.md").read_text()
    block = page.partition("<!-- file: roman.py -->\n```python\n")[2].partition("```")[0]
    assert 20 < len(block.splitlines()) <= 40


def test_all_options_that_are_wrong_are_said_at_once():
    options = {"max_turn": 2, "max_turns": "many", "colour": "red"}
    with pytest.raises(SpecError) as error:
        find_env(EnvSettings(name="searchqa", options=options, where=lambda key: f"a.yaml:{key}"))
    assert [str(one) for one in error.value.problems] == [
        "a.yaml:max_turn env.max_turn: the environment `searchqa` has no such option "
        "(hint: did you mean `max_turns`?)",
        "a.yaml:max_turns env.max_turns: input should be a valid integer, "
        "unable to parse string as an integer",
        "a.yaml:colour env.colour: the environment `searchqa` has no such option "
        "(hint: its options: `max_context_chars`, `max_turns`)",
    ]


def test_an_option_out_of_range_is_refused():
    with pytest.raises(SpecError, match="`max_turns` is less than 1"):
        find_env(EnvSettings(name="searchqa", options={"max_turns": 0}))


def test_an_option_that_is_a_list_is_asked_for_as_one():
    with pytest.raises(SpecError, match=r"a list, as in `\[one, two\]`"):
        find_env(EnvSettings(name="officeqa", options={"data_dirs": "docs"}))


@pytest.mark.parametrize("name", sorted({*BUILT_IN} - {"jsonl"}))
def test_missing_data_is_told_with_what_to_get_and_where(name: str):
    """Of five environments the error said only that there is no such folder."""
    env = find_env(EnvSettings(name=name))
    assert re.search(r"\w+\.\w+/[\w-]+", env.data), "an address"
    assert "`env." in env.data, "a place"
