"""`kept prompts`: what models are told, listed, shown and copied out."""

import json
from pathlib import Path

import pytest

from kept.prompts import NAMES, PLACEHOLDERS, Name, prompt
from tests.cli.tasks import kept


def test_all_prompts_are_listed_with_what_may_stand_in_them(here: Path):
    told = kept("prompts", "list", "--json")
    rows = {row["name"]: row for row in told.json}
    assert rows.keys() == {*NAMES}
    assert rows["judge"]["placeholders"] == dict(PLACEHOLDERS["judge"])
    assert rows["edit"]["text"] == prompt("edit")
    assert all(name in kept("prompts", "list").stdout for name in NAMES)


@pytest.mark.parametrize("name", NAMES)
def test_one_is_shown_as_it_is(here: Path, name: Name):
    assert kept("prompts", "show", name).stdout == prompt(name)


def test_those_that_a_task_can_name_are_copied_and_nothing_is_overwritten(here: Path):
    made = kept("prompts", "copy", "mine/prompts", "--json")
    assert json.loads(made.stdout) == [
        f"mine/prompts/{name}.md" for name in NAMES if name != "component"
    ]
    for file in made.json:
        assert (here / file).read_text() == prompt(Path(file).stem)  # pyright: ignore[reportArgumentType] # of the names above
    (here / "mine" / "prompts" / "edit.md").write_text("changed\n")
    again = kept("prompts", "copy", "mine/prompts", "simplify", "edit")
    assert again.code == 2
    assert "`mine/prompts/edit.md` is there already" in again.stderr
    assert (here / "mine" / "prompts" / "edit.md").read_text() == "changed\n"
    some = kept("prompts", "copy", "other", "edit", "judge_pair")
    assert some.stdout.splitlines() == ["other/edit.md", "other/judge_pair.md"]
    assert kept("prompts", "show", "nothing").code == 2
