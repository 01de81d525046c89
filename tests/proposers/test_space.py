"""Points of a space: values that files do not say, and values that follow others."""

import pytest

from kept.core.artifact import Artifact, Candidate, NoSpan, Rules
from kept.core.edit import SetValue, apply_edits
from kept.core.proposal import Proposal
from kept.proposers.numeric.space import Axis, Numbers, Rest, Space
from kept.spec.locate.tree import locate_or_insert, read_value

FILE = "agent.yaml"


def test_a_value_that_a_file_does_not_say_has_its_default():
    space = Space((Axis(FILE, "model.temperature", Numbers(0, 1), 0.3),))
    assert space.read({FILE: "model: {name: x}"}) == (0.3,)
    assert space.read({FILE: "model: {name: x, temperature: 0.7}"}) == (0.7,)
    assert space.read({FILE: "model: {name: x, temperature: null}"}) == (0.3,)
    without = Space((Axis(FILE, "model.temperature", Numbers(0, 1)),))
    assert isinstance(without.read({FILE: "model: {name: x}"}), NoSpan)
    twice = "model: &m {temperature: 1}\nother: *m"
    assert isinstance(space.read({FILE: twice}), NoSpan)


@pytest.mark.parametrize("value", [0.0, 0.2, 0.123457, 1 / 3, 0.9999999, 1.0])
def test_what_follows_a_value_makes_up_the_rest_in_the_same_shares(value: float):
    rest = Rest((0,), ((FILE, "keyword", 0.6), (FILE, "exact", 0.4)))
    space = Space((Axis(FILE, "semantic", Numbers(0, 1)),), (rest,))
    edits = space.edits((value,))
    assert [edit.key for edit in edits] == ["semantic", "keyword", "exact"]
    found = [float(edit.value) for edit in edits]
    assert sum(found) == pytest.approx(1, abs=2e-9)
    assert min(found) >= 0
    assert found[1] == pytest.approx((1 - value) * 0.6, abs=1e-6)


def test_a_value_may_follow_two():
    rest = Rest((0, 1), ((FILE, "exact", 1.0),))
    axes = (Axis(FILE, "semantic", Numbers(0, 0.6)), Axis(FILE, "keyword", Numbers(0, 0.4)))
    assert Space(axes, (rest,)).edits((0.5, 0.3))[2] == SetValue(FILE, "exact", 0.2)
    assert Space(axes, (rest,)).edits((0.6, 0.4))[2] == SetValue(FILE, "exact", 0.0)


def test_what_follows_is_written_into_the_file_and_is_no_part_of_the_point():
    rest = Rest((0,), ((FILE, "keyword", 0.6), (FILE, "exact", 0.4)))
    space = Space((Axis(FILE, "semantic", Numbers(0, 1)),), (rest,))
    text = "semantic: 0.5 # meaning\nexact: 0.2\n"
    made = apply_edits(
        Candidate({FILE: text}),
        space.edits((0.4,)),
        Rules({FILE: Artifact(FILE)}),
        locate_or_insert,
    )
    assert made.candidate.texts[FILE] == "semantic: 0.4 # meaning\nexact: 0.24\nkeyword: 0.36\n"
    assert read_value(FILE, made.candidate.texts[FILE], "keyword") == 0.36
    assert space.meant(Proposal(space.edits((0.4,)))) == (0.4,)


def test_a_change_is_told_in_three_digits_unless_they_look_alike():
    axes = [Axis(FILE, "a", Numbers(0, 1)), Axis(FILE, "b", Numbers(0, 9, whole=True))]
    space = Space(tuple(axes))
    assert space.words((0.980284, 5), (0.9, 4)) == "a 0.9 → 0.98, b 4 → 5"
    assert space.words((0.90004, 4), (0.9, 4)) == "a 0.9 → 0.90004"
