"""`kept train` as a person types it: its answer, its files, its codes, and what comes after."""

import json
import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from kept.core.event import SpecSettings
from kept.core.plan import SKILL
from kept.recipes.base import command_line
from kept.recipes.registry import recipe_named
from kept.recipes.skill.request import Training
from kept.testing.server import Fault, ModelServer, Seen
from tests.recipes.skill import world
from tests.ui.cli.tasks import kept

pytestmark = pytest.mark.slow

SECRET = "sk-very-secret-key"


@pytest.fixture(autouse=True)
def apart(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KEPT_CACHE", str(here / "cache"))
    monkeypatch.setenv("OPENAI_COMPATIBLE_API_KEY", SECRET)


@pytest.fixture(scope="module")
def server() -> Iterator[ModelServer]:
    with ModelServer(world.searchqa_answer) as made:
        yield made


def words(here: Path, server: ModelServer, *more: str) -> list[str]:
    (here / "skills").mkdir(exist_ok=True)
    (here / "skills" / "mine.md").write_text(world.START)
    given = world.write_searchqa(here, server.v1, *more)
    return [*given[:4], "--skill_init", "skills/mine.md", *given[4:]]


def read(path: Path) -> Any:
    return json.loads(path.read_text())


def test_a_skill_is_trained_looked_at_and_adopted(here: Path, server: ModelServer):
    called = kept(*words(here, server, "train.num_epochs=3"), "--json")
    assert called.code == 0, called.stderr
    assert json.loads(called.stdout)["ok"]
    best = (here / "out" / "best_skill.md").read_text()
    assert any(rule in best for rule in world.GOOD)
    assert "claim" in kept("show", "last").stdout
    assert "+- " in kept("diff", "last").stdout
    trace = kept("show", "last", "q3")
    assert trace.code == 0 and "What is number 3?" in trace.stdout, trace.stderr
    left_out = re.findall(r"(\d+) earlier traces? left out: -v shows all", trace.stdout)
    every = kept("show", "last", "q3", "-v").stdout
    shown = trace.stdout.count("What is number 3?")
    assert every.count("What is number 3?") == shown + int(left_out[0])
    assert kept("show", "last", "q999").code == 2
    report = kept("report", "last")
    assert report.code == 0 and "searchqa" in report.stdout
    adopted = kept("adopt", "last", "--yes")
    assert adopted.code == 0, adopted.stderr
    assert (here / "skills" / "mine.md").read_text() == best, "by the name that the file has"


def test_a_skill_that_is_a_folder_is_trained_and_adopted_file_by_file(here: Path):
    """Rules go to a file beside SKILL.md; scripts and the frontmatter stay as they are."""
    folder = here / "skills" / "numbers"
    head = "---\nname: numbers\ndescription: Names of numbers.\n---\n"
    files = {
        "SKILL.md": f"{head}\nRead references/rules.md.\n",
        "references/rules.md": "# Rules\n",
        "scripts/look.py": "print('numbers')\n",
    }
    for name, text in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)

    def filed(seen: Seen) -> str:
        said = world.searchqa_answer(seen)
        at = {"op": "append", "file": "references/rules.md"}
        for rule in world.POOL if seen.model == "teacher" else ():
            said = said.replace(rule, world.GOOD[0])
        return said.replace('"op": "append"', json.dumps(at)[1:-1]) if "edits" in said else said

    with ModelServer(filed) as server:
        more = ("env.skill_init=skills/numbers", "train.num_epochs=1")
        given = world.write_searchqa(here, server.v1, *more)
        called = kept(*given)
        assert called.code == 0, called.stderr
    assert kept("adopt", "last", "--yes").code == 0
    after = {name: (folder / name).read_text() for name in files}
    rules = after.pop("references/rules.md")
    assert world.GOOD[0] in rules
    assert after == {name: files[name] for name in after}, "no other file has changed"


def test_a_training_that_is_done_says_how_to_go_on_from_its_best(here: Path, server: ModelServer):
    assert kept(*words(here, server, "train.num_epochs=1")).code == 0
    called = kept("resume", "last")
    assert called.code == 0 and "max_iterations" not in called.stderr
    (best,) = re.findall("more epochs are another training, .*--skill_init (.*)`", called.stderr)
    again = words(here, server, "train.num_epochs=1", f"env.skill_init={best}", "env.out_root=two")
    assert kept(*again, "--dry-run").code == 0
    assert (here / best / "SKILL.md").is_file()


def test_a_training_that_began_with_no_file_of_yours_says_that_it_changes_none(
    here: Path, server: ModelServer
):
    given = words(here, server, "train.num_epochs=1")
    at = given.index("--skill_init")
    assert kept(*given[:at], *given[at + 2 :]).code == 0
    called = kept("adopt", "last", "--yes")
    assert called.code == 2 and "without `env.skill_init`" in called.stderr, called.stderr
    assert "best" in called.stderr.partition("hint:")[2]


def test_the_files_of_a_run_are_few_and_hold_no_secret(here: Path, server: ModelServer):
    called = kept(*words(here, server))
    assert called.code == 0 and "\noutputs    out\n" in called.stdout, "where they are"
    out = here / "out"
    history = read(out / "history.json")
    assert [row["step"] for row in history] == list(range(1, len(history) + 1))
    for step in (out / "steps").iterdir():
        files = [path for path in step.rglob("*") if path.is_file()]
        assert len(files) <= 15, files
    reports = [read(path) for path in out.glob("steps/*/edit_apply_report.json")]
    assert (
        reports and {"index", "op", "target", "content_preview", "status"} <= reports[0][0].keys()
    )
    state = read(out / "runtime_state.json")
    assert state["last_completed_step"] == len(history)
    assert (out / state["current_skill_path"]).is_file()
    assert (out / "config.json").is_file()
    for path in [*out.rglob("*"), *(here / ".kept").rglob("*")]:
        if path.is_file():
            assert SECRET.encode() not in path.read_bytes(), path


def test_a_folder_that_holds_another_run_is_refused(here: Path, server: ModelServer):
    assert kept(*words(here, server, "train.num_epochs=1")).code == 0
    again = kept(*words(here, server, "train.num_epochs=1"))
    assert again.code == 2 and "holds another run" in again.stderr
    run = read(here / "out" / "config.json")["run_id"]
    assert f"`kept resume {run}` goes on with it" in again.stderr


def test_what_would_be_done_is_told_and_nothing_is_asked(here: Path, server: ModelServer):
    before = len(server.log)
    called = kept(*words(here, server), "--dry-run")
    assert called.code == 0 and "2 epochs of 3 steps, 10 rollouts each" in called.stdout
    assert len(server.log) == before and not (here / "out").exists()


def test_a_config_is_checked_and_run_by_the_verbs_too(here: Path, server: ModelServer):
    at = f"provider: openai_compatible, base_url: '{server.v1}', cache: false"
    words(here, server)
    (here / "skill.yaml").write_text(
        f"model: {{optimizer: {{model: teacher, {at}}}, target: {{model: student, {at}}}}}\n"
        "train: {num_epochs: 1, batch_size: 10}\n"
        "optimizer: {learning_rate: 1, min_learning_rate: 1}\n"
        "env: {name: searchqa, data_path: data.json, split_ratio: '5:3:2', out_root: there}\n"
    )
    checked = kept("check", "skill.yaml")
    assert checked.code == 0 and "1 epoch of 3 steps" in checked.stdout, checked.stderr
    assert not (here / "there").exists()
    done = kept("optimize", "skill.yaml", "--set", "evaluation.gate=selection")
    assert done.code == 0, done.stderr
    assert len(read(here / "there" / "history.json")) == 3


@pytest.mark.parametrize(
    ("more", "told"),
    [
        (("--batchsize", "3"), "did you mean `--batch_size`?"),
        (("--use_gate", "false"), "every update of the skill goes through the gate"),
        (("--merge_batch_size", "1"), "merge_batch_size"),
        (
            ("--train_size", "7"),
            "--train_size 7: 7 was expected, and there are 30 train",
        ),
        (("--batch_size", "0"), "--batch_size 0: "),
        (("--split_ratio", "40:0:0"), "--split_ratio 40:0:0: `40:0:0` leaves no"),
        (("--env", "searchqua"), "did you mean `searchqa`?"),
        (("--cfg-options", "env.max_turn=2"), "did you mean `max_turns`?"),
    ],
)
def test_what_is_wrong_is_told_before_anything_is_spent(
    here: Path, server: ModelServer, more: tuple[str, ...], told: str
):
    """In the original a `merge_batch_size` of 1 never came to an end."""
    before = len(server.log)
    called = kept(*words(here, server), *more)
    assert called.code == 2 and told in called.stderr, called.stderr
    assert "--set" not in called.stderr, "which nobody typed"
    assert len(server.log) == before


def test_a_provider_that_refuses_is_asked_a_few_times_and_the_run_can_go_on(here: Path):
    """In the original a wrong key cost a hundred requests, and rows of zeros."""
    refuses = [True]

    def fault(seen: Seen) -> Fault | None:
        return Fault("status", 401) if refuses[0] else None

    with ModelServer(world.searchqa_answer, faults=fault) as server:
        called = kept(*words(here, server, "train.num_epochs=1"))
        assert called.code == 3, called.stderr
        assert len(server.log) < 20 and "kept resume" in called.stderr
        refuses[0] = False
        again = kept("resume", "last")
    assert again.code == 0, again.stderr
    history = read(here / "out" / "history.json")
    assert history and all(row["rollout_n"] == 10 for row in history)


def test_a_student_that_is_away_ends_the_run_with_the_cause_and_it_can_go_on(here: Path):
    """It was told as a training that is finished, with nothing more to do."""
    away = [True]

    def fault(seen: Seen) -> Fault | None:
        return Fault("status", 503) if away[0] and seen.model == "student" else None

    with ModelServer(world.searchqa_answer, faults=fault) as server:
        tries = "model.target.tries=1"
        called = kept(*words(here, server, "train.num_epochs=1", tries))
        assert called.code == 3, called.stdout + called.stderr
        assert "503" in called.stderr and "kept resume" in called.stderr
        away[0] = False
        again = kept("resume", "last")
    assert again.code == 0, again.stderr
    history = read(here / "out" / "history.json")
    assert [row["rollout_n"] for row in history if row["rollout_n"]] == [10, 10, 10], history


def test_no_step_is_lost_to_a_teacher_that_goes_away_in_the_middle(here: Path):
    """The step was tried twice and left behind; a resume did the others, and was content."""
    heard: set[str] = set()
    away = [True]

    def fault(seen: Seen) -> Fault | None:
        if seen.model != "teacher" or not away[0]:
            return None
        # of the first step alone there is an answer
        rows = here / "out" / "history.json"
        done = rows.is_file() and bool(read(rows))
        heard.add("away" if done else "there")
        return Fault("status", 503) if done else None

    with ModelServer(world.searchqa_answer, faults=fault) as server:
        given = words(here, server, "train.num_epochs=2", "model.optimizer.tries=1")
        called = kept(*given, "evaluation.gate=selection")
        assert called.code == 3 and heard == {"away", "there"}, called.stderr
        before = read(here / "out" / "history.json")
        away[0] = False
        again = kept("resume", "last")
    assert again.code == 0, again.stderr
    history = read(here / "out" / "history.json")
    done = [(row["epoch"], row["step_in_epoch"]) for row in history[len(before) :]]
    assert len(before) < 4, "it did not go on without an answer"
    assert (1, 2) in done and (2, 1) in done, done


def test_a_teacher_of_no_use_is_told_and_no_training_that_is_finished(here: Path):
    """It said `finished: all that was asked`, with code 0."""

    def prose(seen: Seen) -> str:
        return "I would rather not." if seen.model == "teacher" else world.searchqa_answer(seen)

    with ModelServer(prose) as server:
        given = words(here, server, "train.num_epochs=2", "evaluation.gate=selection")
        called = kept(*given)
    assert called.code == 3, called.stdout + called.stderr
    assert "in 6 of 6 turns no reply of the teacher could be used; the last: " in called.stderr
    assert "nothing was judged" in called.stdout and "starts again" in called.stderr


def test_a_training_that_a_limit_ended_says_how_it_goes_on(here: Path, server: ModelServer):
    given = words(here, server, "train.num_epochs=1", "budget.max_rollouts=20")
    called = kept(*given)
    assert called.code == 0, called.stderr
    assert re.search(r"hint: `kept resume \S+ --set budget.max_rollouts=N` raises", called.stderr)
    again = kept("resume", "last", "--set", "budget.max_rollouts=9000")
    assert again.code == 0, again.stderr
    assert "keeps noise more often: the run began with it" in again.stderr
    assert "raises the limit" not in again.stderr


def test_the_command_that_starts_again_ends_in_no_bare_flag():
    recipe, spec = recipe_named(SKILL), SpecSettings(path="/somewhere/t.yaml")
    assert command_line(recipe, spec, Training()) == "kept train --config /somewhere/t.yaml"
    set_too = command_line(recipe, replace(spec, overrides=("train.seed=3",)), Training())
    assert set_too == "kept train --config /somewhere/t.yaml --cfg-options train.seed=3"


def test_a_config_may_be_the_first_word(here: Path, server: ModelServer):
    given = words(here, server, "train.num_epochs=1", "--dry-run")
    at = given.index("--config")
    bare = ["train", given[at + 1], *given[1:at], *given[at + 2 :]]
    assert kept(*bare).stdout == kept(*given).stdout
    called = kept("train", "--dry-run")
    assert called.code == 2 and "no config is named" in called.stderr
