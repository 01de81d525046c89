"""Versions of prompt artifacts: what is active, what an epoch writes, who may write at once."""

import multiprocessing
import random
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from kept.errors import SetupError
from kept.orchestrator.prompt_registry import Epoch, PromptRegistry, Suite, TaskRun, registry_path
from kept.settings import artifacts_db
from kept.store.home import Home

OWN = {"one": "first\n", "two": "second\n"}


def registry(folder: Path) -> PromptRegistry:
    return PromptRegistry(folder / "a" / "artifacts.db", OWN)


def epoch(number: int, after: str, *, kept: bool = True, before: str = OWN["one"]) -> Epoch:
    return Epoch(
        id=f"run/{number}",
        suite="s",
        number=number,
        started=1.0,
        ended=2.0,
        loss=0.25,
        before={**OWN, "one": before},
        after={**OWN, "one": after},
        kept=kept,
        uses=("one",) if kept else (),
        runs=[TaskRun("r1", "may", 0.25, {"loss": 0.25})],
    )


def test_without_a_database_kepts_own_texts_are_used_and_none_is_made(tmp_path: Path):
    it = registry(tmp_path)
    assert it.texts() == OWN
    assert [one.number for one in it.versions("one")] == [0]
    assert it.versions("one")[0].created.startswith("1970-01-01")
    assert not it.path.parent.exists()


def test_an_update_is_active_and_one_that_was_rolled_back_is_not(tmp_path: Path):
    it = registry(tmp_path)
    assert it.record(epoch(1, "better\n"))
    assert it.record(epoch(2, "worse\n", kept=False, before="better\n"))
    versions = it.versions("one")
    assert [(v.number, v.parent, bool(v.active), v.epoch) for v in versions] == [
        (0, None, False, ""),
        (1, 0, True, "run/1"),
        (2, 1, False, "run/2"),
    ]
    assert it.texts() == {"one": "better\n", "two": "second\n"}


def test_an_epoch_is_written_once(tmp_path: Path):
    it = registry(tmp_path)
    assert it.record(epoch(1, "better\n"))
    it.activate("one", 0)
    assert not it.record(epoch(1, "better\n"))
    assert it.active()["one"].number == 0
    assert len(it.versions("one")) == 2


def test_going_back_is_to_activate_an_earlier_version(tmp_path: Path):
    it = registry(tmp_path)
    it.record(epoch(1, "better\n"))
    assert it.activate("one", 0).number == 1
    assert it.texts() == OWN
    assert it.activate("one", 1).number == 0
    assert it.texts()["one"] == "better\n"


def test_a_text_that_is_there_already_gets_no_second_version(tmp_path: Path):
    it = registry(tmp_path)
    it.record(epoch(1, "better\n", kept=False))
    it.record(epoch(2, "better\n"))
    assert [v.number for v in it.versions("one")] == [0, 1]
    assert it.active()["one"].number == 1


def test_the_tables_are_those_of_the_source(tmp_path: Path):
    it = registry(tmp_path)
    it.register(Suite(id="s", name="suite", tasks=[{"name": "may"}], baseline={"one": 0}))
    it.register(Suite(id="s", name="suite", tasks=[], baseline={}))
    it.record(epoch(1, "better\n"))
    with closing(sqlite3.connect(it.path)) as database:
        columns = {
            table: [row[1] for row in database.execute(f"PRAGMA table_info({table})")]
            for table in ("artifact_versions", "task_suites", "epochs", "epoch_runs")
        }
        assert database.execute("PRAGMA journal_mode").fetchone() == ("wal",)
        assert database.execute("SELECT tasks_json FROM task_suites").fetchall() == [
            ('[{"name": "may"}]',)
        ]
        assert database.execute("SELECT * FROM epoch_runs").fetchall() == [
            ("run/1", "r1", "may", 0.25, '{"loss": 0.25}')
        ]
    names = "id artifact_name version content parent_version created_at epoch_id is_active"
    assert columns["artifact_versions"] == names.split()
    assert columns["task_suites"] == [
        "id",
        "name",
        "tasks_json",
        "baseline_artifacts_json",
        "created_at",
    ]
    assert columns["epochs"] == [
        *("id", "suite_id", "epoch_num", "started_at", "completed_at", "mean_loss"),
        *("parent_artifacts_json", "child_artifacts_json"),
    ]
    assert columns["epoch_runs"] == ["epoch_id", "run_id", "task_name", "loss", "scores_json"]


def test_what_is_not_there_is_told(tmp_path: Path):
    it = registry(tmp_path)
    with pytest.raises(SetupError, match="`three` is no prompt artifact"):
        it.versions("three")
    with pytest.raises(SetupError, match="`one` has no version 4"):
        it.activate("one", 4)


def test_a_file_that_is_no_database_is_told_and_left_alone(tmp_path: Path):
    it = registry(tmp_path)
    it.path.parent.mkdir()
    it.path.write_text("this is no database, however long it may be\n" * 20)
    with pytest.raises(SetupError, match="cannot use the prompt artifacts"):
        it.texts()
    with pytest.raises(SetupError, match="cannot use the prompt artifacts"):
        it.record(epoch(1, "better\n"))
    assert it.path.read_text().startswith("this is no database")


def _record(path: Path, first: int) -> None:
    it = PromptRegistry(path, OWN)
    for n in range(first, first + 10):
        it.record(epoch(n, f"text {n}\n"))


@pytest.mark.slow
def test_a_damaged_file_is_refused_or_reads_as_before(tmp_path: Path):
    it = registry(tmp_path)
    it.register(Suite(id="s", name="suite", tasks=[{"name": "may"}], baseline={"one": 0}))
    for number, text in enumerate(("better\n" * 200, "worse\n" * 200, "best\n" * 200)):
        it.record(epoch(number, text, kept=number != 1))

    def read() -> object:
        return it.active(), it.versions("one"), it.versions("two"), it.epochs()

    right, whole = it.path.read_bytes(), read()
    refused = 0
    for seed in range(400):
        chance = random.Random(seed)
        damaged = bytearray(right)
        if seed % 8:
            damaged[chance.randrange(len(right))] ^= 1 << chance.randrange(8)
        else:
            del damaged[chance.randrange(1, len(right)) :]
        it.path.write_bytes(damaged)
        try:
            assert read() == whole, f"seed {seed}"
        except SetupError as error:
            assert str(it.path) in error.message
            refused += 1
    assert refused > 40
    it.path.write_bytes(right)
    assert read() == whole


@pytest.mark.parametrize(
    "damage",
    [
        "UPDATE artifact_versions SET is_active = 1 - is_active",
        "UPDATE artifact_versions SET content = 'bitter'",
        "UPDATE epochs SET mean_loss = 0.5",
        "UPDATE epoch_runs SET scores_json = '{}'",
        "DELETE FROM epochs",
        "PRAGMA user_version = 2",
        "ALTER TABLE artifact_versions RENAME TO artifact_versionz",
    ],
)
def test_a_changed_row_is_refused_and_one_that_others_added_is_not(damage: str, tmp_path: Path):
    it = registry(tmp_path)
    it.record(epoch(1, "better\n"))
    foreign = "INSERT INTO artifact_versions VALUES (7, 'two', 1, 'x', 0, 'now', '', 1)"
    with closing(sqlite3.connect(it.path)) as database, database:
        database.execute(foreign)
    assert it.texts() == {"one": "better\n", "two": "x"}
    with closing(sqlite3.connect(it.path)) as database, database:
        database.execute(damage)
    with pytest.raises(SetupError, match=r"row 1 of|version 1 of `one`|missing|newer"):
        it.texts()
    with pytest.raises(SetupError, match=r"row 1 of|version 1 of `one`|missing|newer"):
        it.activate("one", 0)


def test_two_that_write_at_once_lose_nothing(tmp_path: Path):
    path = registry(tmp_path).path
    spawn = multiprocessing.get_context("spawn")
    workers = [spawn.Process(target=_record, args=(path, first)) for first in (0, 100)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join(60)
        assert worker.exitcode == 0
    it = registry(tmp_path)
    assert [v.number for v in it.versions("one")] == list(range(21))
    assert sum(bool(v.active) for v in it.versions("one")) == 1
    assert len(it.epochs()) == 20


def test_the_environment_names_the_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.delenv("KEPT_ARTIFACTS", raising=False)
    assert artifacts_db() is None
    assert registry_path(Home(tmp_path)) == tmp_path / "artifacts.db"
    monkeypatch.setenv("KEPT_ARTIFACTS", str(tmp_path / "mine.db"))
    assert registry_path(Home(tmp_path)) == tmp_path / "mine.db"
