"""The files of a training: what the method's source promises of each is in it."""

import json
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from kept.core.artifact import Candidate
from kept.core.ports import Gate
from kept.recipes.skill import outputs
from kept.recipes.skill.spec import SECTIONS
from kept.results.steps import case_rollouts, some_cases
from kept.store.journal import RunJournal
from kept.store.reader import Run
from kept.testing import AcceptAll
from kept.testing.server import Seen
from tests.recipes.skill import world
from tests.recipes.skill.test_key_effects import AWARE, ENDS, Ran, ran, said

ALL = (*ENDS, *AWARE, "optimizer.use_meta_reflect=true", "optimizer.learning_rate=1")
HISTORY = {
    *("step", "epoch", "step_in_epoch", "timing", "tokens", "rollout_hard", "rollout_soft"),
    *("rollout_n", "accumulation_batches", "n_patches", "n_edits_merged", "n_edits_ranked"),
    *("edit_budget", "candidate_hash", "edit_apply_summary", "selection_hard", "selection_soft"),
    *("gate_metric", "candidate_gate_score", "action", "current_score", "best_score"),
}
STATE = {
    *("last_completed_step", "current_skill_path", "current_score", "current_origin"),
    *("best_skill_path", "best_score", "best_step", "best_origin"),
}
EDIT = {"op", "target", "content", "support_count", "source_type", "merge_level"}
STEP = {
    "merged_patch.json": {"reasoning", "edits"},
    "ranked_edits.json": {"reasoning", "selected_indices", "edits"},
    "trajectory_digest.json": {
        *("step", "action", "n_total", "n_fail", "failure_patterns"),
        *("score_before", "score_after"),
    },
    "selection_eval/summary.json": {"hard", "soft", "score", "cases"},
}
ENDED = {
    "slow_update": {"reasoning", "slow_update_content", "action"},
    "meta_skill": {"reasoning", "meta_skill_content", "action"},
    "meta_reflect": {"meta_summary", "patch", "action"},
    "appendix": {"fresh", "notes", "action"},
}


@pytest.fixture(scope="module")
def done(tmp_path_factory: pytest.TempPathFactory) -> Ran:
    return ran(tmp_path_factory.mktemp("done"), *ALL)


def read(path: Path) -> Any:
    return json.loads(path.read_text())


def test_the_config_is_flat_and_has_every_key(done: Ran):
    told = done.file("config.json")
    assert (told["env"], told["batch_size"], told["learning_rate"]) == ("world", 4, 1)
    keys = {key for models in SECTIONS.values() for one in models for key in one.model_fields}
    assert keys - {"optimizer", "target", "name"} <= told.keys()
    assert told["teacher"]["name"] == "openai_compatible/teacher"
    assert "127.0.0.1" not in json.dumps(told), "no address"


def test_the_config_says_which_gate_decides(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Where it names none, and the cases are too few for the usual one."""
    bare = world.CONFIG.replace("evaluation: {{gate: {gate}}}\n", "")
    monkeypatch.setattr(world, "CONFIG", bare)
    done = ran(tmp_path, "train.num_epochs=1", cases=world.cases_of((8, 4, 4)))
    assert done.file("config.json")["gate"] == "selection"


def test_every_record_of_the_history_has_what_the_source_has(done: Ran):
    rows = done.file("history.json")
    assert [row["step"] for row in rows] == [1, 2, 3, 4]
    assert all(row.keys() >= HISTORY for row in rows)
    tokens = [row["tokens"] for row in rows]
    for row, used in zip(rows, tokens, strict=True):
        assert used["teacher"]["calls"] and used["student"]["calls"] == row["usage"]["rollouts"]
        assert sum(one["calls"] for one in used.values()) == row["usage"]["calls"]
        assert all(one["prompt_tokens"] == 10 * one["calls"] for one in used.values())
    judged = [row for row in rows if row["candidate_gate_score"] is not None]
    assert judged and all(row["candidate_gate_score"] == row["selection_hard"] for row in judged)


def test_the_state_names_files_that_hold_what_it_says(tmp_path: Path):
    """What an epoch's end had kept was in no file that the state named."""
    done = ran(tmp_path, *ALL, gate=AcceptAll())
    state = done.file("runtime_state.json")
    assert state.keys() >= STATE
    assert done.phases[-1] == "e2/meta_reflect", "the last to change it is no step"
    text = (done.out / state["current_skill_path"]).read_text()
    assert Candidate({"SKILL.md": text}).id == done.state.incumbent == state["current_candidate"]
    assert state["current_origin"].startswith("meta_reflect")
    best = (done.out / state["best_skill_path"]).read_text()
    assert Candidate({"SKILL.md": best}).id == done.state.best
    for number in range(5):
        assert (done.out / f"skills/skill_v{number:04}.md").is_file()


def test_a_step_leaves_what_the_source_promises(done: Ran):
    judged = [row["step"] for row in done.file("history.json") if row["selection_hard"] is not None]
    for number in judged:
        folder = done.out / f"steps/step_{number:04}"
        for name, fields in STEP.items():
            assert fields <= read(folder / name).keys(), (number, name)
        assert all(one.keys() >= EDIT for one in read(folder / "merged_patch.json")["edits"])
        for row in read(folder / "edit_apply_report.json"):
            assert {"index", "op", "target", "content_preview", "status"} <= row.keys()
        assert (folder / "candidate_skill.md").read_text()
        digest = read(folder / "trajectory_digest.json")
        assert digest["step"] == number
        if digest["action"] == "reject":
            assert {"op", "content", "target"} <= digest["rejected_edits"][0].keys()
            gain = digest["score_after"] - digest["score_before"]
            assert digest["score_delta"] == pytest.approx(gain)
        patches = [one for path in (folder / "patches").iterdir() for one in read(path)]
        assert {one["source_type"] for one in patches} <= {"failure", "success"}
        assert sum(one["batch_size"] for one in patches) == digest["n_total"] == 4
    assert judged and not list(done.out.glob("steps/*/rewrite_result.json"))


def test_an_epoch_ends_with_a_folder_for_each_of_its_mechanisms(done: Ran):
    for name, fields in ENDED.items():
        (folder,) = done.out.glob(f"{name}/epoch_02")
        told = read(folder / ("slow_result.json" if name == "slow_update" else "result.json"))
        assert fields <= told.keys(), name
    pairs = read(done.out / "slow_update/epoch_02/comparison_pairs.json")
    assert pairs == read(done.out / "meta_skill/epoch_02/comparison_pairs.json")
    assert {"id", "change", "before", "after"} <= pairs[0].keys()
    note = (done.out / "meta_skill/epoch_02/meta_skill.md").read_text()
    assert note == read(done.out / "meta_skill/epoch_02/result.json")["meta_skill_content"]


def test_what_is_flushed_after_each_step_has_a_folder_for_each(tmp_path: Path):
    """There was one for the epoch, and each step wrote over the one before."""
    done = ran(tmp_path, *AWARE, "optimizer.appendix_gate=flush")
    folders = sorted(path.name for path in (done.out / "appendix").iterdir())
    flushed = sum(phase.endswith("/appendix") for phase in done.phases)
    assert folders == [f"step_{n:04}" for n in range(1, flushed + 1)] and flushed == 4
    taken = [
        path for path in folders if (done.out / "appendix" / path / "candidate_skill.md").exists()
    ]
    assert len(taken) > 1


def in_skill(seen: Seen) -> str:
    """As ever, with the file that each edit is for: of a folder it has to be named."""
    text = said(seen)
    return text.replace('"op":', '"file": "SKILL.md", "op":') if seen.model == "teacher" else text


def test_the_best_of_a_skill_that_is_a_folder_is_a_folder(tmp_path: Path):
    """`best_skill.md` had its SKILL.md alone."""
    skill = {"SKILL.md": world.START, "references/rules.md": "# Rules\n"}
    done = ran(tmp_path, "train.num_epochs=1", skill=skill, gate=AcceptAll(), say=in_skill)
    (folder,) = done.out.parent.glob("home/runs/*")
    with Run(folder) as run:
        best = run.best.texts
    assert best["SKILL.md"] != world.START and best.keys() == skill.keys(), "something was kept"
    for name, text in best.items():
        assert (done.out / "best_skill" / name).read_text() == text


def test_a_rollout_is_told_of_the_step_that_made_its_skill(done: Ran):
    """It was told of the step that had asked for it: of what lost, an earlier skill's failures."""
    (folder,) = done.out.parent.glob("home/runs/*")
    with Run(folder) as run:
        rows = [row for case in some_cases(run, 99) for row in case_rollouts(run, case)]
        made = {f"step {one.step}": one.candidate for one in run.state.history}
        made["seed"] = run.state.seed
    assert rows and all(made[row.side] == row.job.candidate_id for row in rows)


def test_a_resume_writes_no_worse_skill_over_the_best_for_a_moment(
    done: Ran, monkeypatch: pytest.MonkeyPatch
):
    """It began with the seed, and came to the best step by step: a kill there left another."""
    written: list[str] = []

    def put(path: Path, data: bytes, within: Path) -> None:
        written.append(path.name)

    monkeypatch.setattr("kept.store.exports.write_whole", put)
    trained = outputs.Trained(place=done.out, named=True, config={}, metric="hard")
    (place,) = done.out.parent.glob("home/runs/*")
    with closing(RunJournal(place)) as journal:
        view = outputs.SkillFolder(trained, journal)
        view.on_event(next(iter(journal.events)), done.state)
    assert done.state.keeps and written == ["config.json"], "which is another's here"


MEASURED = {"selection_eval", "selection_eval_baseline", "test_eval_baseline"}


@pytest.mark.parametrize(
    ("gate", "folders"),
    [(None, {"rollout", *MEASURED}), (AcceptAll(), {"rollout", "rollout_prev"})],
    ids=["selection", "accepted"],
)
def test_every_rollout_of_a_training_has_its_own_folder_in_full(
    tmp_path: Path, gate: Gate | None, folders: set[str]
):
    """Of steps, probes, comparisons of epochs, what decides, and the test."""
    full = ("env.exports=full", "gradient.use_deep_reflect=true")
    done = ran(tmp_path, *ALL, *full, gate=gate)
    (folder,) = tmp_path.glob("home/runs/*")
    with Run(folder) as run:
        jobs = [job for _, job, _ in run.rollouts()]
    assert len([*done.out.rglob("predictions/**/conversation.json")]) == len(jobs)
    kinds = {path.parent.name for path in done.out.rglob("predictions")}
    assert {"deep_reflect", *folders} <= kinds
    parts = [read(path) for path in done.out.glob("steps/*/patches/minibatch_*_*.json")]
    wholes = done.out.glob("steps/*/patches/minibatch_????.json")
    assert len(parts) == sum(len(read(path)) for path in wholes) > 4


def test_a_damaged_rollout_costs_its_step_the_predictions_and_the_run_nothing(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
):
    done = ran(tmp_path, "train.num_epochs=1")
    (place,) = tmp_path.glob("home/runs/*")
    lines = (place / "rollouts.jsonl").read_bytes().split(b"\n")
    at = next(n for n, line in enumerate(lines) if b'"purpose":"feedback"' in line)
    lines[at] = lines[at].replace(b'"feedback"', b'"feedbacK"')
    (place / "rollouts.jsonl").write_bytes(b"\n".join(lines))
    trained = outputs.Trained(place=done.out, named=True, config={}, metric="hard", full=True)
    with closing(RunJournal(place)) as journal:
        view = outputs.SkillFolder(trained, journal)
        view.on_event(next(iter(journal.events)), done.state)
    assert "step 0 has not all of its predictions" in caplog.text
    assert [*done.out.glob("steps/step_0002/rollout/predictions/*/conversation.json")]
    assert len(done.file("history.json")) == 2
