"""An agent as runner: what it is sent out with, and what is made of what it brings back."""

import asyncio
import json
from dataclasses import replace
from pathlib import Path

import pytest

from kept.core.artifact import Candidate
from kept.core.case import IMPLICIT_CASE, Case
from kept.core.ports import Runner
from kept.core.rollout import FREE, Failure, Job, Rollout
from kept.engine.replay import JournalScope, request_key
from kept.evaluators.runners.coding_agent import AgentRunner, Outfit
from kept.evaluators.runners.model import Form
from kept.testing import MemoryJournal, RunnerSuite
from tests.processes import is_gone, read_pid
from tests.sandbox.coding_agents.stand_in import KEY, harness, put

CANDIDATE = Candidate({"SKILL.md": "Use metres.\n", "task.md": "Convert {{text}}.", "a.csv": "new"})
CASE = Case("c", {"text": "six feet", "answer": "1.83"})


class Setup:
    def __init__(self, folder: Path, form: Form, outfit: Outfit | None = None) -> None:
        self.journal = MemoryJournal()
        self.runner = AgentRunner(harness(folder), form, outfit or Outfit())

    def run(self, case: Case = CASE) -> tuple[Rollout | Failure, JournalScope]:
        job = Job(CANDIDATE.id, case.id, 0, "decide")
        scope = JournalScope(self.journal, job)

        async def once() -> Rollout | Failure:
            try:
                return await self.runner.run(job, CANDIDATE, case, scope)
            finally:
                await self.runner.close()

        return asyncio.run(once()), scope

    def rollout(self, case: Case = CASE) -> Rollout:
        found, _ = self.run(case)
        assert isinstance(found, Rollout), found
        return found


@pytest.mark.usefixtures("_programs")
class TestAgentRunner(RunnerSuite):
    @pytest.fixture
    def _programs(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.folder, self.patch = tmp_path, monkeypatch

    def make(self, line: str) -> Runner:
        put(self.folder, line, self.patch)
        return AgentRunner(harness(self.folder), Form((), ("question",)), Outfit())

    def make_runner(self) -> Runner:
        return self.make("echo made > file.txt")

    def make_crashing_runner(self) -> Runner:
        return self.make("exit 3")

    def make_hanging_runner(self) -> Runner:
        return self.make(f"echo $$ > {self.folder}/pid; sleep 100 & wait")

    def begun(self) -> bool:
        path = self.folder / "pid"
        return path.exists() and bool(path.read_text().strip())

    def still_running(self) -> object:
        return not is_gone(read_pid(self.folder / "pid"))


def test_it_is_told_the_named_fields_of_a_case_and_nothing_else_of_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    put(tmp_path, "cat > prompt.seen; env > env.seen; ls -AR .. > files.seen", monkeypatch)
    rollout = Setup(tmp_path, Form((), ("text",)), Outfit(skill=("SKILL.md",))).rollout()
    told = "Use the skill `skill`: read .agents/skills/skill/SKILL.md first.\n\nsix feet"
    assert rollout.files["prompt.seen"].decode() == told
    assert rollout.trace[0].text == told
    everything = b"".join(rollout.files.values())
    assert b"1.83 m" in everything, "what the recorded agent said"
    assert b'"1.83"' not in everything
    assert b"case.json" not in everything


@pytest.mark.parametrize(
    ("form", "case", "told"),
    [
        (Form(("task.md",), ("text",)), CASE, "Convert six feet."),
        (Form(("SKILL.md",), ("text",)), CASE, "Use metres.\n\nsix feet"),
        (Form(("SKILL.md",), ()), IMPLICIT_CASE, "Use metres."),
        (Form((), ("text", "answer")), CASE, json.dumps(CASE.data)),
    ],
)
def test_a_prompt_and_fields_are_put_together_as_for_a_model(
    form: Form, case: Case, told: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    put(tmp_path, "cat > prompt.seen", monkeypatch)
    assert Setup(tmp_path, form).rollout(case).files["prompt.seen"].decode() == told


def test_files_of_a_case_lie_in_the_workspace_and_artifacts_are_the_candidates(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    put(tmp_path, "cat data/b.csv a.csv > both; echo changed > a.csv; rm data/b.csv", monkeypatch)
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "b.csv").write_text("from the folder,")
    (tmp_path / "a.csv").write_text("old")
    outfit = Outfit(files={"c": ("data/b.csv", "a.csv"), "d": ("other",)}, folder=tmp_path)
    rollout = Setup(tmp_path, Form((), ("text",)), outfit).rollout()
    assert rollout.files["both"] == b"from the folder,new"
    assert rollout.files["a.csv"] == b"changed\n"
    assert "data/b.csv" not in rollout.files
    assert rollout.trace[-1].text == "removed: data/b.csv"
    assert (tmp_path / "a.csv").read_text() == "old"


def test_a_file_that_stays_as_it_was_is_for_the_scorer_and_not_for_the_journal(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    large = "a large table, " * 10_000
    for name in "abc":
        (tmp_path / f"{name}.txt").write_text(large)
    outfit = Outfit(files={"c": ("a.txt", "b.txt", "c.txt")}, folder=tmp_path)
    put(tmp_path, "echo changed > b.txt; rm c.txt", monkeypatch)
    setup = Setup(tmp_path, Form((), ("text",)), outfit)
    first, _ = setup.run()
    assert isinstance(first, Rollout)
    texts = {name: data.decode() for name, data in first.files.items() if name.endswith(".txt")}
    assert texts["a.txt"] == large
    assert texts["b.txt"] == "changed\n"
    assert "c.txt" not in texts
    job = Job(CANDIDATE.id, CASE.id, 0, "decide")
    key = request_key({"agent": "codex_exec", "model": "openai/m", "job": list(job)})
    (written,) = setup.journal.calls(job.scope, key, Rollout)
    assert isinstance(written, Rollout)
    assert sorted(written.files) == ["b.txt", "codex_raw.txt", "codex_trace_summary.txt"]
    again, _ = setup.run()
    assert again == first


def test_more_than_may_be_left_in_a_workspace_is_the_candidates_fault(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    put(tmp_path, "head -c 20000 /dev/zero > large", monkeypatch)
    setup = Setup(tmp_path, Form((), ("text",)))
    limited = replace(harness(tmp_path), most_output=10_000)
    setup.runner = AgentRunner(limited, Form((), ("text",)), Outfit())
    found, _ = setup.run()
    assert isinstance(found, Failure)
    assert (found.kind, found.blame) == ("limit", "candidate")
    assert "[5] assistant: I wrote 1.83 m" in found.detail


def test_a_file_that_is_gone_is_no_fault_of_the_candidate(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    put(tmp_path, ":", monkeypatch)
    outfit = Outfit(files={"c": ("gone.csv",)}, folder=tmp_path)
    found, _ = Setup(tmp_path, Form((), ("text",)), outfit).run()
    assert isinstance(found, Failure)
    assert (found.kind, found.blame) == ("harness", "infrastructure")
    assert "gone.csv" in found.message


def test_what_it_used_is_counted_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    put(tmp_path, ":", monkeypatch)
    found, scope = Setup(tmp_path, Form((), ("text",))).run()
    assert found.usage is FREE
    assert (scope.usage.calls, scope.usage.tokens_in, scope.usage.tokens_out) == (1, 20164, 66)


def test_an_agent_whose_rollout_is_in_the_journal_is_not_sent_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    put(tmp_path, f"echo ran >> {tmp_path}/log", monkeypatch)
    setup = Setup(tmp_path, Form((), ("text",)))
    first, _ = setup.run()
    again, _ = setup.run()
    assert again == first
    assert (tmp_path / "log").read_text() == "ran\n"


def test_a_key_is_in_nothing_that_comes_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    put(tmp_path, "env > env.txt; echo $OPENAI_API_KEY >&2", monkeypatch)
    monkeypatch.setenv("ANTHROPIC_API_KEY", "canary-of-another")
    rollout = Setup(tmp_path, Form((), ("text",))).rollout()
    assert b"OPENAI_API_KEY=[secret]\n" in rollout.files["env.txt"]
    assert KEY not in repr(rollout)
    assert "canary-of-another" not in repr(rollout)
    put(tmp_path, "echo bad key $OPENAI_API_KEY >&2; exit 1", monkeypatch)
    failure, _ = Setup(tmp_path, Form((), ("text",))).run()
    assert isinstance(failure, Failure)
    assert "bad key [secret]" in failure.message
    assert KEY not in repr(failure)


def test_without_a_key_the_variable_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    put(tmp_path, ":", monkeypatch)
    monkeypatch.delenv("OPENAI_API_KEY")
    failure, _ = Setup(tmp_path, Form((), ("text",))).run()
    assert isinstance(failure, Failure)
    assert failure.kind == "harness"
    assert "OPENAI_API_KEY is not set" in failure.message


def test_a_prompt_that_asks_for_more_than_it_may_have_is_the_candidates_fault(tmp_path: Path):
    found, _ = Setup(tmp_path, Form(("task.md",), ("answer",))).run()
    assert isinstance(found, Failure)
    assert (found.kind, found.blame) == ("crash", "candidate")
