"""Agent CLIs as students: what they find in their workspace, and what is kept of what they did."""

import asyncio
from pathlib import Path

import pytest

from kept.core.artifact import Candidate
from kept.core.case import Case
from kept.core.rollout import Failure, Job, Purpose, Rollout, TraceItem
from kept.core.score import Score
from kept.engine.replay import JournalScope
from kept.errors import SetupError
from kept.evaluators.environments.alfworld import AlfWorld
from kept.evaluators.environments.chat_student import (
    EnvScorer,
    packed_session,
    probed,
    probing_of,
    session_data,
)
from kept.evaluators.environments.coding_agent_student import WorkspaceRunner
from kept.evaluators.environments.qa import SearchQa
from kept.sandbox.coding_agents.run import Harness
from kept.testing import MemoryJournal
from kept.testing.server import ModelServer
from tests.sandbox.coding_agents.stand_in import harness, put
from tests.sandbox.coding_agents.worlds import KEYS, script, shell
from tests.sandbox.coding_agents.worlds import harness as real_harness

CASE = Case("c", {"question": "Who?", "answers": ["Ann"], "context": "[DOC] Ann did it."})
SKILL = {"SKILL.md": "Be brief.\n", "references/names.md": "Ann is a name.\n"}


def rolled(
    made: Harness,
    texts: dict[str, str] = SKILL,
    purpose: Purpose = "feedback",
    journal: MemoryJournal | None = None,
) -> Rollout | Failure:
    async def once() -> Rollout | Failure:
        runner = WorkspaceRunner(SearchQa(), made)
        candidate = Candidate(texts)
        job = Job(candidate.id, CASE.id, 0, purpose)
        try:
            scope = JournalScope(journal or MemoryJournal(), job)
            return await runner.run(job, candidate, CASE, scope)
        finally:
            await runner.close()

    return asyncio.run(once())


def scored(rollout: Rollout) -> Score | Failure:
    async def once() -> Score | Failure:
        job = Job("x", CASE.id, 0, "feedback")
        scope = JournalScope(MemoryJournal(), job)
        return await EnvScorer(SearchQa()).score(job, rollout, Candidate(SKILL), CASE, scope)

    return asyncio.run(once())


def test_the_workspace_has_the_skill_folder_and_the_task_and_no_answer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    seen = tmp_path / "seen"
    line = f"cat > {seen}; for f in $(find . -type f | sort); do echo $f; cat $f; done >> {seen}"
    put(tmp_path, line, monkeypatch)
    rollout = rolled(harness(tmp_path))
    assert isinstance(rollout, Rollout), rollout
    told = seen.read_text()
    assert told.startswith("Use the skill `skill`: read .agents/skills/skill/SKILL.md first.")
    assert "Question: Who?" in told
    assert "./.agents/skills/skill/SKILL.md" in told
    assert "./.agents/skills/skill/references/names.md\nAnn is a name." in told
    assert "./task.md" in told
    assert '"answers"' not in told


def test_the_trace_has_commands_a_summary_and_all_that_was_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    put(tmp_path, "cat > /dev/null", monkeypatch)
    rollout = rolled(harness(tmp_path))
    assert isinstance(rollout, Rollout), rollout
    tools = [item for item in rollout.trace if item.role == "tool"]
    assert tools[0].data["command"] == "cat .agents/skills/units/SKILL.md"
    assert tools[0].text.startswith("---\nname: units")
    summary = next(item for item in rollout.trace if item.data.get("summary"))
    assert "[2] tool: $ cat" in str(summary.data["summary"])
    kept = rollout.trace[-1]
    assert kept.role == "session"
    assert '"type":"thread.started"' in str(kept.data["raw"])
    assert rollout.files == {}


def test_an_execution_that_arrived_is_not_done_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    put(tmp_path, f"cat > /dev/null; echo x >> {tmp_path}/runs", monkeypatch)
    journal = MemoryJournal()
    first, again = (rolled(harness(tmp_path), journal=journal) for _ in range(2))
    assert first == again
    assert (tmp_path / "runs").read_text() == "x\n"


def test_a_cli_that_cannot_start_is_no_fault_of_the_skill(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    put(tmp_path, "echo 'ERROR: stream disconnected' >&2; exit 7", monkeypatch)
    failure = rolled(harness(tmp_path))
    assert isinstance(failure, Failure)
    assert failure.message


def test_a_probe_without_a_session_is_told_again_what_was_done(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    seen = tmp_path / "seen"
    put(tmp_path, f"cat > {seen}", monkeypatch)
    trace = (
        TraceItem("user", "Question: Who?"),
        TraceItem("tool", "Ann did it.", {"step": 1, "command": "cat task.md"}),
        TraceItem("assistant", "It is Bob.", {"step": 2}),
    )
    rollout = rolled(harness(tmp_path), dict(probed(SKILL, "Why?", trace, 1)), "probe")
    assert isinstance(rollout, Rollout), rollout
    told = seen.read_text()
    assert "So far you have done this:\n\n[tool] $ cat task.md\nAnn did it.\n\nWhy?" in told
    assert "Bob" not in told


def test_a_session_is_carried_by_the_candidate_of_a_probe():
    trace = (
        TraceItem("user", "q"),
        TraceItem("assistant", "a", {"step": 1}),
        packed_session("raw", b"\x1f\x8b", "id-1"),
    )
    probing = probing_of(Candidate(dict(probed(SKILL, "Why?", trace, 1))))
    assert probing is not None
    assert probing.session is not None
    assert session_data(probing.session) == b"\x1f\x8b"
    assert [item.text for item in probing.before] == ["q", "a"]


def test_a_simulator_needs_a_student_that_talks(tmp_path: Path):
    with pytest.raises(SetupError, match="is played turn by turn, which `codex_exec` cannot"):
        WorkspaceRunner(AlfWorld(), harness(tmp_path))


@pytest.fixture
def _keys(agent_clis: Path, monkeypatch: pytest.MonkeyPatch):
    for name in KEYS.values():
        monkeypatch.setenv(name, "sk-canary-0123456789abcdef")


@pytest.mark.agents
@pytest.mark.slow
@pytest.mark.sandbox
@pytest.mark.usefixtures("_keys")
@pytest.mark.parametrize("name", ["codex_exec", "claude_code_exec"])
def test_a_real_cli_answers_and_is_probed_from_a_chosen_step(name: str, tmp_path: Path):
    """The second request of the server's log has the history up to that step, and no more."""
    replies = script(shell(name, "cat task.md"), shell(name, "echo two"), "<answer>Bob</answer>")
    with ModelServer(replies) as server:
        first = rolled(real_harness(name, server, tmp_path))
    assert isinstance(first, Rollout), first
    score = scored(first)
    assert isinstance(score, Score)
    assert score.metrics["hard"] == 0
    steps = [item.data["step"] for item in first.trace if "step" in item.data]
    assert steps == [1, 2, 3]
    texts = dict(probed(SKILL, "Which name did you read?", first.trace, 1))
    with ModelServer(script("unused", "<answer>Ann</answer>")) as server:
        second = rolled(real_harness(name, server, tmp_path), texts, "probe")
        (seen,) = (seen for seen in server.log if seen.tools)
    assert isinstance(second, Rollout), second
    assert len(seen.tool_results) == 1, "the history ends with the step that was chosen"
    assert "Question: Who?" in seen.tool_results[0]
    assert "Which name did you read?" in seen.text
    assert second.output == "<answer>Ann</answer>"
