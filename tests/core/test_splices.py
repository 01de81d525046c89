"""Changes at a place, as edits that apply."""

from hypothesis import given
from hypothesis import strategies as st

from kept.core.artifact import Artifact, Candidate, Rules
from kept.core.edit import Replace, apply_edits, edits_between, replace_at

lines = st.lists(st.sampled_from(["a\n", "b\n", "aa\n", "\n", "a b\n", "c"]), max_size=12)
texts = lines.map("".join)
RULES = Rules({"f": Artifact("f")})


def test_a_stretch_that_stands_twice_is_named_with_the_lines_around_it():
    assert replace_at("f", "x\na\ny\na\n", 6, 8, "") == Replace("f", "y\na\n", "y\n")
    assert replace_at("f", "one two", 4, 7, "") == Replace("f", "two", "")


@given(texts.filter(bool), st.data())
def test_a_stretch_is_replaced_where_it_stands(text: str, data: st.DataObject):
    start = data.draw(st.integers(0, len(text)))
    end = data.draw(st.integers(start, len(text)))
    edit = replace_at("f", text, start, end, "new")
    applied = apply_edits(Candidate({"f": text}), (edit,), RULES)
    assert applied.candidate["f"] == text[:start] + "new" + text[end:]


@given(texts, texts)
def test_edits_between_two_texts_lead_from_one_to_the_other(before: str, after: str):
    applied = apply_edits(Candidate({"f": before}), edits_between("f", before, after), RULES)
    assert applied.candidate["f"] == after
    assert all(report.fate == "applied" for report in applied.reports)


def test_edits_of_far_places_are_apart():
    before = "".join(f"line {n}\n" for n in range(50))
    after = before.replace("line 3\n", "third\n").replace("line 40\n", "")
    edits = edits_between("f", before, after)
    assert len(edits) == 2
    assert all(isinstance(edit, Replace) and len(edit.old) < 30 for edit in edits)
