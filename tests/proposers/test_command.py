"""Any program as proposer: what it is told, what becomes of its edits, what goes wrong with it."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from kept.core.artifact import Artifact, Heading, Rules
from kept.core.case import Case
from kept.core.edit import Replace, Write, apply_edits
from kept.core.ports import Proposer
from kept.core.proposal import Brief, Note, Proposal, Skip
from kept.core.rollout import Failure
from kept.core.verdict import Verdict
from kept.proposers.external import CommandProposer
from kept.sandbox.command import Command
from kept.sandbox.workspace import Scratch
from kept.testing import MemoryJournal, ProposerSuite
from tests.proposers.briefs import ask, close, make_brief

TEXTS = {"prompt.md": "one\ntwo\nthree\n", "sub/other.md": "other\n"}


def make(line: str, timeout: float = 20.0) -> CommandProposer:
    return CommandProposer(Command(line, Path.cwd(), timeout), Scratch(), fields=("q",))


def brief(**changes: object) -> Brief:
    return replace(make_brief(TEXTS, train=(Case("t", {"q": 1, "answer": "gold"}),)), **changes)  # pyright: ignore[reportArgumentType] # fields of a brief


def test_the_diff_of_what_it_edits_becomes_edits_of_those_places():
    line = "cd $KEPT_CANDIDATE && sed -i s/two/2/ prompt.md && echo more >> sub/other.md"
    reply = ask(make(f"{line} && echo changed two"), brief())
    assert isinstance(reply, Proposal)
    assert reply.why == "changed two"
    assert reply.edits == (
        Replace("prompt.md", "two\n", "2\n"),
        Replace("sub/other.md", "other\n", "other\nmore\n"),
    )


def test_why_txt_is_the_reason_where_there_is_one():
    why = 'printf "a reason\\nof two lines" > $KEPT_OUTPUT/why.txt'
    reply = ask(make(f"echo x > $KEPT_CANDIDATE/prompt.md; {why}; echo not this"), brief())
    assert isinstance(reply, Proposal)
    assert reply.why == "a reason\nof two lines"


def test_it_is_told_what_a_proposer_may_know(tmp_path: Path):
    told = brief(memory=(Note("look at units"),), guidance={"rubric": "short"})
    past = close(
        make_brief(TEXTS),
        Proposal((Write("prompt.md", "x"),), why="shorter"),
        Verdict("discard", "worse"),
    )
    ask(
        make(f"cp $KEPT_BRIEF {tmp_path}/brief.json"), replace(told, history=told.history.add(past))
    )
    heard = json.loads((tmp_path / "brief.json").read_text())
    assert heard["step"] == 0
    assert heard["phase"] == "main"
    assert heard["seed"] == told.seed
    assert heard["objective"]["metric"] == "score"
    assert heard["incumbent"] == {"id": told.incumbent.id, "files": TEXTS}
    assert heard["train"] == [{"id": "t", "data": {"q": 1}}]
    assert heard["memory"] == ["look at units"]
    assert heard["guidance"] == {"rubric": "short"}
    (step,) = heard["steps"]
    assert (step["outcome"], step["reason"], step["why"]) == ("discard", "worse", "shorter")
    assert step["edits"] == [{"path": "prompt.md", "text": "x", "op": "write"}]


@pytest.mark.parametrize(
    ("line", "why"),
    [
        ("true", "the command changed nothing"),
        ("echo no idea", "no idea"),
        ("echo busy; exit 75", "busy"),
        ("echo x > $KEPT_CANDIDATE/prompt.md; exit 75", "the command says so (exit 75)"),
        ("echo x > $KEPT_OUTPUT/notes.txt", "the command changed nothing"),
    ],
)
def test_nothing_to_propose_is_a_skip(line: str, why: str):
    assert ask(make(line), brief()) == Skip(why)


@pytest.mark.parametrize(
    ("line", "kind", "said"),
    [
        ("echo oh no >&2; exit 3", "crash", "exit 3: oh no"),
        ("kill -9 $$", "crash", "killed by SIGKILL"),
        ("no-such-program-at-all", "crash", "exit 127"),
        ("rm $KEPT_CANDIDATE/prompt.md", "refused", "removed `prompt.md`"),
        ("rm -r $KEPT_CANDIDATE", "refused", "removed `prompt.md`"),
        ("printf '\\377' > $KEPT_CANDIDATE/prompt.md", "parse", "not UTF-8 text"),
    ],
)
def test_what_goes_wrong_is_a_failure_of_the_proposer(line: str, kind: str, said: str):
    reply = ask(make(line), brief())
    assert isinstance(reply, Failure)
    assert (reply.kind, reply.blame) == (kind, "infrastructure")
    assert said in reply.message


def test_a_link_is_not_followed():
    reply = ask(make("ln -sf /etc/passwd $KEPT_CANDIDATE/prompt.md"), brief())
    assert isinstance(reply, Failure)
    assert reply.blame == "infrastructure"


@pytest.mark.slow
def test_no_end_in_time_is_a_failure():
    reply = ask(make("sleep 60", timeout=0.2), brief())
    assert isinstance(reply, Failure)
    assert reply.kind == "timeout"


def test_a_new_file_is_written_where_the_rules_allow_it_and_reported_elsewhere():
    rules = Rules({path: Artifact(path) for path in TEXTS}, new_files=("notes/*.md",))
    told = brief(rules=rules)
    line = "cd $KEPT_CANDIDATE; mkdir notes; echo a > notes/a.md; echo b > b.py"
    reply = ask(make(line), told)
    assert isinstance(reply, Proposal)
    applied = apply_edits(told.incumbent, reply.edits, rules)
    assert [(r.edit.path, r.fate) for r in applied.reports] == [
        ("b.py", "outside scope"),
        ("notes/a.md", "applied"),
    ]


def test_a_resumed_proposal_is_served_from_the_journal_and_not_run_again(tmp_path: Path):
    journal = MemoryJournal()
    line = f"echo ran >> {tmp_path}/log; echo x > $KEPT_CANDIDATE/prompt.md"
    first = ask(make(line), brief(), journal)
    assert ask(make(line), brief(), journal) == first
    assert (tmp_path / "log").read_text() == "ran\n"
    ask(make(line), brief(step=1, seed=1), journal)
    assert (tmp_path / "log").read_text() == "ran\nran\n"


def test_the_folder_it_worked_in_is_gone(tmp_path: Path):
    ask(make(f"echo $KEPT_CANDIDATE > {tmp_path}/where"), brief())
    assert not Path((tmp_path / "where").read_text().strip()).exists()


@pytest.mark.slow
class TestCommand(ProposerSuite):
    steps = 3

    def make_proposer(self) -> Proposer:
        return make('cksum < "$KEPT_BRIEF" >> "$KEPT_CANDIDATE/text"')


GUIDE = "intro\nx = 1\ny = 2\n\n## Limits\n\nNever.\n\n## End\nend\n"
FENCE = (
    "cd $KEPT_CANDIDATE && "
    r"sed -i -e 's/^intro/INTRO, see the code/' -e 's/^x = 1/```\nx = 1/' "
    r"-e 's/^y = 2/y = 2\n```/' -e 's/^end/THE END/' prompt.md"
)


def test_a_change_that_is_allowed_as_a_whole_is_not_taken_apart_where_its_parts_are_not():
    rules = Rules({"prompt.md": Artifact("prompt.md", protected=(Heading("Limits"),))})
    made = replace(make_brief({"prompt.md": GUIDE}), rules=rules)
    reply = ask(make(FENCE), made)
    assert isinstance(reply, Proposal)
    applied = apply_edits(made.incumbent, reply.edits, rules)
    assert applied.complete, applied.reports
    assert "```\nx = 1\ny = 2\n```" in applied.candidate.texts["prompt.md"]
    assert applied.candidate.texts["prompt.md"].startswith("INTRO")
