"""R17 and R35 as functions."""

import pytest

from kept.orchestrator.checks.files import SAME, alike, contract_problems, fingerprint, fixpoint

TEXT = " ".join(f"word{n} of the report says that {n * 7} things were counted" for n in range(30))


def test_r17_an_answer_needs_a_confidence_from_0_to_1():
    assert contract_problems("w", {"w": {"confidence": 0.5, "text": "x"}}) == ()
    assert contract_problems("w", {"confidence": 1}) == ()
    for wrong in ({}, {"confidence": "high"}, {"confidence": True}, {"confidence": 1.5}):
        assert len(contract_problems("w", {"w": wrong})) == 1


def test_r17_an_answer_has_the_fields_that_were_asked_for():
    answer = {"confidence": 0.5, "a": 0, "b": ""}
    assert contract_problems("w", answer, ["a", "b", "c"]) == ("`b` is empty", "`c` is missing")


def test_r17_what_is_no_object_is_no_answer():
    assert contract_problems("w", {"w": [1]}) == ("`w` holds a list, not an object",)


def test_r35_repairs_that_say_the_same_have_come_to_rest():
    found = fixpoint(["first", TEXT, TEXT.replace("word3 ", "other ")])
    assert found is not None
    assert found.likeness >= SAME
    assert found.attempt == 3


def test_r35_repairs_that_move_go_on():
    assert fixpoint([TEXT]) is None
    assert fixpoint([TEXT, " ".join(reversed(TEXT.split()))]) is None


def test_r35_only_consecutive_attempts_are_held_against_each_other():
    assert fixpoint([TEXT, "something else entirely, in other words", TEXT]) is None


@pytest.mark.parametrize("text", ["", "!!!", "one", TEXT])
def test_a_text_is_like_itself(text: str):
    assert alike(text, text) == 1.0


def test_a_fingerprint_is_the_same_on_every_machine():
    assert fingerprint("the quick brown fox") == FOX


FOX = 0xE5E02866C4EF2FC4
