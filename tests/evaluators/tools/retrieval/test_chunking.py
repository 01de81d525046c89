"""How texts are cut into passages."""

from hypothesis import given
from hypothesis import strategies as st

from kept.evaluators.tools.retrieval.sources import Section, by_heading, by_length, tokens
from tests.evaluators.tools.retrieval.worlds import HANDBOOK


def test_a_word_has_a_token_for_every_four_characters_that_it_begins():
    assert tokens("a four fives sixteen-letters!") == 1 + 1 + 2 + 4
    assert tokens("") == 0


def test_passages_have_at_most_their_size_and_repeat_the_overlap():
    text = " ".join(f"w{n:02}" for n in range(10))
    assert by_length(text, 4, 1) == ["w00 w01 w02 w03", "w03 w04 w05 w06", "w06 w07 w08 w09"]
    assert by_length(text, 5, 0) == ["w00 w01 w02 w03 w04", "w05 w06 w07 w08 w09"]


def test_what_stands_between_words_is_left_as_it_is():
    assert by_length("  one\n\ntwo  ", 5, 0) == ["one\n\ntwo"]


def test_a_word_that_no_passage_has_room_for_is_cut():
    assert by_length("a" * 10, 1, 0) == ["aaaa", "aaaa", "aa"]


@given(st.integers(0, 60), st.integers(1, 20), st.integers(0, 19))
def test_no_word_is_lost_and_no_passage_is_too_long(count: int, size: int, overlap: int):
    words = [f"w{n}" + "x" * (n % 7) for n in range(count)]
    passages = by_length(" ".join(words), size, min(overlap, size - 1))
    assert all(tokens(passage) <= size for passage in passages)
    seen = [word for passage in passages for word in passage.split()]
    # a word that is cut is there in pieces
    assert set(words) <= set(seen) or size < 3
    assert "".join(dict.fromkeys(seen)).replace("x", "") == "".join(words).replace("x", "")


def test_a_passage_stands_under_its_headings():
    assert by_heading(HANDBOOK) == [
        Section(("Handbook",), "Words before all else."),
        Section(("Handbook", "Returns"), "A parcel may be returned within thirty days."),
        Section(
            ("Handbook", "Returns", "Refunds"),
            "Money comes back within a week. Error E-1042 means that the card has expired.",
        ),
        Section(("Handbook", "Shipping"), "Parcels leave on the day of the order."),
    ]


def test_headings_deeper_than_wanted_stay_inside():
    returns = by_heading(HANDBOOK, depth=2)[1]
    assert returns.path == ("Handbook", "Returns")
    assert "### Refunds\n\nMoney" in returns.body


def test_a_heading_without_a_text_is_a_passage_only_where_nothing_stands_below_it():
    text = "# A\n## No refunds after a year\n## B\ntext\n# C"
    assert by_heading(text) == [
        Section(("A",), "No refunds after a year"),
        Section(("A", "B"), "text"),
        Section((), "C"),
    ]


def test_what_looks_like_a_heading_inside_code_is_none():
    text = "# A\n```sh\n# comment\n~~~\n# another\n```\n## B\nend"
    assert [section.path for section in by_heading(text)] == [("A",), ("A", "B")]


def test_text_before_the_first_heading_stands_under_none():
    assert by_heading("first\n# A\nthen") == [Section((), "first"), Section(("A",), "then")]
    assert by_heading("no headings #here\n#nor-here") == [
        Section((), "no headings #here\n#nor-here")
    ]
    assert by_heading(" \n") == []
