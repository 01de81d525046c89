"""Runs of every kind whose journal something else changed: no page breaks, each names the line."""

import json
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from kept.core.plan import AGENT_CONFIG, AGENT_RUN, COMPARE, EVALUATE, REFINE, SKILL, SUITE, TASK
from kept.errors import JournalError
from kept.store.home import Home
from kept.store.overview import Glance
from kept.store.reader import Run
from kept.store.verify import verify_run
from kept.ui.web.app import run_view
from kept.ui.web.kinds import kind_of
from kept.ui.web.run_page import Asked
from kept.ui.web.templates import Links
from tests.sampling import sample, some_or_all
from tests.store.damaging import GONE, Damage, damaged, every_damage, lines_of, resealed
from tests.ui.cli.tasks import kept
from tests.ui.web.project import inside

pytestmark = pytest.mark.slow

FEW = 3
"""Keys of a recipe that are missing alone in every run of the tests; nightly all are."""
SOME = 15
"""Ways to damage settings and accounts that are tried, of thousands."""


def open_parts(lines: list[bytes]) -> list[Damage]:
    """What the core leaves open: each fact once, and some fields of settings and accounts."""
    facts = (one for one in every_damage(lines[:1], (7, "x")) if one.place[:1] == ("settings",))
    once = {one.place: one for one in facts if len(one.place) == 2 and one.value in (7, "x")}
    every = every_damage(lines, ("x", 7, []))
    told = [one for one in every if one.place[:2] in (("reply", "about"), ("turn", "settings"))]
    return [*once.values(), *told[:: 1 + len(told) // SOME]]


def one_of_each(home: Path) -> dict[str, Path]:
    """A run of every recipe."""
    folders = Home(home).folders()
    return {json.loads(lines_of(f / "journal.jsonl")[0])["recipe"]: f for f in folders}


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
    for recipe, folder in one_of_each(home).items():
        spine, lines = folder / "journal.jsonl", lines_of(folder / "journal.jsonl")
        (folder / "steps.idx").unlink()  # it tells how long the journal is
        for damage in open_parts(lines):
            spine.write_bytes(resealed(damaged(lines, damage).splitlines()))
            if told := why_no_page(folder):
                assert f"{spine}:{damage.line}: " in told, f"{recipe}, {damage}: {told}"
                named |= {f"{recipe} {damage.place[0]}"}
    kinds = (TASK, AGENT_RUN, COMPARE, EVALUATE, AGENT_CONFIG, REFINE, SKILL, SUITE)
    assert named >= {f"{kind} settings" for kind in kinds}
    assert named >= {f"{kind} reply" for kind in (REFINE, SUITE)}


def test_runs_of_every_kind_are_whole_and_their_owners_alone(project: Path):
    for recipe, folder in one_of_each(project / ".kept").items():
        assert [one for one in verify_run(folder) if one.severity != "ok"] == [], recipe
    paths = [path for path in (project / ".kept").rglob("*") if not path.is_symlink()]
    shown = [path for path in paths if path.stat().st_mode & 0o077]
    # files that `make_project` itself wrote, as the original tool would have
    foreign = ("awp.db", "refine_20260419T182438Z.json", "seed/runs")
    assert [path for path in shown if not str(path).endswith(foreign)] == []


DEEP = {EVALUATE: 3}
"""By recipe, names from a record to the last key that is tried; else 2."""
READING = (("show",), ("report",), ("diff",), ("resume", "-q"))


def moved(project: Path, to: Path) -> Path:
    """A copy of a project whose runs go on in the copy; its home."""
    shutil.copytree(project, to, symlinks=True)
    for spine in to.glob(".kept/runs/*/journal.jsonl"):
        here = spine.read_bytes().replace(str(project).encode(), str(to).encode())
        spine.write_bytes(resealed(here.splitlines()))
    return to / ".kept"


def without_each_key(lines: list[bytes], recipe: str) -> Iterator[tuple[str, bool, bytes]]:
    """Each key of a request and of facts: the journal without it, and with another in its place.

    With the key, and whether another is there instead.
    """
    for one in every_damage(lines[:1], ()):
        inside = one.place[0] in ("request", "facts") and len(one.place) > 1
        if inside and one.value is GONE and len(one.place) <= DEEP.get(recipe, 2):
            last = list(one.place)[-1]
            key = str(last)
            yield key, False, damaged(lines, one)
            yield key, True, b"".join((renamed(lines[0], one), *lines[1:]))


def renamed(line: bytes, damage: Damage) -> bytes:
    """A record whose key is called otherwise."""
    record = here = json.loads(line)
    above, key = damage.place[:-1], damage.place[-1]
    for name in above:
        here = here[name]
    here[f"{key}_"] = here.pop(key)
    return json.dumps(record, separators=(",", ":")).encode() + b"\n"


def some_changes(lines: list[bytes], recipe: str) -> Iterator[tuple[str, bytes]]:
    """Each key renamed, which is missing as well, and a few missing alone."""
    every = list(without_each_key(lines, recipe))
    yield from ((key, changed) for key, renamed, changed in every if renamed)
    yield from sample([(key, changed) for key, renamed, changed in every if not renamed], FEW)


def all_changes(lines: list[bytes], recipe: str) -> Iterator[tuple[str, bytes]]:
    """Each key missing and renamed."""
    return ((key, changed) for key, _, changed in without_each_key(lines, recipe))


@some_or_all
def test_a_key_inside_a_recipe_s_fact_may_be_missing_or_renamed_and_no_command_breaks(
    project: Path, tmp_path: Path, everything: bool
):
    home, named = moved(project, tmp_path / "project"), dict[str, set[str]]()
    changes = all_changes if everything else some_changes
    with inside(tmp_path / "elsewhere", KEPT_HOME=str(home), KEY="sk"):
        for recipe, folder in one_of_each(home).items():
            spine, lines = folder / "journal.jsonl", lines_of(folder / "journal.jsonl")
            told = named.setdefault(recipe, set())
            for key, changed in changes(lines, recipe):
                spine.write_bytes(resealed(changed.splitlines()))
                for command, *flags in READING:
                    called = kept(command, folder.name, *flags)
                    assert called.code in range(4), f"{recipe}, {key}: {called}"
                    assert "internal error" not in called.stderr, f"{recipe}, {key}: {called}"
                    if "not a record of this journal" in called.stderr:
                        assert f"{spine}:1: " in called.stderr and key in called.stderr
                        told |= {key}
                assert "internal error" not in kept("runs").stderr
                why_no_page(folder)
            spine.write_bytes(b"".join(lines))
    assert named[COMPARE] >= {"words", "here", "cases", "commits", "compared"}
    assert named[EVALUATE] >= {"repeats", "limit"}
    assert named[AGENT_CONFIG] >= {"max_cycles", "output"}
    assert named[REFINE] >= {"run", "gate", "artifacts"}
    assert named[AGENT_RUN] >= {"task", "output"}
    assert named[SUITE] >= {"epochs", "target", "folder", "stamp"}
    assert named[SKILL] >= {"folder"}
