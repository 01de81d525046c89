"""An agent as proposer: what it is told, and what becomes of what it does to the files."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from kept.core.artifact import Artifact, Rules
from kept.core.case import Case
from kept.core.edit import Replace
from kept.core.ports import Proposer
from kept.core.proposal import Brief, Proposal, Skip
from kept.core.rollout import Failure
from kept.proposers.external import AgentProposer, plain_brief, prompt_for
from kept.testing import MemoryJournal, ProposerSuite
from tests.proposers.briefs import ask, make_brief
from tests.sandbox.coding_agents.stand_in import KEY, harness, put

TEXTS = {"SKILL.md": "one\ntwo\n", "sub/other.md": "other\n"}


def brief() -> Brief:
    return make_brief(TEXTS, train=(Case("t", {"q": "a question", "a": "the answer"}),))


def make(folder: Path, line: str, monkeypatch: pytest.MonkeyPatch) -> AgentProposer:
    put(folder, line, monkeypatch)
    return AgentProposer(harness(folder), fields=("q",))


def test_of_cases_it_sees_the_fields_it_is_shown_and_no_answers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    line = "cat brief.json > candidate/SKILL.md"
    reply = ask(make(tmp_path, line, monkeypatch), brief())
    assert isinstance(reply, Proposal), reply
    (edit,) = reply.edits
    assert isinstance(edit, Replace)
    assert "a question" in edit.new
    assert "the answer" not in edit.new
    shown = json.loads(edit.new)
    assert shown["train"] == [{"id": "t", "data": {"q": "a question"}}]
    assert plain_brief(brief())["train"] == [{"id": "t", "data": {}}], "none was named"


def test_what_it_did_to_the_files_is_proposed_with_its_reason(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    line = "sed -i s/two/2/ candidate/SKILL.md; echo because > why.txt; grep -q question brief.json"
    reply = ask(make(tmp_path, f"{line} || exit 1", monkeypatch), brief())
    assert isinstance(reply, Proposal), reply
    assert reply.edits == (Replace("SKILL.md", "two\n", "2\n"),)
    assert reply.why == "because"


def test_without_a_reason_its_last_words_are_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    reply = ask(make(tmp_path, "echo x > candidate/SKILL.md", monkeypatch), brief())
    assert isinstance(reply, Proposal)
    assert reply.why == "I wrote 1.83 m to answer.txt."


def test_no_change_is_a_turn_passed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    reply = ask(make(tmp_path, "echo x > elsewhere.md", monkeypatch), brief())
    assert reply == Skip("I wrote 1.83 m to answer.txt.")


@pytest.mark.parametrize(
    ("line", "kind", "said"),
    [
        ("rm candidate/SKILL.md", "refused", "the agent removed `SKILL.md`"),
        ("printf '\\377' > candidate/SKILL.md", "parse", "not UTF-8 text"),
        ("echo oops $OPENAI_API_KEY >&2; exit 7", "crash", "exit 7: oops [secret]"),
        ("kill -9 $$", "crash", "killed by SIGKILL"),
    ],
)
def test_what_goes_wrong_is_a_failure_of_the_proposer(
    line: str, kind: str, said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    reply = ask(make(tmp_path, line, monkeypatch), brief())
    assert isinstance(reply, Failure)
    assert (reply.kind, reply.blame) == (kind, "infrastructure")
    assert said in reply.message
    assert KEY not in repr(reply)


def test_a_resumed_proposal_is_served_from_the_journal_and_not_run_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    journal = MemoryJournal()
    line = f"echo ran >> {tmp_path}/log; echo x > candidate/SKILL.md"
    first = ask(make(tmp_path, line, monkeypatch), brief(), journal)
    assert ask(make(tmp_path, line, monkeypatch), brief(), journal) == first
    assert (tmp_path / "log").read_text() == "ran\n"


def test_it_is_told_the_rules_that_its_proposal_is_held_to():
    rules = Rules(
        {"SKILL.md": Artifact("SKILL.md")},
        new_files=("notes/*.md",),
        max_files=1,
        max_changed_lines=20,
    )
    told = prompt_for(replace(brief(), rules=rules))
    assert "`score` should become higher" in told
    assert "You may change only: SKILL.md." in told
    assert "add files that match: notes/*.md" in told
    assert "at most 1 of them" in told
    assert "at most 20 lines" in told
    assert "other.md" not in told


def test_a_prompt_of_the_users_own_is_filled_in_and_the_rules_stand_behind_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    put(tmp_path, "cat > candidate/SKILL.md", monkeypatch)
    own = "{{kept.direction}} `{{kept.metric}}` of {{ kept.files }}. {{mine}}\n"
    reply = ask(AgentProposer(harness(tmp_path), fields=("q",), own=own), brief())
    assert isinstance(reply, Proposal), reply
    (edit,) = reply.edits
    assert isinstance(edit, Replace)
    told = edit.new
    assert told.startswith("maximize `score` of SKILL.md, sub/other.md. {{mine}}\n\nThe files are")
    assert "You may change only: SKILL.md, sub/other.md." in told
    assert "`why.txt`" in told
    assert "Never write the answers" not in told, "that is of Kept's own"


@pytest.mark.slow
@pytest.mark.usefixtures("_programs")
class TestAgent(ProposerSuite):
    steps = 2

    @pytest.fixture
    def _programs(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.folder, self.patch = tmp_path, monkeypatch

    def make_proposer(self) -> Proposer:
        return make(self.folder, "cksum < brief.json >> candidate/text", self.patch)
