"""Leaving something out: which stretches there are, and that each is tried once."""

import time
from dataclasses import replace

import pytest

from kept.core.artifact import Artifact, Candidate, Region, Rules
from kept.core.edit import Append
from kept.core.ports import Proposer
from kept.core.proposal import Proposal, Skip
from kept.core.verdict import Verdict
from kept.proposers.prune import Prune
from kept.proposers.text_units import KINDS, Kind, units
from kept.testing import ProposerSuite
from tests.proposers.briefs import after, ask, close, make_brief, run_dry

TEXT = """\
# Skill

Read the file. Say what it is about! Do not guess.

## Steps

- open it
- open it

```
# not a heading. Nor a sentence.
```

### Details

Only this.

## End

Stop.
"""


def cut_out(path: str, text: str, *kinds: Kind) -> list[str]:
    return [text[unit.start : unit.end] for unit in units(path, text, kinds or KINDS)]


def test_a_section_reaches_to_the_next_heading_that_is_not_below_it():
    sections = cut_out("a.md", TEXT, "section")
    assert [section.split("\n")[0] for section in sections] == ["## Steps", "### Details", "## End"]
    assert sections[0].endswith("Only this.\n\n")
    assert sections[1] == "### Details\n\nOnly this.\n\n"
    assert sections[2] == "## End\n\nStop.\n"


def test_a_sentence_goes_with_the_space_behind_it_and_the_last_with_the_one_before():
    assert cut_out("a.md", TEXT, "sentence") == [
        "Read the file. ",
        "Say what it is about! ",
        " Do not guess.",
    ]
    assert cut_out("a.md", "It costs 3.50 e.g. here. So!\r\n", "sentence") == [
        "It costs 3.50 e.g. here. ",
        " So!",
    ]


def test_lines_that_say_nothing_are_no_units_and_code_has_lines_only():
    assert cut_out("a.py", "# a. B.\n\nx = 1\n") == ["# a. B.\n", "x = 1\n"]
    assert cut_out("a.md", "only line") == []


@pytest.mark.slow
@pytest.mark.parametrize("line", ["# a\n", "x = 1\n", "One. Two. Three.\n"])
def test_a_long_text_is_taken_apart_in_a_moment(line: str):
    began = time.process_time()
    assert list(units("a.md", line * 30_000 + "end\n"))
    assert time.process_time() - began < 5


@pytest.mark.parametrize("kind", KINDS)
def test_every_unit_can_be_left_out_also_one_that_stands_twice(kind: Kind):
    found, end = run_dry(Prune(("a.md",), (kind,)), {"a.md": TEXT}, ())
    expected = [TEXT[: unit.start] + TEXT[unit.end :] for unit in units("a.md", TEXT, (kind,))]
    texts = [after(make_brief({"a.md": TEXT}), proposal)["a.md"] for proposal in found]
    assert sorted(texts) == sorted(expected)
    assert all(proposal.simplifies for proposal in found)
    assert end == Skip("everything that can be left out was tried", exhausted=True)


def test_what_is_protected_stays():
    rules = Rules({"a.md": Artifact("a.md", (Region("## Steps", "### Details"),))})
    brief = replace(make_brief({"a.md": TEXT}, name="prune"), rules=rules)
    kept = TEXT[TEXT.index("## Steps") : TEXT.index("### Details")]
    for step in range(50):
        reply = ask(Prune(("a.md",)), replace(brief, step=step, seed=step, history=brief.history))
        if isinstance(reply, Skip):
            break
        assert isinstance(reply, Proposal)
        assert kept in after(make_brief({"a.md": TEXT}), reply)["a.md"]
        brief = replace(brief, history=brief.history.add(close(brief, reply)))
    assert len(brief.history) == 9


def test_after_a_keep_everything_that_is_left_may_be_tried_again():
    first = make_brief({"a.md": TEXT}, name="prune")
    reply = ask(Prune(("a.md",)), first)
    assert isinstance(reply, Proposal)
    past = (close(first, reply, Verdict("keep", "better")),)
    second = make_brief(after(first, reply), 1, past, name="prune")
    assert isinstance(ask(Prune(("a.md",)), second), Proposal)


def test_an_open_proposal_is_not_repeated_and_leaves_the_end_open():
    brief = make_brief({"a.txt": "one\ntwo\n"}, name="prune")
    proposer = Prune(("a.txt",), ("line",))
    first = ask(proposer, brief)
    assert isinstance(first, Proposal)
    second = ask(proposer, replace(brief, open=(first,)))
    assert isinstance(second, Proposal)
    assert first.edits != second.edits
    third = ask(proposer, replace(brief, open=(first, second)))
    assert third == Skip("everything that can be left out was tried", exhausted=False)
    other = Proposal((Append("a.txt", "x"),))
    assert isinstance(ask(proposer, replace(brief, open=(other,))), Proposal)


class TestPrune(ProposerSuite):
    def make_proposer(self) -> Proposer:
        return Prune(("text",))

    def incumbent(self) -> Candidate:
        return Candidate({"text": TEXT, "other": "kept\n"})
