"""A journal that something else changed: told by file and line, and nothing is lost."""

import asyncio
import json
import re
import shutil
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kept.core.event import RunSettings, RunStarted
from kept.core.llm import ModelReply
from kept.core.plan import SKILL
from kept.core.state import State
from kept.errors import JournalError, KeptError, RunError
from kept.recipes.evaluate.request import Evaluation, Wanted
from kept.results.diffs import best_diff
from kept.results.steps import step_detail
from kept.results.summary import summary
from kept.run import resume, start
from kept.sandbox.capabilities import abilities
from kept.store.codec import document_of
from kept.store.home import Home
from kept.store.journal import RunJournal
from kept.store.jsonl import decoded, never_began
from kept.store.reader import Run
from kept.store.run_index import RunIndex
from kept.ui.report.json import as_json
from kept.ui.report.markdown import markdown
from kept.ui.report.step import step_json
from kept.ui.web.app import make_app, run_view
from kept.ui.web.kinds import kind_of
from kept.ui.web.run_page import Asked
from kept.ui.web.run_source import Runs
from kept.ui.web.templates import Links
from tests.engine.worlds import make_plan
from tests.recipes.refine.world import scores, world
from tests.store.damaging import GONE, Damage, damaged, every_damage, lines_of, resealed
from tests.ui.cli.tasks import kept
from tests.ui.web.test_source import asked

FILES = ("journal.jsonl", "rollouts.jsonl")
STEPS = 5


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A finished run, with calls of a model in its proposals."""
    home = Home(tmp_path_factory.mktemp("whole") / ".kept")
    plan, _, _ = make_plan(2, STEPS, 3)
    return asyncio.run(start(plan, home)).folder


def restored(whole: Path, to: Path) -> Path:
    shutil.rmtree(to, ignore_errors=True)
    for index in to.parents[1].glob("index.db*"):
        index.unlink()
    shutil.copytree(whole, to, symlinks=True)
    return to


def resumed(folder: Path) -> State:
    plan, _, _ = make_plan(2, STEPS, 3)
    return asyncio.run(resume(plan, folder)).state


def summed_up(run: Run) -> object:
    return summary(run), markdown(run), as_json(run), best_diff(run)


def looked_into(run: Run) -> object:
    return [step_json(step_detail(run, n, traces=True)) for n in range(STEPS)]


def paged(run: Run) -> object:
    told = run.glance
    kind = kind_of(told.begun.recipe)
    return run_view(run, told, kind, Links(), Asked())


def listed(run: Run) -> object:
    (row,) = RunIndex(Home(run.folder.parents[1])).rows()
    if row.status == "unreadable":
        raise JournalError(row.reason)
    return row


READERS: tuple[Callable[[Run], object], ...] = (summed_up, looked_into, paged, listed)


def told_by(folder: Path, reader: Callable[[Run], object]) -> str:
    """What a reader says is wrong; empty where it reads the run."""
    with Run(folder) as run:
        try:
            reader(run)
        except KeptError as error:
            return str(error)
    return ""


@pytest.mark.slow
@settings(max_examples=40)
@given(data=st.data())
def test_any_field_of_a_spine_may_be_wrong_and_every_reader_names_its_line_or_does_without(
    data: st.DataObject, whole: Path
):
    lines = lines_of(whole / "journal.jsonl")
    damage = data.draw(st.sampled_from(every_damage(lines)))
    indexed = data.draw(st.booleans())
    folder = restored(whole, whole.parents[2] / "damaged" / ".kept" / "runs" / "damaged")
    spine = folder / "journal.jsonl"
    spine.write_bytes(resealed(damaged(lines, damage).splitlines()))
    if not indexed:
        (folder / "steps.idx").unlink()
    before = {name: (folder / name).read_bytes() for name in FILES}
    for reader in READERS:
        check_place(told_by(folder, reader), damage)
    assert {name: (folder / name).read_bytes() for name in FILES} == before
    try:
        resumed(folder)
    except JournalError as error:
        check_place(str(error), damage)
        assert {name: (folder / name).read_bytes() for name in FILES} == before
    except KeptError:
        pass  # the run goes on from what it says, and cannot: that is told as well
    assert spine.read_bytes().startswith(before["journal.jsonl"])


def check_place(told: str, damage: Damage) -> None:
    """An error names the line that was changed, or one that no longer follows from it."""
    if not told or "has no entry" in told or "changed since it started" in told:
        return  # a name of something that is not there
    found = re.search(r"journal\.jsonl:(\d+): ", told)
    assert found is not None, f"{damage}: {told}"
    assert int(found[1]) >= damage.line, f"{damage}: {told}"


SETTINGS = {
    "direction": 7,
    "proposers": "editor",
    "budget": [14],
    "constraints": [{"metric": "score", "op": "<"}],
}


@pytest.mark.parametrize("name", SETTINGS)
def test_a_setting_of_another_kind_is_named_by_its_line_and_its_path(
    name: str, whole: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    folder = restored(whole, tmp_path / ".kept" / "runs" / whole.name)
    monkeypatch.chdir(tmp_path)
    lines = lines_of(folder / "journal.jsonl")
    first: dict[str, Any] = json.loads(lines[0])
    first["settings"][name] = SETTINGS[name]
    lines[0] = json.dumps(first).encode() + b"\n"
    (folder / "journal.jsonl").write_bytes(resealed(lines))
    place = rf"journal\.jsonl:1: not a record of this journal \(.*`\$\.settings\.{name}.*`\)"
    for words in ("show", "report", "diff", "resume"):
        called = kept(words)
        assert (called.code, called.stdout) == (2, ""), words
        assert re.search(place, called.stderr) and "restore it from a copy" in called.stderr
    listed = kept("runs")
    assert listed.code == 0 and "unreadable" in listed.stdout and "journal.jsonl:1" in listed.stdout
    app = make_app(Runs(Home(tmp_path / ".kept")))
    status, text = asked(app, f"/runs/{folder.name}")
    assert status == 409 and "journal.jsonl:1" in text
    assert asked(app, "/")[0] == 200


def test_a_run_that_was_mended_is_listed_again_though_its_journal_has_the_same_size(
    whole: Path, tmp_path: Path
):
    folder = restored(whole, tmp_path / ".kept" / "runs" / whole.name)
    spine, index = folder / "journal.jsonl", RunIndex(Home(tmp_path / ".kept"))
    right = spine.read_bytes()
    spine.write_bytes(right.replace(b'"proposers":[', b'"proposers":{', 1))
    (row,) = index.rows()
    assert row.status == "unreadable" and f"{spine}:1: " in row.reason
    spine.write_bytes(right)
    (row,) = index.rows()
    assert (row.status, row.steps) == ("finished", STEPS)


def test_a_damaged_line_of_the_rollouts_is_named_left_out_and_asked_for_again(
    whole: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
):
    lines = lines_of(whole / "rollouts.jsonl")
    events = lines_of(whole / "journal.jsonl")
    end = resumed(restored(whole, tmp_path / "whole")).settled()
    calls = [n for n, line in enumerate(lines, 1) if b'"kind":"call"' in line]
    assert calls, "there is no call to be damaged"
    for line, place, value in (
        (calls[0], ("reply",), 7),
        (calls[0], ("reply", "text"), ["x"]),
        (calls[0], ("stored",), True),
        (calls[0], ("key",), 7),
        (2, ("metrics",), "x"),
        (2, ("metrics", "score"), "x"),
        (3, ("repeat",), GONE),
    ):
        folder = restored(whole, tmp_path / "damaged")
        # the run as it was when it began: all lines are asked for once more
        (folder / "journal.jsonl").write_bytes(b"".join(events[:3]))
        damage = Damage(line, place, value)
        (folder / "rollouts.jsonl").write_bytes(damaged(lines, damage))
        caplog.clear()
        state = resumed(folder)
        assert state.settled() == end, str(damage)
        assert f"rollouts.jsonl:{line}: a damaged line is left out" in caplog.text, str(damage)


def test_of_two_lines_with_one_request_the_damaged_one_is_named(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
):
    with closing(RunJournal(tmp_path)) as journal:
        for scope in ("propose/1", "propose/2"):
            journal.record_call(scope, "same", ModelReply("yes"))
    path = tmp_path / "rollouts.jsonl"
    header, first, second = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(resealed([header, first, second.replace(b'"yes"', b"7")]) + b"x\n")
    with closing(RunJournal(tmp_path)) as journal:
        journal.tail(0)
        assert journal.calls("propose/2", "same", ModelReply) == []
    assert "rollouts.jsonl:3: a damaged line is left out" in caplog.text
    assert "rollouts.jsonl:4: a damaged line is left out" in caplog.text


def test_a_page_that_needs_a_damaged_line_or_entry_refuses_and_the_others_are_served(
    whole: Path, tmp_path: Path
):
    folder = restored(whole, tmp_path / ".kept" / "runs" / whole.name)
    with Run(folder) as run:
        step, job, _ = next(run.rollouts())
    app = make_app(Runs(Home(tmp_path / ".kept")))
    page = f"/runs/{folder.name}"
    cell = f"{page}/steps/{step}/cases/{job.case_id}"
    assert [asked(app, url)[0] for url in (page, cell)] == [200, 200]
    path = folder / "rollouts.jsonl"
    path.write_bytes(path.read_bytes().replace(b'"metrics":{"score":', b'"metrics":{"scorf":', 1))
    status, text = asked(app, cell)
    assert status == 409 and "rollouts.jsonl:2: " in text
    assert asked(app, page)[0] == 200


@pytest.mark.parametrize("grown", [-9, 9])
def test_a_line_of_another_length_moves_no_other_line(grown: int, whole: Path, tmp_path: Path):
    folder = restored(whole, tmp_path / "runs" / "grown")
    with Run(folder) as run:
        before = [[*run.rollouts(n)] for n in range(STEPS)]
    path = folder / "rollouts.jsonl"
    lines = path.read_bytes().splitlines(keepends=True)
    at = len(b"".join(lines[:2]))
    lines[2] = (lines[2][:-1] + b" " * 9)[: len(lines[2]) - 1 + grown] + b"\n"
    path.write_bytes(b"".join(lines))
    with Run(folder) as run:
        for step in range(STEPS):
            first, last = run.closed(step).rollouts
            if first <= at < last:
                with pytest.raises(JournalError, match=r"rollouts\.jsonl:3: .* checksum"):
                    assert [*run.rollouts(step)]
            else:
                assert [*run.rollouts(step)] == before[step], "by the offsets it was written at"


def test_a_line_that_ran_into_the_one_before_it_is_missed_in_its_step(whole: Path, tmp_path: Path):
    folder = restored(whole, tmp_path / "runs" / "joined")
    path = folder / "rollouts.jsonl"
    data = path.read_bytes()
    with Run(folder) as run:
        ranges = [run.closed(n).rollouts for n in range(STEPS)]
    for step, (first, last) in enumerate(ranges):
        number = data[:first].count(b"\n")
        # the newline before a step, alone; and with all of the file that follows its first line
        for joined in (data[: first - 1] + data[first:], data[: first - 1] + data[first:last]):
            path.write_bytes(joined)
            place = rf"rollouts\.jsonl:{number}: "
            with Run(folder) as run, pytest.raises(JournalError, match=place):
                assert [*run.rollouts(step)]


def test_a_line_that_was_taken_out_is_missed(whole: Path, tmp_path: Path):
    folder = restored(whole, tmp_path / "runs" / "missing")
    path = folder / "rollouts.jsonl"
    lines = path.read_bytes().splitlines(keepends=True)
    size = len(lines.pop(2))
    path.write_bytes(b"".join(lines))
    with Run(folder) as run:
        with pytest.raises(JournalError, match=rf"rollouts\.jsonl:3: .*{size} bytes are missing"):
            assert [*run.rollouts(0)]
        with pytest.raises(JournalError, match=rf"rollouts\.jsonl:3: .*{size} bytes are missing"):
            summed_up(run)


def test_a_journal_that_was_cut_after_its_end_is_refused_and_goes_on(
    whole: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
):
    end = resumed(restored(whole, tmp_path / "whole")).settled()
    folder = restored(whole, tmp_path / "runs" / "cut")
    lines = lines_of(folder / "journal.jsonl")
    (folder / "journal.jsonl").write_bytes(b"".join(lines[:7]))
    place = rf"journal\.jsonl:8: the file ends here, and {len(b''.join(lines[7:]))} bytes"
    for reader in READERS[:3]:
        assert re.search(place, told_by(folder, reader)), reader
    assert resumed(folder).settled() == end
    assert "bytes are missing at its end; what they held is done again" in caplog.text


@pytest.mark.sandbox
@pytest.mark.skipif(not abilities().walls, reason="no walls here")
def test_a_refinement_whose_iterations_cannot_be_read_is_listed_as_unreadable(tmp_path: Path):
    folder = world(tmp_path, *scores(0.7, 0.9), iterations=2).start().folder
    index = RunIndex(Home.around(folder))
    assert [row.iteration for row in index.with_iterations()] == [0, 1, 2]
    spine = folder / "journal.jsonl"
    lines = lines_of(spine)
    # a record that the row of the run itself is made without
    at = next(n for n, line in enumerate(lines) if line.endswith(b'"kind":"proposed"}\n'))
    lines[at] = lines[at].replace(b'"step":', b'"stop":')
    spine.write_bytes(b"".join(lines))
    for path in folder.parents[1].glob("index.db*"):
        path.unlink()
    for _ in range(2):
        (row,) = index.with_iterations()
        assert row.status == "unreadable" and f"journal.jsonl:{at + 1}: " in row.reason


def test_what_could_not_be_read_back_is_not_written(tmp_path: Path):
    journal = RunJournal(tmp_path)
    bad = RunSettings(width="wide")  # pyright: ignore[reportArgumentType] # what a program may do
    event = RunStarted(
        run_id="r", recipe="x", seed="s", inputs={}, settings=bad, version="0", t=1.0
    )
    with pytest.raises(RunError, match=r"cannot be written down: .*`\$\.settings\.width`"):
        journal.append(event)
    journal.close()
    assert (tmp_path / "journal.jsonl").read_bytes() == b""


def test_a_request_has_all_keys_of_its_type_and_no_others():
    asked = document_of(Evaluation(of=SKILL, wanted=Wanted(limit=3), folder="/somewhere"))
    assert decoded(asked, Evaluation, "request").wanted.limit == 3
    without = {name: value for name, value in asked.items() if name != "folder"}
    with pytest.raises(JournalError, match=r"journal\.jsonl:1: .*`request\.folder` is missing"):
        decoded(without, Evaluation, "request")
    renamed = {**asked, "wanted": {**document_of(Wanted()), "most": 3}}
    with pytest.raises(JournalError, match=r"`request\.wanted\.most` is no key that is known"):
        decoded(renamed, Evaluation, "request")
    with pytest.raises(JournalError, match=r"`request\.of`: Expected `str`, got `int`"):
        decoded({**asked, "of": 7}, Evaluation, "request")


def test_doctor_names_what_the_recipe_cannot_read_of_the_start(whole: Path, tmp_path: Path):
    folder = restored(whole, tmp_path / "run")
    assert "is no key" not in kept("doctor", str(folder)).stdout
    lines = lines_of(folder / "journal.jsonl")
    first: dict[str, Any] = json.loads(lines[0])
    first["facts"]["tagret"] = 1
    lines[0] = json.dumps(first).encode() + b"\n"
    (folder / "journal.jsonl").write_bytes(resealed(lines))
    called = kept("doctor", str(folder))
    assert called.code == 2
    assert "journal.jsonl:1: " in called.stdout
    assert "`facts.tagret` is no key that is known here" in called.stdout


def test_a_spine_that_was_emptied_is_not_told_as_a_run_that_never_began(tmp_path: Path):
    spine = tmp_path / "journal.jsonl"
    spine.write_bytes(b"")
    assert never_began(spine).hint == "start it again; nothing was spent"
    (tmp_path / "rollouts.jsonl").write_text("{}\n{}\n")
    told = never_began(spine)
    assert "something else emptied it" in told.message
    assert told.hint == "rollouts.jsonl beside it is not: restore the file from a copy"
