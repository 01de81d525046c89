"""Near misses put together: which go together, and which would undo each other."""

from dataclasses import replace

from kept.core.artifact import locate_line_value
from kept.core.edit import Append, Edit, Replace, Write
from kept.core.near_misses import on_top
from kept.core.ports import Proposer
from kept.core.proposal import MERGE, Brief, History, NearMiss, Pool, Proposal, Skip
from kept.core.verdict import Verdict
from kept.proposers.merge import Merge
from kept.testing import ProposerSuite
from tests.proposers.briefs import after, ask, close, make_brief

TEXTS = {"a.md": "one\ntwo\nthree\nfour\n", "b.md": "beta\n"}
MISS = Verdict("discard", "a near miss", "near miss", numbers={"estimate": 0.1})


def brief(*proposals: tuple[Edit, ...], estimates: tuple[float, ...] = ()) -> Brief:
    """A brief whose pool holds these proposals."""
    past = [
        close(make_brief(TEXTS, step), Proposal(edits), MISS)
        for step, edits in enumerate(proposals)
    ]
    worth = estimates or tuple(0.1 for _ in proposals)
    pool: Pool = tuple(NearMiss(step, one) for step, one in enumerate(worth))
    return replace(make_brief(TEXTS, len(past), past, name=MERGE), pool=pool)


def merge(made: Brief) -> Proposal:
    reply = ask(Merge(locate_line_value), made)
    assert isinstance(reply, Proposal), reply
    return reply


def test_one_that_is_to_be_tried_alone_is_taken_alone():
    made = brief((Append("a.md", "x\n"),), (Append("b.md", "y\n"),), (Append("b.md", "z\n"),))
    alone = made.pool[1]._replace(alone=True)
    reply = merge(replace(made, pool=(made.pool[0], alone, made.pool[2])))
    assert (reply.merges, reply.edits) == ((1,), (Append("b.md", "y\n"),))


class TestMerge(ProposerSuite):
    def make_proposer(self) -> Proposer:
        return Merge(locate_line_value)

    def brief(self, step: int = 0) -> Brief:
        return brief((Append("a.md", "five\n"),), (Replace("b.md", "beta", "gamma"),))


def test_edits_of_different_places_go_together():
    made = brief((Replace("a.md", "two", "2"),), (Append("b.md", "more\n"),))
    found = merge(made)
    assert found.merges == (0, 1)
    assert after(made, found) == {"a.md": "one\n2\nthree\nfour\n", "b.md": "beta\nmore\n"}
    assert "steps 0, 1" in found.why


def test_the_one_that_is_thought_to_be_worth_more_comes_first():
    made = brief(
        (Replace("a.md", "two", "2"),), (Replace("a.md", "two", "zwei"),), estimates=(0.1, 0.2)
    )
    found = merge(made)
    assert found.merges == (1,), "the other has nothing left to replace"
    assert after(made, found)["a.md"] == "one\nzwei\nthree\nfour\n"
    assert found.why == "takes up what step 1 proposed"


def test_whole_texts_go_together_where_they_change_different_lines():
    made = brief(
        (Write("a.md", "ONE\ntwo\nthree\nfour\n"),), (Write("a.md", "one\ntwo\nthree\nFOUR\n"),)
    )
    found = merge(made)
    assert found.merges == (0, 1)
    assert after(made, found)["a.md"] == "ONE\ntwo\nthree\nFOUR\n"


def test_a_whole_text_for_another_incumbent_does_not_take_the_place_of_other_changes():
    made = brief((Replace("a.md", "two", "2"),), (Write("a.md", "all new\n"),))
    old = replace(made.history[1], incumbent="another")
    made = replace(made, history=type(made.history)([made.history[0], old]))
    assert merge(made).merges == (0,)


def written_before_a_keep(screened: float, kept: float) -> Brief:
    """A brief with one near miss, a whole text, since which something else was kept."""
    made = brief((Write("a.md", "all new\n"),))
    verdict = replace(MISS, numbers={"estimate": 0.1, "screen_gain": screened})
    old = replace(made.history[0], incumbent="another", verdict=verdict)
    keep = close(make_brief(TEXTS, 1), Proposal(()), Verdict("keep", "", numbers={"gain": kept}))
    return replace(made, step=2, history=type(made.history)([old, keep]))


def test_a_whole_text_does_not_undo_what_was_kept_since_unless_it_promised_more():
    assert isinstance(ask(Merge(locate_line_value), written_before_a_keep(0.2, 0.3)), Skip)
    found = merge(written_before_a_keep(0.4, 0.3))
    assert found.edits == (Write("a.md", "all new\n"),), "raced by itself, as what it is"
    assert found.merges == (0,)


def test_whole_texts_that_say_some_of_the_same_are_alternatives():
    short = "one\ntwo\nthree\nfour Be brief.\n"
    long = "one\ntwo\nthree\nfour Be brief. Be kind.\n"
    other = "one Be exact.\ntwo\nthree\nfour\n"
    made = brief(*((Write("a.md", text),) for text in (short, long, other)), estimates=(1, 2, 3))
    found = merge(made)
    assert found.merges == (2, 1)
    assert after(made, found)["a.md"] == "one Be exact.\ntwo\nthree\nfour Be brief. Be kind.\n"


def test_what_no_longer_applies_is_left_out_and_nothing_at_all_is_said():
    made = brief((Replace("a.md", "gone", "2"),), (Append("b.md", "more\n"),))
    assert merge(made).merges == (1,)
    reply = ask(Merge(locate_line_value), brief((Replace("a.md", "gone", "2"),)))
    assert isinstance(reply, Skip)


def test_one_that_builds_on_another_brings_that_along_once():
    first, more, other = Append("a.md", "x\n"), Append("a.md", "y\n"), Append("b.md", "z\n")
    made = brief((first,), (first, more), (first, other), estimates=(0.1, 0.3, 0.2))
    child, sibling = (
        replace(made.history[n], proposal=on_top(made.history[0], Proposal(own)))
        for n, own in ((1, (more,)), (2, (other,)))
    )
    closed = History([made.history[0], child, sibling])
    family = replace(made, history=closed)
    assert merge(replace(family, pool=made.pool[1:2])).edits == (first, more)
    both = merge(replace(family, pool=made.pool[1:]))
    assert (both.merges, both.edits) == ((1, 2), (first, more, other))
    all_ = merge(family)
    assert (all_.merges, all_.edits) == ((1, 2), (first, more, other)), "the first is there"
    kept = close(made, Proposal((first,), merges=(0,)), Verdict("keep", "better"))
    later = replace(family, history=History([*closed, kept]), pool=made.pool[1:2])
    assert merge(later).edits == (more,), "what it builds on was kept"


def test_a_text_written_anew_on_another_goes_together_as_what_it_changes():
    first, anew = Replace("a.md", "two", "2"), Write("a.md", "one\n2\nthree\n4\n")
    made = brief((first,), (first, anew), (Append("b.md", "z\n"),), estimates=(0.1, 0.3, 0.2))
    child = replace(made.history[1], proposal=on_top(made.history[0], Proposal((anew,))))
    family = replace(made, history=History([made.history[0], child, made.history[2]]))
    found = merge(replace(family, pool=made.pool[1:]))
    assert found.merges == (1, 2)
    assert after(made, found) == {"a.md": "one\n2\nthree\n4\n", "b.md": "beta\nz\n"}
