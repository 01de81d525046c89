"""Proposals that build on a near miss."""

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from kept.core.artifact import Artifact, Candidate, Rules
from kept.core.edit import Append, Delete, Edit, InsertAfter, Replace, Write, apply_edits
from kept.core.near_misses import edits_without, judged_whole, kept_since, line_of, on_top
from kept.core.proposal import MORE, ClosedStep, History, NearMiss, Proposal, Turn, joined
from kept.core.verdict import Verdict

RULES = Rules({"a": Artifact("a"), "b": Artifact("b", max_chars=40)})
SEED = Candidate({"a": "one\ntwo\nthree\n", "b": "beta\n"})
MISS = Verdict("discard", "near", code="near miss", numbers={"estimate": 0.1})

words = st.sampled_from(["one", "two", "three", "beta", "four", "five\n", ""])
paths = st.sampled_from(["a", "b", "elsewhere"])
edits = st.lists(
    st.one_of(
        st.builds(Replace, paths, words, words),
        st.builds(InsertAfter, paths, words, words),
        st.builds(Delete, paths, words),
        st.builds(Append, paths, words),
        st.builds(Write, paths, st.text("xyz\n", max_size=60)),
    ),
    max_size=4,
).map(tuple)


def step(number: int, proposal: Proposal, verdict: Verdict = MISS) -> ClosedStep:
    return ClosedStep(number, Turn("edit"), SEED.id, f"c{number}", proposal, (), verdict)


@given(edits, edits)
def test_a_child_is_its_parent_with_its_own_edits(below: tuple[Edit, ...], own: tuple[Edit, ...]):
    parent = apply_edits(SEED, below, RULES)
    child = on_top(step(3, Proposal(below)), Proposal(own, "why", ("c1",)))
    apart = apply_edits(parent.candidate, own, RULES)
    whole = apply_edits(SEED, child.edits, RULES)
    assert whole.candidate.id == apart.candidate.id
    assert whole.reports == (*parent.reports, *apart.reports)
    assert (child.builds_on, child.inherited) == ((3,), len(below))
    assert (child.why, child.cites) == ("why", ("c1",))


FIRST, SECOND, THIRD = (Append("a", f"{n}\n") for n in range(3))


def family() -> History:
    """A near miss, one that builds on it, and one that builds on that."""
    first = step(0, Proposal((FIRST,)))
    second = step(1, on_top(first, Proposal((SECOND,))))
    third = step(2, on_top(second, Proposal((THIRD,))))
    return History([first, second, third])


def test_what_is_there_already_is_not_tried_again():
    closed = family()
    made = closed[2].proposal
    assert made is not None
    assert edits_without(closed, made, set()) == made.edits == (FIRST, SECOND, THIRD)
    assert edits_without(closed, made, {0}) == (SECOND, THIRD)
    assert edits_without(closed, made, {0, 1}) == (THIRD,)
    plain = Proposal((FIRST,))
    assert edits_without(closed, plain, {0}) == (FIRST,)


def test_a_keep_brings_in_what_its_members_build_on():
    closed = family()
    assert kept_since(closed, 0) == set()
    merged = Proposal((FIRST, SECOND), merges=(1,))
    closed = closed.add(step(3, merged, Verdict("keep", "better")))
    assert kept_since(closed, 0) == {0, 1}
    assert kept_since(closed, 4) == set()
    assert list(line_of(closed, 2)) == [2, 1, 0]
    assert list(line_of(closed, 2, {0, 1})) == [2]
    lost = closed.add(step(4, replace(merged, merges=(2,)), Verdict("discard", "no")))
    assert kept_since(lost, 0) == {0, 1}


def test_whether_all_edits_were_tried_shows_in_the_reports():
    closed = family()
    made = closed[1].proposal
    assert made is not None
    reports = apply_edits(SEED, made.edits, RULES).reports
    assert judged_whole(made, reports)
    assert not judged_whole(made, reports[1:])


def test_the_better_child_takes_the_place_of_its_parent_in_the_pool():
    parent, other = NearMiss(0, 0.2), NearMiss(1, 0.3)
    child = NearMiss(2, 0.4)
    assert joined((parent, other), child, (0, 0.2)) == (other, child)
    assert joined((parent, other), child, (0, 0.4)) == (parent, other), "it is no better"
    little = child._replace(estimate=0.2 + MORE / 2)
    assert joined((parent, other), little, (0, 0.2)) == (parent, other), "which may well be chance"
    assert joined((parent, other), child, None) == (parent, other, child)


def test_of_a_child_whose_parent_is_with_another_its_own_part_counts():
    sibling = NearMiss(2, 0.4)
    (_, found) = joined((sibling,), NearMiss(3, 0.75), (0, 0.25))
    assert (found.step, found.estimate) == (3, 0.5)
    (_, grandchild) = joined((sibling, found), NearMiss(4, 1.0), (3, 0.75))
    assert (grandchild.step, grandchild.estimate) == (4, 0.75)
