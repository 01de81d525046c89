"""Runs of every kind whose journal something else changed: no page breaks, each names the line."""

import json
import shutil
from pathlib import Path

import pytest

from kept.core.plan import AGENT_RUN, COMPARE, COORDINATE, EVAL, REFINE, SKILL, SUITE
from kept.errors import JournalError
from kept.store.glance import Glance
from kept.store.home import Home
from kept.store.reader import Run
from kept.web.app import run_view
from kept.web.kind import Asked
from kept.web.kinds import kind_of
from kept.web.links import Links
from tests.store.damaging import Damage, damaged, every_damage, lines_of

pytestmark = pytest.mark.slow

SOME = 15
"""Ways to damage settings and accounts that are tried, of thousands."""


def open_parts(lines: list[bytes]) -> list[Damage]:
    """What the core leaves open: each fact once, and some fields of settings and accounts."""
    facts = (one for one in every_damage(lines[:1], (7, "x")) if one.place[:1] == ("facts",))
    once = {one.place: one for one in facts if len(one.place) == 2 and one.value in (7, "x")}
    every = every_damage(lines, ("x", 7, []))
    told = [one for one in every if one.place[:2] in (("reply", "about"), ("turn", "settings"))]
    return [*once.values(), *told[:: 1 + len(told) // SOME]]


def why_no_page(folder: Path) -> str:
    """What is wrong with a run; empty where its page is made."""
    try:
        told = Glance(folder).refresh()
        with Run(folder, told) as run:
            run_view(run, told, kind_of(told.begun.recipe), Links(), Asked())
    except JournalError as error:
        return str(error)
    return ""


def test_no_page_of_any_kind_breaks_and_what_is_damaged_is_named(project: Path, tmp_path: Path):
    home = tmp_path / ".kept"
    shutil.copytree(project / ".kept", home, symlinks=True)
    named: set[str] = set()
    runs: dict[str, Path] = {}
    for folder in Home(home).folders():
        runs[json.loads(lines_of(folder / "journal.jsonl")[0])["recipe"]] = folder
    for recipe, folder in runs.items():
        spine, lines = folder / "journal.jsonl", lines_of(folder / "journal.jsonl")
        for damage in open_parts(lines):
            spine.write_bytes(damaged(lines, damage))
            if told := why_no_page(folder):
                assert f"{spine}:{damage.line}: " in told, f"{recipe}, {damage}: {told}"
                named |= {f"{recipe} {damage.place[0]}"}
    kinds = ("artifact", AGENT_RUN, COMPARE, EVAL, COORDINATE, REFINE, SKILL, SUITE)
    assert named >= {f"{kind} facts" for kind in kinds}
    assert named >= {f"{kind} reply" for kind in (REFINE, SUITE)}
