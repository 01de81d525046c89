"""Pages of a long run: right in their figures, and made without reading what they do not show."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from bench.view.made import CASES, make_run
from kept.store.overview import Glance
from kept.store.reader import Run
from kept.store.step_index import ENDS
from kept.ui.web.app import run_view
from kept.ui.web.cases_page import case_values, cell_view, matrix
from kept.ui.web.charts import MANY, path_of
from kept.ui.web.kinds import kind_of
from kept.ui.web.run_page import PAGE, Asked, step_table, top
from kept.ui.web.step_page import bar_of, paired, rivals, step_view
from kept.ui.web.templates import Links, environment, render

STEPS, EACH = 450, 24
LINKS = Links()


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("home") / "runs" / "long"
    make_run(made, STEPS, EACH)
    return made


@pytest.fixture
def told(folder: Path) -> Glance:
    return Glance(folder).refresh()


def test_evidence_is_paired_case_by_case(folder: Path, told: Glance):
    with Run(folder, told) as run:
        view: Any = step_view(run, told, 99, LINKS)
        closed = run.closed(99)
    mine, theirs = closed.evaluations
    (one,) = view["evidence"]
    gains = paired(mine, theirs)
    assert one["gains"] == gains and len(gains) == EACH // 2
    for case, gain in gains.items():
        assert gain == theirs.cases[case].mean - mine.cases[case].mean
    assert one["better"] + one["worse"] <= len(gains)


def test_a_rival_in_a_final_is_not_what_a_candidate_is_judged_against(folder: Path, told: Glance):
    with Run(folder, told) as run:
        closed = run.closed(99)
    mine, theirs = closed.evaluations
    rival = replace(theirs, candidate="rival", cases=mine.cases)
    for order in ((rival, theirs, mine), (theirs, mine, rival)):
        final = replace(closed, evaluations=order)
        assert bar_of(told, final, mine.purpose) == (theirs, 99)
        assert [one.candidate for _, one in rivals(told, final, mine.purpose)] == ["rival"]
    # nor where the draws of the incumbent are shared with another step
    alone = replace(closed, evaluations=(rival, mine), incumbent="nobody")
    assert bar_of(told, alone, mine.purpose) == (None, None)
    # what leads is proven against the other one
    proven = replace(closed, evaluations=(mine, theirs), incumbent=mine.candidate)
    assert bar_of(told, proven, mine.purpose) == (theirs, 99)


def test_a_race_ends_at_the_mean_of_its_draws(folder: Path, told: Glance):
    with Run(folder, told) as run:
        view: Any = step_view(run, told, 99, LINKS)
        closed = run.closed(99)
    mine, theirs = closed.evaluations
    race = view["race"]
    assert race["draws"] == EACH // 2
    mean = sum(theirs.cases[c].mean - t.mean for c, t in mine.cases.items()) / len(mine.cases)
    assert abs(float(str(race["after"][-1]).replace("−", "-")) - mean) < 0.001


def test_the_staircase_is_what_was_kept(told: Glance):
    path = path_of(told)
    kept = [row.step for row in told.rows if row.kept]
    assert [step for step, _ in path.stairs][1:] == kept == [99, 199, 299, 399]
    assert len(path.points) == STEPS > MANY


def test_steps_come_a_page_at_a_time_newest_first(told: Glance):
    table: Any = step_table(told, "all", 2)
    rows = table["rows"]
    assert len(rows) == PAGE
    assert rows[0]["step"] == STEPS - 1 - PAGE
    assert step_table(told, "kept", 99)["page"] == 1


def test_a_flip_is_against_what_the_candidate_was_judged_against(folder: Path, told: Glance):
    view: Any = matrix(told, "kept", "all", None, 1)
    columns = view["columns"]
    assert [c.row.step for c in columns] == [99, 199, 299, 399]
    with Run(folder, told) as run:
        mine, theirs = run.closed(99).evaluations
    for case, cell in columns[0].cells.items():
        gain = theirs.cases[case].mean - mine.cases[case].mean
        assert cell.flip == (gain > 0) - (gain < 0)
        assert cell.value == -mine.cases[case].mean
    broke: Any = matrix(told, "kept", "broke", None, 1)
    assert 0 < broke["kept"] < CASES


def test_a_cell_has_the_rollouts_of_its_case_in_its_step_alone(folder: Path, told: Glance):
    with Run(folder, told) as run:
        view: Any = cell_view(run, told, 7, "case-1")
        shown = view["shown"]
    assert [one.side for one in shown] == ["challenger", "incumbent"]
    assert {one.job.case_id for one in shown} == {"case-1"}
    assert all("of step 7" in one.said[0].text for one in shown)


def test_what_a_run_came_to_case_by_case_is_its_bests(folder: Path, told: Glance):
    with Run(folder, told) as run:
        # by then it is what others are judged against
        best = run.closed(STEPS - 1).evaluations[1]
    found = case_values(told)
    assert best.candidate == told.best and told.best_step == 399
    assert all(found[case].value == -tally.mean for case, tally in best.cases.items())


def test_a_page_reads_nothing_of_the_steps_that_it_does_not_show(folder: Path, tmp_path: Path):
    """Records in the middle are no records any more: whoever read them would say so."""
    import shutil

    broken = tmp_path / "runs" / "long"
    shutil.copytree(folder, broken)
    rows = Glance(folder).refresh().rows
    spine = bytearray((broken / "journal.jsonl").read_bytes())
    for row in rows[100:300]:
        # but for what they are, which stands at their ends
        end = row.at + row.size - len(ENDS[0])
        spine[row.at + 1 : end] = b"#" * (end - row.at - 1)
    (broken / "journal.jsonl").write_bytes(spine)
    rollouts = bytearray((broken / "rollouts.jsonl").read_bytes())
    start, end = rows[100].range[0], rows[299].range[1]
    rollouts[start : end - 1] = b"#" * (end - 1 - start)
    (broken / "rollouts.jsonl").write_bytes(rollouts)
    told = Glance(broken).refresh()
    assert len(told.rows) == STEPS
    with Run(broken, told) as run:
        view = run_view(run, told, kind_of("task"), LINKS, Asked())
        assert view["trajectory"] is not None
        assert step_view(run, told, 50, LINKS)["evidence"]
        assert step_view(run, told, 400, LINKS)["evidence"]
        assert cell_view(run, told, 400, "case-1")["shown"]
    assert matrix(told, "all", "all", None, 1)["rows"]


def test_a_step_that_is_open_is_shown_as_far_as_it_is(folder: Path, tmp_path: Path):
    import shutil

    cut = tmp_path / "runs" / "long"
    shutil.copytree(folder, cut)
    lines = (cut / "journal.jsonl").read_bytes().splitlines(keepends=True)
    (cut / "journal.jsonl").write_bytes(b"".join(lines[:-2]))
    (cut / "steps.idx").unlink()  # it tells how the run was closed
    told = Glance(cut).refresh()
    assert [one.step for one in told.open] == [STEPS - 1]
    assert told.open[0].rollouts == EACH
    env = environment()
    with Run(cut, told) as run:
        view: Any = step_view(run, told, STEPS - 1, LINKS)
        page = render(env, "step.html", LINKS, title="x", **top(told, kind_of("task")), **view)
        assert "▶ open" in page and f"{EACH} rollouts so far" in page
        whole = run_view(run, told, kind_of("task"), LINKS, Asked())
        assert f"{EACH} rollouts so far" in render(env, "run_steps.html", LINKS, **whole)
