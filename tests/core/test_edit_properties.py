"""Random texts and random edits: what is applied can be taken back, exactly."""

import re

from hypothesis import given, settings
from hypothesis import strategies as st

from kept.core.artifact import Artifact, Candidate, Region, Rules
from kept.core.edit import (
    Append,
    Delete,
    Edit,
    InsertAfter,
    Replace,
    SetValue,
    Write,
    apply_edits,
    invert,
)

PLAIN = settings(deadline=None, derandomize=True, max_examples=150)

# few letters, so that targets are found, missed and ambiguous alike
letters = st.sampled_from("ab=:#'\" \n\r\t<>éß😀\u2028\udc80")
texts = st.text(letters | st.just("\ud83d"), max_size=30) | st.text(max_size=10)
paths = st.sampled_from(["a", "b", "new/c", "new/d", "elsewhere"])
values = st.one_of(st.booleans(), st.integers(), st.floats(allow_nan=False), texts)

edits = st.one_of(
    st.builds(Replace, paths, texts, texts),
    st.builds(InsertAfter, paths, texts, texts),
    st.builds(Delete, paths, texts),
    st.builds(Append, paths, texts),
    st.builds(Write, paths, texts),
    st.builds(SetValue, paths, st.sampled_from("ab"), values),
)
regions = st.lists(st.builds(Region, st.sampled_from("<a"), st.sampled_from(">b")), max_size=2)


@st.composite
def targeted(draw: st.DrawFn) -> tuple[str, list[Edit]]:
    """A text and edits whose targets are cut out of it."""
    text = draw(st.text(letters, min_size=1, max_size=40))
    cuts = st.tuples(st.integers(0, len(text)), st.integers(0, len(text)))

    def piece() -> str:
        start, end = sorted(draw(cuts))
        return text[start:end]

    made: list[Edit] = []
    for _ in range(draw(st.integers(1, 4))):
        target, new = piece(), draw(texts)
        choices = (Replace("a", target, new), InsertAfter("a", target, new), Delete("a", target))
        made.append(draw(st.sampled_from(choices)))
    return text, made


def check_inverts(candidate: Candidate, made: list[Edit], rules: Rules) -> int:
    applied = apply_edits(candidate, made, rules)
    assert len(applied.reports) == len(made)
    back = invert(applied.candidate, applied.reports)
    assert back.texts == candidate.texts
    assert back == candidate
    for report in applied.reports:
        assert (report.fate == "applied") == (report.splice is not None)
    return sum(report.fate == "applied" for report in applied.reports)


@PLAIN
@given(texts, texts, st.lists(edits, max_size=6), regions, st.none() | st.integers(0, 40))
def test_applied_edits_invert_exactly(
    a: str, b: str, made: list[Edit], protected: list[Region], limit: int | None
):
    artifacts = {
        "a": Artifact("a", tuple(protected), limit),
        "b": Artifact("b", (), limit),
        "new/c": Artifact("new/c"),
    }
    rules = Rules(artifacts, new_files=("new/*",))
    # half characters cannot be hashed, and enter no candidate
    seed = Candidate({"a": clean(a), "b": clean(b)})
    check_inverts(seed, made, rules)


@PLAIN
@given(targeted())
def test_edits_whose_targets_are_there_invert_exactly(case: tuple[str, list[Edit]]):
    text, made = case
    check_inverts(Candidate({"a": text}), made, Rules({"a": Artifact("a")}))


@PLAIN
@given(targeted(), regions)
def test_what_is_protected_reads_the_same_after_any_edits(
    case: tuple[str, list[Edit]], protected: list[Region]
):
    text, made = case
    rules = Rules({"a": Artifact("a", tuple(protected))})
    applied = apply_edits(Candidate({"a": text}), made, rules)
    for region in protected:
        if region.begin in text and region.end in text[text.index(region.begin) + 1 :]:
            start = text.index(region.begin)
            end = text.index(region.end, start + 1) + 1
            assert text[start:end] in applied.candidate.text


@PLAIN
@given(st.text(letters, max_size=30), st.text(letters, min_size=1, max_size=3), texts)
def test_a_replacement_happens_exactly_where_the_target_stands_once(text: str, old: str, new: str):
    rules = Rules({"a": Artifact("a")})
    report = apply_edits(Candidate({"a": text}), [Replace("a", old, new)], rules).reports[0]
    starts = [at for at in range(len(text)) if text.startswith(old, at)]
    hits = sum(not cuts(text, at) and not cuts(text, at + len(old)) for at in starts)
    if hits == 0:
        assert report.fate == "target missing"
    elif hits > 1:
        assert report.fate == "ambiguous"
    else:
        assert report.fate in ("applied", "no change", "outside scope")


def cuts(text: str, at: int) -> bool:
    """True where a word goes on across a place in a text."""
    return re.fullmatch(r"\w\w", text[max(0, at - 1) : at + 1]) is not None


def clean(text: str) -> str:
    return text.encode("utf-8", "surrogatepass").decode("utf-8", "surrogateescape")
