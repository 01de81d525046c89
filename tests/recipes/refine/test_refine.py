"""Refinement on the one loop: what is kept, what is written, when it ends."""

import json
import os
import shutil
from pathlib import Path
from typing import Any

import pytest

from kept.core.schedules.refine import attempts, reruns
from kept.errors import JournalError
from kept.orchestrator.refine.best import BEST, best_loss
from kept.orchestrator.refine.proposer import ModelPair
from kept.orchestrator.run_folder.read import read_loss, read_run
from kept.orchestrator.run_folder.write import Layout, write_run
from kept.orchestrator.toolkit import own_prompts
from kept.recipes.refine.compile import compile_refine
from kept.recipes.refine.request import Refinement
from kept.results.diffs import step_diff
from kept.results.summary import summary
from kept.run import check_drift, inputs_of
from kept.sandbox.capabilities import abilities
from kept.store.overview import Glance
from kept.store.reader import Run
from kept.ui.report.format import verdict_counts
from tests.orchestrator.play import use, write
from tests.orchestrator.run_folder.made import RUN, perfect_run, real_run, synthetic_run
from tests.orchestrator.run_folder.test_write import made
from tests.recipes.refine.world import TASK, Attempted, World, scores, world


def session(of: World) -> dict[str, Any]:
    path = of.seed / "refinement_sessions" / f"{of.asked.session}.json"
    return json.loads(path.read_text())


def best(of: World) -> dict[str, bytes]:
    place = of.seed / BEST
    return {
        p.relative_to(place).as_posix(): p.read_bytes() for p in place.rglob("*") if p.is_file()
    }


def iteration(of: World, k: int) -> Path:
    return of.asked.root / f"iter_{k}"


def run_folder(of: World, k: int) -> Path:
    return next((iteration(of, k) / "workspace" / "runs").iterdir())


def test_iterations_that_get_better_run_to_the_last_which_is_best(tmp_path: Path):
    it = world(tmp_path, *scores(0.7, 0.8, 0.9))
    it.start()
    told = session(it)
    assert told["stop_reason"] == "max_iterations"
    assert told["best_iter"] == 3
    assert [row["k"] for row in told["iterations"]] == [1, 2, 3]
    losses = [row["loss"] for row in told["iterations"]]
    assert losses == sorted(losses, reverse=True)
    assert best(it)["report.md"] == b"# Report\n\nVersion 3.\n"


def test_iterations_that_get_worse_are_a_regression_and_the_first_is_best(tmp_path: Path):
    it = world(tmp_path, *scores(0.9, 0.8, 0.7, 0.95), iterations=5)
    it.start()
    told = session(it)
    assert (told["stop_reason"], told["best_iter"]) == ("regression", 1)
    assert len(told["iterations"]) == 3
    assert best(it)["report.md"] == b"# Report\n\nVersion 1.\n"


def test_fault_5_equal_losses_are_a_plateau_and_no_regression(tmp_path: Path):
    it = world(tmp_path, *scores(0.8, 0.8, 0.8, 0.8), iterations=5)
    it.start()
    assert session(it)["stop_reason"] == "plateau"
    assert len(session(it)["iterations"]) == 2


def test_losses_that_hardly_move_are_a_plateau(tmp_path: Path):
    it = world(tmp_path, *scores(0.80, 0.815, 0.82, 0.9), iterations=5)
    it.start()
    assert session(it)["stop_reason"] == "plateau"


def test_a_perfect_run_has_nothing_to_refine_and_a_session_all_the_same(tmp_path: Path):
    it = world(tmp_path, *scores(0.9), seed=perfect_run(tmp_path / "seed"))
    it.start()
    told = session(it)
    assert (told["stop_reason"], told["iterations"], it.calls) == ("empty_gradient", [], 0)
    assert told["completed_at"] is not None
    assert not (it.seed / BEST).exists()


def test_an_iteration_without_a_flaw_ends_the_session(tmp_path: Path):
    it = world(tmp_path, Attempted(0.95, defects=()), iterations=5)
    it.start()
    told = session(it)
    assert (told["stop_reason"], told["best_iter"]) == ("empty_gradient_midloop", 1)
    assert len(told["iterations"]) == 1


def test_r36_what_was_found_wrong_is_written_before_the_first_call_of_a_manager(tmp_path: Path):
    it = world(tmp_path, *scores(0.7, 0.9), iterations=2)
    seen: list[tuple[int, bool]] = []

    def watch(k: int) -> None:
        path = iteration(it, k) / "gradient_input.json"
        told: dict[str, Any] = json.loads(path.read_text()) if path.exists() else {}
        seen.append((k, bool(told.get("defects"))))

    it.watch = watch
    it.start()
    assert {k for k, _ in seen} == {1, 2}
    assert all(there for _, there in seen)


def test_the_brief_is_told_in_the_first_turn_of_a_manager_only(tmp_path: Path):
    it = world(tmp_path, *scores(0.8), iterations=1)
    it.start()
    turns = [text for who, text in it.plays[1].heard if who == "manager"]
    assert ["REFINEMENT CONTEXT" in text for text in turns] == [True, False, False]
    assert "too short" in turns[0]


def test_fault_3_the_prior_deliverable_lies_where_the_workers_look(tmp_path: Path):
    it = world(tmp_path, *scores(0.8), iterations=1)
    it.start()
    told = dict(it.plays[1].heard)["w1"]
    assert "input/out.md" in told
    assert (iteration(it, 1) / "input" / "out.md").read_bytes() == b"text\n"


def test_fault_3_a_worker_that_reads_its_input_is_shown_the_prior_deliverable(tmp_path: Path):
    reads = use("file_read", path="input/out.md")
    it = world(tmp_path, Attempted(0.8, first=[reads]), iterations=1)
    it.start()
    shown = [m.text for request in it.requests for m in request.messages if m.role == "tool"]
    assert any("text" in text for text in shown), shown


def test_a_deliverable_of_folders_is_copied_with_them(tmp_path: Path):
    seed = synthetic_run(tmp_path / "seed", task=TASK)
    (seed / "FINAL" / "a" / "b").mkdir(parents=True)
    (seed / "FINAL" / "a" / "b" / "deep.md").write_bytes(b"deep\n")
    it = world(tmp_path, *scores(0.8), iterations=1, seed=seed)
    it.start()
    assert (iteration(it, 1) / "input" / "a" / "b" / "deep.md").read_bytes() == b"deep\n"
    assert "input/a/b/deep.md" in dict(it.plays[1].heard)["w1"]


def test_fault_6_the_seed_shares_nothing_with_its_iterations(tmp_path: Path):
    it = world(tmp_path, *scores(0.8, 0.9), iterations=2)
    source = it.seed / "FINAL" / "out.md"
    before = source.stat()
    it.start()
    after = source.stat()
    assert (after.st_ino, after.st_mtime_ns, after.st_nlink) == (
        before.st_ino,
        before.st_mtime_ns,
        1,
    )
    given = iteration(it, 1) / "input" / "out.md"
    assert given.stat().st_ino != before.st_ino
    given.write_bytes(b"edited in place")
    assert source.read_bytes() == b"text\n"


@pytest.mark.skipif(not os.access("/dev/shm", os.W_OK), reason="there is no second file system")
def test_a_seed_on_another_device_is_refined_and_left_as_it_was(tmp_path: Path):
    place = Path("/dev/shm") / f"kept-refine-{os.getpid()}"
    try:
        it = world(tmp_path, *scores(0.8, 0.9), iterations=2, seed=synthetic_run(place, task=TASK))
        source = it.seed / "FINAL" / "out.md"
        before = source.stat()
        assert before.st_dev != tmp_path.stat().st_dev
        it.start()
        after = source.stat()
        assert (after.st_ino, after.st_mtime_ns) == (before.st_ino, before.st_mtime_ns)
        assert (iteration(it, 1) / "input" / "out.md").read_bytes() == b"text\n"
        assert best(it)["report.md"] == b"# Report\n\nVersion 2.\n"
    finally:
        shutil.rmtree(place)


def test_a_seed_that_left_nothing_but_an_empty_file_has_no_prior_deliverable(tmp_path: Path):
    seed = synthetic_run(tmp_path / "seed", task=TASK)
    (seed / "FINAL" / "out.md").write_bytes(b"")
    it = world(tmp_path, *scores(0.9), seed=seed)
    it.start()
    told = session(it)
    assert (told["stop_reason"], told["iterations"]) == ("no_prior_deliverable", [])
    assert (it.calls, told["best_iter"]) == (0, 0)


def test_the_next_iteration_starts_from_the_best_and_is_told_what_the_last_one_broke(
    tmp_path: Path,
):
    worse = Attempted(0.65, "# Report\n\nWorse.\n", defects=("the table is gone",))
    it = world(tmp_path, Attempted(0.9, "# Report\n\nGood.\n"), worse, Attempted(0.95))
    it.start()
    assert (iteration(it, 3) / "input" / "report.md").read_bytes() == b"# Report\n\nGood.\n"
    first = it.plays[3].heard[0][1]
    assert "no better. It broke:" in first
    assert "the table is gone" in first
    parents = [read_run(run_folder(it, k)).parent_run_id for k in (1, 2, 3)]
    ids = [row["run_id"] for row in session(it)["iterations"]]
    assert parents == ["seed_1", ids[0], ids[0]]


def test_a_step_is_judged_against_the_run_that_it_started_from(tmp_path: Path):
    better, worse, third = scores(0.8, 0.6, 0.9)
    kept_file = Attempted(0.8, better.text, first=[write("output/extra.md", "# Extra\n\nMore.\n")])
    it = world(tmp_path, kept_file, worse, third)
    run = Run(it.start().folder)
    first, second, last = run.state.history
    assert [step.verdict.word for step in (first, second, last)] == ["keep", "discard", "keep"]
    assert [step.incumbent for step in (second, last)] == [first.candidate] * 2
    # the change is that of the deliverable: from what it started from, with what is no longer there
    change = step_diff(run, run.closed(2))
    assert "-Version 1." in change and "+Version 3." in change and "Version 2" not in change
    assert "-# Extra" in change and "run.json" not in change
    assert "no gain: loss" in second.verdict.reason
    assert summary(run).keeps == 2
    assert [row.parent_run_id for row in attempts(reruns(run.state))][1:] == [
        session(it)["iterations"][0]["run_id"]
    ] * 2


def test_from_last_is_judged_against_the_last_and_only_gains_are_kept(tmp_path: Path):
    it = world(tmp_path, *scores(0.8, 0.6, 0.7), from_last=True)
    run = Run(it.start().folder)
    first, second, last = run.state.history
    assert [step.verdict.word for step in (first, second, last)] == ["keep", "followed", "followed"]
    assert (second.incumbent, last.incumbent) == (first.candidate, second.candidate)
    told = summary(run)
    assert (told.keeps, verdict_counts(told)) == (1, "1 kept, 2 followed")
    assert Glance(run.folder).refresh().keeps == 1


def test_from_last_is_the_policy_of_the_source(tmp_path: Path):
    it = world(tmp_path, *scores(0.9, 0.7, 0.95), from_last=True)
    it.start()
    assert (iteration(it, 3) / "input" / "report.md").read_bytes() == b"# Report\n\nVersion 2.\n"
    ids = [row["run_id"] for row in session(it)["iterations"]]
    assert read_run(run_folder(it, 3)).parent_run_id == ids[1]


def test_fault_2_an_iteration_that_leaves_nothing_is_never_best_and_the_next_starts_before_it(
    tmp_path: Path,
):
    # so bad a seed that even an attempt without any file has a lower loss
    judged = {"score": 0.0, "defects": [{"summary": "no totals"}]}
    seed = synthetic_run(tmp_path / "seed", task=TASK, critique=judged)
    attempts = [Attempted(0.99, None), Attempted(0.8, "# Report\n\nThere.\n")]
    it = world(tmp_path, *attempts, seed=seed)
    it.start()
    told = session(it)
    assert told["iterations"][0]["loss"] < told["seed_loss"]
    assert [row["k"] for row in told["iterations"]] == [1, 2, 3]
    assert told["iterations"][0]["status"] == "failed"
    assert told["best_iter"] == 2
    assert (iteration(it, 2) / "input" / "out.md").read_bytes() == b"text\n"
    assert best(it)["report.md"] == b"# Report\n\nThere.\n"


def test_iterations_that_leave_nothing_twice_in_a_row_end_the_session(tmp_path: Path):
    it = world(tmp_path, Attempted(0.8), Attempted(text=None), iterations=6)
    it.start()
    told = session(it)
    assert told["stop_reason"] == "no_prior_deliverable"
    assert [row["k"] for row in told["iterations"]] == [1, 2, 3]
    assert told["best_iter"] == 1


def test_best_holds_a_deliverable_and_not_its_manifest_alone(tmp_path: Path):
    it = world(tmp_path, *scores(0.9), iterations=1)
    it.start()
    assert set(best(it)) == {"report.md", "manifest.json"}
    told = json.loads(best(it)["manifest.json"])
    assert told["winning_run_dir"] == str(run_folder(it, 1))
    assert told["best_loss"] < told["seed_loss"]


def test_best_of_an_earlier_session_is_not_replaced_by_a_worse_one(tmp_path: Path):
    first = world(tmp_path, *scores(0.95), iterations=1)
    first.start()
    kept = best_loss(first.seed)
    again = world(tmp_path, *scores(0.8), iterations=1, seed=first.seed)
    object.__setattr__(again.asked, "session", "refine_2")
    again.start("home2")
    assert best_loss(first.seed) == kept
    assert best(first)["report.md"] == b"# Report\n\nVersion 1.\n"
    assert {p.stem for p in (first.seed / "refinement_sessions").iterdir()} == {
        "refine_1",
        "refine_2",
    }


def test_a_deliverable_named_manifest_json_survives_in_best(tmp_path: Path):
    theirs = Attempted(0.9, '{"theirs": 1}', path="manifest.json")
    seed = synthetic_run(tmp_path / "seed", task="List the parts")
    it = world(tmp_path, theirs, iterations=1, seed=seed)
    it.start()
    assert best(it)["manifest.json"] == b'{"theirs": 1}'
    assert best_loss(it.seed) is not None


def test_iterations_have_half_the_caps_of_the_seed_each_of_them(tmp_path: Path):
    it = world(tmp_path, *scores(0.7, 0.8), iterations=2)
    it.start()
    for k in (1, 2):
        caps = read_run(run_folder(it, k)).caps
        assert (caps.loops, caps.workers, caps.tokens, caps.tool_calls) == (10, 20, 500_000, 300)
        assert (caps.wall_seconds, caps.depth) == (900, 4)


def test_tiers_give_each_iteration_its_models_and_the_session_says_so(tmp_path: Path):
    pairs: dict[str, Any] = {
        "low": ModelPair("l", "l"),
        "mid": ModelPair("", "x"),
        "high": ModelPair("h", ""),
    }
    it = world(tmp_path, *scores(0.7, 0.8, 0.9), **pairs)
    it.start()
    told = session(it)
    rows = [(r["tier"], r["model_manager"], r["model_worker"]) for r in told["iterations"]]
    assert rows == [("low", "l", "l"), ("mid", "seed-m", "x"), ("high", "h", "seed-w")]
    assert told["tier_plan_used"] is True


def test_without_tiers_a_session_says_nothing_of_them(tmp_path: Path):
    it = world(tmp_path, *scores(0.8), iterations=1)
    it.start()
    told = session(it)
    assert told["tier_plan_used"] is None
    assert told["iterations"][0]["tier"] is None


def test_fault_4_each_loss_is_told_with_its_parts(tmp_path: Path):
    it = world(tmp_path, *scores(0.8), iterations=1)
    it.start()
    parts = session(it)["iterations"][0]["loss_breakdown"]
    names = {"eval", "critique", "gate_reject", "budget_burn", "terminal", "total"}
    assert set(parts) == names
    assert parts["total"] == pytest.approx(sum(parts[n] for n in names - {"total"}))
    assert read_loss(run_folder(it, 1)).total == pytest.approx(parts["total"], abs=1e-4)


def test_the_folders_of_iterations_are_as_the_source_draws_them(tmp_path: Path):
    it = world(tmp_path, *scores(0.8), iterations=1)
    it.start()
    run = run_folder(it, 1)
    for path in (
        *("input/out.md", "gradient_input.json", f"output/{run.name}/report.md"),
        f"workspace/runs/{run.name}/run_completion.json",
        f"workspace/runs/{run.name}/iterations/002/critique.json",
        f"logs/{run.name}/events.jsonl",
    ):
        assert (iteration(it, 1) / path).is_file(), path
    told = json.loads((run / "run_completion.json").read_text())
    assert told["parent_run_id"] == "seed_1"


def test_fault_1_a_real_run_of_the_source_is_refined(tmp_path: Path):
    it = world(tmp_path, *scores(0.9), iterations=1, seed=real_run(tmp_path / "ws"))
    it.start()
    told = session(it)
    assert (told["seed_run_id"], told["best_iter"]) == (RUN, 1)
    assert (iteration(it, 1) / "input" / "report.md").read_bytes() == b"# Report\n"


def test_a_run_of_ours_is_refined_and_so_is_an_iteration_of_one(tmp_path: Path):
    write_run(tmp_path / "ours", made(), {"report.md": b"# Old\n"}, Layout())
    it = world(tmp_path, *scores(0.7), iterations=1, seed=tmp_path / "ours")
    it.start()
    assert session(it)["best_iter"] == 1
    again = world(tmp_path, *scores(0.9), iterations=1, seed=run_folder(it, 1))
    object.__setattr__(again.asked, "session", "refine_2")
    again.start("home2")
    assert session(again)["seed_run_id"] == run_folder(it, 1).name
    assert session(again)["best_iter"] == 1


def test_a_binary_deliverable_is_carried_as_it_is(tmp_path: Path):
    seed = synthetic_run(tmp_path / "seed", task=TASK)
    data = bytes(range(256)) * 4
    (seed / "FINAL" / "logo.bin").write_bytes(data)
    it = world(tmp_path, *scores(0.8), iterations=1, seed=seed)
    it.start()
    assert (iteration(it, 1) / "input" / "logo.bin").read_bytes() == data


def test_a_session_that_nobody_answers_ends_with_an_error_and_keeps_what_was_gained(tmp_path: Path):
    it = world(tmp_path, *scores(0.8), Attempted(fault=True), iterations=3)
    ended = it.start()
    told = session(it)
    assert told["stop_reason"] == "error:server"
    assert told["best_iter"] == 1
    assert best(it)["report.md"] == b"# Report\n\nVersion 1.\n"
    # mended, it goes on where it stopped and asks for nothing twice
    mended = world(tmp_path, *scores(0.8, 0.85, 0.9), iterations=3, seed=it.seed)
    mended.resume(ended.folder)
    told = session(mended)
    assert (told["stop_reason"], told["best_iter"]) == ("max_iterations", 3)
    assert 1 not in mended.plays


def test_a_session_is_there_from_the_start_and_true_at_any_moment(tmp_path: Path):
    it = world(tmp_path, *scores(0.7, 0.8), iterations=2)
    seen: list[tuple[int, int, object]] = []

    def watch(k: int) -> None:
        told = session(it)
        seen.append((k, len(told["iterations"]), told["completed_at"]))

    it.watch = watch
    it.start()
    assert seen[0] == (1, 0, None)
    assert seen[-1] == (2, 1, None)
    assert session(it)["completed_at"] is not None


def _compiled(folder: Path, asked: Refinement, *, file: str, manager: str) -> dict[str, str]:
    (folder / "agent.yaml").write_text(file)
    (folder / "prompts" / "manager.md").write_text(manager)
    return inputs_of(compile_refine(asked).plan)


@pytest.mark.skipif(not abilities().walls, reason="no walls here")
def test_a_refinement_does_not_go_on_with_other_models_or_prompts(tmp_path: Path):
    for name in ("a.jsonl", "b.jsonl"):
        (tmp_path / name).write_text('"never asked"\n')
    (tmp_path / "prompts").mkdir()
    place = synthetic_run(tmp_path / "seed", task=TASK)
    asked = Refinement(
        run=str(place), folder=str(tmp_path), session="refine_1", config="agent.yaml"
    )
    told = own_prompts()["manager"]
    file = "prompts: prompts\nmodels: {manager: scripted/a.jsonl, worker: scripted/a.jsonl}\n"
    then = _compiled(tmp_path, asked, file=file, manager=told)
    check_drift(then, _compiled(tmp_path, asked, file=file, manager=told), "r1")
    for changed, text, what in (
        (file.replace("worker: scripted/a", "worker: scripted/b"), told, "settings"),
        (file + "budget: {max_repairs: 1}\n", told, "settings"),
        (file, told + "\nBe brief.\n", "prompts"),
    ):
        now = _compiled(tmp_path, asked, file=changed, manager=text)
        with pytest.raises(JournalError, match=f"cannot resume r1: {what} changed"):
            check_drift(then, now, "r1")


def test_what_took_twice_the_time_of_the_seed_is_stopped(tmp_path: Path):
    it = world(tmp_path, *scores(0.7, 0.8, 0.9), iterations=3)
    told = json.loads((it.seed / "run_completion.json").read_text())
    told["final_budget"]["wall_time_elapsed_s"] = 0.000001
    (it.seed / "run_completion.json").write_text(json.dumps(told))
    it.start()
    assert session(it)["stop_reason"] == "wall_time_exhausted"
    assert len(session(it)["iterations"]) == 1


def test_iterations_that_leave_nothing_take_time_as_well(tmp_path: Path):
    it = world(tmp_path, *[Attempted(text=None)] * 3, iterations=3)
    told = json.loads((it.seed / "run_completion.json").read_text())
    told["final_budget"]["wall_time_elapsed_s"] = 0.000001
    (it.seed / "run_completion.json").write_text(json.dumps(told))
    it.start()
    assert session(it)["stop_reason"] == "wall_time_exhausted"
    assert len(session(it)["iterations"]) == 1


def test_files_of_an_iteration_that_cannot_be_written_cost_a_warning_and_nothing_else(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
):
    it = world(tmp_path, *scores(0.7, 0.8), iterations=2)
    # a file where the first iteration would have its folder
    it.asked.root.mkdir(parents=True)
    iteration(it, 1).write_text("in the way")
    it.start()
    assert [row["k"] for row in session(it)["iterations"]] == [1, 2]
    assert best(it)["report.md"] == b"# Report\n\nVersion 2.\n"
    assert sum("cannot write" in one.getMessage() for one in caplog.records) == 2
    assert "iter_1" in caplog.text
    assert run_folder(it, 2).is_dir()
