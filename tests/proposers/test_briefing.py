"""A brief as plain values."""

import json
from dataclasses import replace

from kept.core.artifact import Candidate
from kept.core.edit import Append
from kept.core.proposal import NearMiss, Parent, Proposal
from kept.proposers.external import plain_brief
from tests.proposers.briefs import close, make_brief


def test_near_misses_are_told_with_the_cases_that_each_does_best_on():
    first = make_brief({"a.md": "text\n"}, 0)
    past = [
        close(first, Proposal((Append("a.md", "one\n"),), why="be brief")),
        close(replace(first, step=1), Proposal((Append("a.md", "two\n"),), why="be kind")),
    ]
    pool = (
        NearMiss(0, 0.1, (("c0", -1.0), ("c1", -0.25))),
        NearMiss(1, 0.1, (("c0", -0.5), ("c1", -0.75))),
    )
    told = plain_brief(replace(make_brief({"a.md": "text\n"}, 2, past), pool=pool))
    heard = json.loads(json.dumps(told))["pool"]
    assert [row["why"] for row in heard] == ["be brief", "be kind"]
    assert heard[0]["metric"] == {"c0": 1.0, "c1": 0.25}
    assert [row["best_on"] for row in heard] == [["c0"], ["c1"]]
    assert heard[1]["edits"][0]["text"] == "two\n"


def test_what_is_to_be_built_on_is_told_and_otherwise_nothing_of_it():
    brief = make_brief({"a.md": "text\n"}, 1)
    assert "parent" not in plain_brief(brief)
    near = close(
        make_brief({"a.md": "text\n"}, 0), Proposal((Append("a.md", "one\n"),), why="brief")
    )
    given = replace(
        brief,
        incumbent=Candidate({"a.md": "text\none\n"}),
        parent=Parent(near, brief.incumbent),
    )
    told = json.loads(json.dumps(plain_brief(given)))
    assert told["incumbent"]["files"] == {"a.md": "text\none\n"}
    assert told["parent"]["step"] == 0
    assert told["parent"]["edits"][0]["text"] == "one\n"
    assert told["parent"]["made_for"]["files"] == {"a.md": "text\n"}
    del told["parent"], told["incumbent"]
    plain = {**plain_brief(brief)}
    del plain["incumbent"]
    assert told == json.loads(json.dumps(plain)), "the rest is as ever"
