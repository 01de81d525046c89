"""Agent CLIs as workers: a stand-in for what is round them, and the real codex for a whole run."""

import json
import os
from dataclasses import replace
from pathlib import Path

import pytest

from kept.core.llm import ModelReply
from kept.core.rollout import Failure
from kept.orchestrator.coding_agent_worker import CliWorker, Sent
from kept.recipes.agent_run.journal_view import spoken
from kept.sandbox.capabilities import abilities
from kept.store.reader import Run
from kept.testing import MemoryJournal
from kept.testing.journal import CallRecord
from kept.testing.server import Fault, ModelServer, Seen
from tests.orchestrator.play import (
    REPORT,
    Came,
    Play,
    complete,
    delegate,
    done,
    finished,
    kit_of,
    plan,
    run_agent,
    say,
)
from tests.recipes.killing import kept
from tests.sandbox.coding_agents.stand_in import KEY, harness, put
from tests.sandbox.coding_agents.worlds import shell


def _says(text: str) -> str:
    """The end of a stand-in that tells its own events, and not those that were recorded."""
    rows = (
        {"type": "thread.started", "thread_id": "t1"},
        {"type": "turn.started"},
        {"type": "item.completed", "item": {"id": "i1", "type": "agent_message", "text": text}},
        {"type": "turn.completed", "usage": {"input_tokens": 90, "output_tokens": 10}},
    )
    lines = "\n".join(json.dumps(row) for row in rows)
    return f"cat <<'END'\n{lines}\nEND\nexit 0"


def _run(tmp_path: Path, journal: MemoryJournal | None = None) -> Came | Failure:
    play = Play([plan("report.md"), delegate("w1"), complete()])
    made = harness(tmp_path)
    kit = replace(kit_of(play), works=CliWorker(made))
    try:
        return run_agent(kit, inputs={"in.txt": b"12"}, journal=journal)
    finally:
        made.scratch.close()


def test_what_a_cli_changes_in_its_copy_comes_back_as_the_workers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # `output/` is there before anything was written
    line = f"printf '%s' '{REPORT}' > output/report.md; cat input/in.txt > seen; "
    put(tmp_path, line + _says(done("w1")), monkeypatch)
    journal = MemoryJournal()
    came = finished(_run(tmp_path, journal))
    assert came.record.status == "complete"
    assert came.files == {"report.md": REPORT.encode()}
    (sent,) = came.record.iterations[1].delegations
    assert sent.written == ("output/report.md", "seen")
    assert sent.usage.tokens_in >= 90 and sent.seconds > 0
    again = journal.reopened()
    again.tail(0)
    put(tmp_path, "exit 1", monkeypatch)
    resumed = finished(_run(tmp_path, again))
    assert resumed.files == came.files, "an errand that was heard of is not run again"


def test_an_errand_that_was_cut_off_runs_again_and_is_told_as_lost(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    line = f"mkdir -p output; printf '%s' '{REPORT}' > output/report.md; "
    put(tmp_path, line + _says(done("w1")), monkeypatch)
    journal = MemoryJournal()
    whole = finished(_run(tmp_path, journal))
    assert whole.record.iterations[1].delegations[0].lost == 0
    at = next(
        n
        for n, r in enumerate(journal.records)
        if isinstance(r, CallRecord) and isinstance(r.reply, Sent)
    )
    cut = journal.reopened(at)
    cut.tail(0)
    again = finished(_run(tmp_path, cut))
    assert again.record.iterations[1].delegations[0].lost == 1
    assert again.files == whole.files


def test_a_cli_that_dies_is_the_workers_failure(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    put(tmp_path, "kill -9 $$", monkeypatch)
    play = Play([plan("report.md"), delegate("w1"), say({"decision": "fail", "reason": "it died"})])
    made = harness(tmp_path)
    kit = replace(kit_of(play), works=CliWorker(made))
    record = finished(run_agent(kit)).record
    made.scratch.close()
    (sent,) = record.iterations[1].delegations
    assert sent.failure is not None and sent.failure.kind == "crash"
    assert record.status == "failed"


def test_a_cli_that_breaks_the_contract_is_sent_once_more(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    put(tmp_path, _says("all done"), monkeypatch)
    journal = MemoryJournal()
    came = _run(tmp_path, journal)
    calls = [r for r in journal.records if isinstance(r, CallRecord) and "/w1/" in r.scope]
    assert isinstance(came, Came)
    sent = came.record.iterations[1].delegations[0]
    assert sent.failure is not None and "broken twice" in sent.failure.message
    assert sum(isinstance(r.reply, Sent) for r in calls) == 2


@pytest.mark.agents
@pytest.mark.slow
@pytest.mark.sandbox
@pytest.mark.usefixtures("agent_clis")
@pytest.mark.skipif(not abilities().walls, reason="no walls here")
def test_a_whole_run_with_the_real_codex_as_worker(tmp_path: Path) -> None:
    (tmp_path / "data.csv").write_text("12,15")
    play = Play([plan("report.md"), delegate("w1"), complete()])
    line = "mkdir -p output && cp input/data.csv output/report.md"
    line += f" && printf '%s' '{REPORT}' >> output/report.md"

    def answer(seen: Seen) -> ModelReply | Fault | str:
        if seen.wire == "chat":
            return play.of_server(seen)
        return (
            shell("codex_exec", line, "I will write it.") if not seen.tool_results else done("w1")
        )

    with ModelServer(answer) as server:
        (tmp_path / "run.yaml").write_text(
            "models:\n"
            f"  manager: {{provider: openai_compatible, model: m, base_url: {server.v1}}}\n"
            f"  worker: {{provider: openai, model: gpt-5-mini, base_url: {server.v1}}}\n"
            "worker_agent: codex_exec\n"
        )
        words = ("agent", "run", "Write report.md", "-i", "data.csv", "--config", "run.yaml")
        path = os.environ["PATH"]  # noqa: TID251 # where the CLIs are
        process = kept(tmp_path, *words, "--json", OPENAI_API_KEY=KEY, PATH=path)
        out, err = process.communicate(timeout=600)
    assert process.returncode == 0, err
    told = json.loads(out)
    assert told["models"]["worker"] == "codex_exec:openai/gpt-5-mini"
    (run,) = (tmp_path / ".kept" / "runs").iterdir()
    assert (run / "FINAL" / "report.md").read_text() == "12,15" + REPORT
    assert told["iterations"][1]["delegations"][0]["written"] == ["output/report.md"]
    files = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert [path for path in files if KEY.encode() in path.read_bytes()] == []
    with Run(run) as read:
        assert read.status == "finished"
        rows = [row.item for row in spoken(read, "w1") if row.who == "w1"]
    assert [row.role for row in rows] == ["assistant", "tool", "assistant"]
    assert rows[0].text == "I will write it." and "report.md" in rows[1].text
    assert rows[2].text == done("w1"), "its answer stands there once, and whole"
