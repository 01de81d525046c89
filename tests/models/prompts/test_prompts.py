"""Kept's own prompts, what may stand in them, and the page that says so."""

import re
from pathlib import Path

import kept.models.prompts
from kept.models.prompts import ABOUT, NAMES, PLACEHOLDERS, filled, prompt, strange_places
from kept.proposers.prompt_items import Sight, facts_of, items_of
from tests.proposers.briefs import make_brief
from tests.proposers.test_forms import full_brief, on_a_near_miss

PAGE = (Path(__file__).parents[3] / "docs" / "guide" / "prompts.md").read_text()


def rows(title: str) -> list[list[str]]:
    """The cells of the table in a section of the page."""
    part = PAGE.partition(f"## {title}\n")[2].partition("\n## ")[0]
    found = [line.strip("| ").split(" | ") for line in part.splitlines() if line.startswith("| ")]
    return found[1:]


def test_there_is_a_file_for_each_name_and_no_other():
    folder = Path(kept.models.prompts.__file__).parent
    assert {path.stem for path in folder.glob("*.md")} == {*NAMES}
    assert ABOUT.keys() == PLACEHOLDERS.keys() == {*NAMES}


def test_what_stands_in_kepts_own_prompts_is_known():
    strange = {name: [*strange_places(name, prompt(name))] for name in NAMES}
    assert strange == {name: [] for name in NAMES}


def test_the_page_tells_every_prompt_and_what_each_placeholder_holds():
    told = {(name, cells[1]): cells[2] for cells in rows("Placeholders") for name in names(cells)}
    assert told == {
        (name, f"`{{{{kept.{place}}}}}`"): holds
        for name, places in PLACEHOLDERS.items()
        for place, holds in places.items()
    }
    wide = max(map(len, NAMES))
    for name in NAMES:
        assert f"\n{name:<{wide}}  {ABOUT[name]}" in PAGE


def names(cells: list[str]) -> list[str]:
    return re.findall(r"`(\w+)`", cells[0])


def test_the_page_tells_every_part_that_is_sent_behind_a_prompt():
    items = items_of(on_a_near_miss(full_brief()), Sight(("question",)))
    sent = list(dict.fromkeys(item.what for item in items))
    assert [cells[0] for cells in rows("What is sent behind a prompt")] == sent


def test_every_placeholder_has_something_to_hold():
    brief = full_brief()
    held = facts_of(brief)
    assert all(held.keys() == PLACEHOLDERS[name].keys() for name in ("edit", "reflect"))
    assert held == {
        "metric": "score",
        "direction": "maximize",
        "bounds": "any",
        "files": "prompt.md",
        "max_files": "1",
        "max_changed_lines": "9",
    }
    free = facts_of(make_brief({"b.md": "", "a.md": ""}))
    assert (free["files"], free["max_files"]) == ("a.md, b.md", "any number")


def test_only_what_is_known_is_filled_in_and_strange_ones_are_told_with_their_lines():
    text = "{{kept.metric}} of {{ kept.files }}\n{{question}} {kept.metric}\n{{kept.metrik}}"
    found = filled(text, {"metric": "m", "files": "f"})
    assert found == "m of f\n{{question}} {kept.metric}\n{{kept.metrik}}"
    assert [*strange_places("edit", text)] == [(3, "{{kept.metrik}}")]
    assert [line for line, _ in strange_places("judge", text)] == [1, 1, 3]
