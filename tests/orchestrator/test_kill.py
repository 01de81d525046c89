"""Kill -9 in the middle of an agent run, at ten moments: nothing that was heard is asked again."""

from collections import Counter
from pathlib import Path

import pytest

from kept.orchestrator.record import AgentRun
from kept.recipes.agent_run.journal_view import agent_run_of, delivered_by
from kept.sandbox.capabilities import abilities
from kept.store.reader import Run
from kept.testing.server import ModelServer
from tests.engine.cutting import calls, rows
from tests.orchestrator.play import REPORT, Play, complete, delegate, done, plan, use, write
from tests.recipes.killing import kept, killed_at

pytestmark = [
    pytest.mark.kill,
    pytest.mark.skipif(not abilities().walls, reason="no walls here"),
]

TASK = "Write a report on data.csv to report.md"
CODE = (
    "import os, pathlib\n"
    "pathlib.Path('output').mkdir(exist_ok=True)\n"
    "pathlib.Path('output/key.txt').write_text(os.urandom(16).hex())\n"
)
"""What it leaves differs every time: a program that was heard of must not be run again."""

ASKED = 22
"""Requests of the whole run."""


def _play() -> Play:
    todo = write(content="# Report\n\nTODO\n")
    return Play(
        [plan("report.md", "key.txt"), delegate("a", "b", "c"), delegate("d"), complete()],
        {
            "a": [write("notes/a.txt", "12, 15"), use("file_read", path="notes/a.txt"), done("a")],
            "b": [use("code_execute", code=CODE), done("b")],
            "c": [use("arithmetic", expression="15 / 12"), done("c")],
            "d": [todo, done("d")],
            "repair-1": [write(content=REPORT), done("repair-1")],
        },
    )


def _read(folder: Path) -> tuple[AgentRun, dict[str, bytes]]:
    (place,) = (folder / ".kept" / "runs").iterdir()
    with Run(place) as run:
        record = agent_run_of(run)
        assert record is not None
        return record, dict(delivered_by(run))


def test_a_run_killed_at_ten_moments_asks_nothing_twice_that_it_had_heard(tmp_path: Path) -> None:
    (tmp_path / "data.csv").write_text("12,15")
    play = _play()
    with ModelServer(play.of_server, latency=0.02) as server:
        env = {"OPENAI_COMPATIBLE_BASE_URL": server.v1}
        words = ("agent", "run", TASK, "-i", "data.csv", "--model", "openai_compatible/m", "-q")
        killed_at(kept(tmp_path, *words, **env), server, 1)
        # what was given is in the journal: where it came from does not matter any more
        for moment in (2, 4, 6, 8, 10, 12, 14, 16, 18):
            killed_at(kept(tmp_path, "resume", "-q", **env), server, moment)
        last = kept(tmp_path, "resume", "-q", **env)
        out, err = last.communicate(timeout=60)
        asked = [str(seen.body["messages"]) for seen in server.answered]
    assert last.returncode == 0, (out, err)
    record, files = _read(tmp_path)
    assert record.status == "complete" and len(record.repairs) == 1
    assert files["report.md"] == REPORT.encode() and len(files["key.txt"]) == 32
    (run,) = (tmp_path / ".kept" / "runs").iterdir()
    assert max(calls(rows(run)).values()) == 1, "no reply is in the journal twice"
    # what was under way at a kill may have been answered to nobody: three workers at most
    again = Counter(asked)
    assert len(again) == ASKED, "the same was asked in every sitting"
    assert sum(n - 1 for n in again.values()) <= 3 * 10


def test_a_killed_run_is_told_as_far_as_it_came(tmp_path: Path) -> None:
    (tmp_path / "data.csv").write_text("12,15")
    with ModelServer(_play().of_server, latency=0.02) as server:
        env = {"OPENAI_COMPATIBLE_BASE_URL": server.v1}
        words = ("agent", "run", TASK, "-i", "data.csv", "--model", "openai_compatible/m", "-q")
        killed_at(kept(tmp_path, *words, **env), server, 14)
    record, files = _read(tmp_path)
    assert (record.status, record.reason) == ("aborted", "killed")
    assert [one.decision.kind for one in record.iterations if one.decision][:2] == [
        "plan",
        "delegate",
    ]
    assert files == {}
