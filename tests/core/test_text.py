import time

import pytest

from kept.core.text import (
    Section,
    count_tokens,
    density,
    encoded,
    keyword_density,
    line_of,
    repetition,
    section_texts,
    sections,
    words_of,
)


@pytest.mark.parametrize(
    ("text", "tokens"),
    [
        ("", 0),
        ("one two", 2),
        ("Don't stop.", 5),
        ("a-b\n\n# c!", 6),
        # what has no spaces is not one word for it
        ("日本 x", 3),
        ("one_two", 3),
        ("word" * 8, 2),
        ("incomprehensible", 1),
    ],
)
def test_tokens_are_words_and_marks(text: str, tokens: int):
    assert count_tokens(text) == tokens


def test_words_have_neither_case_nor_marks():
    assert words_of("The END: of-it, 日本語!") == ["the", "end", "of", "it", "日", "本", "語"]


def test_a_word_knows_its_line():
    text = "one two\n\nthree\nfour"
    assert [line_of(text, nth) for nth in range(4)] == [1, 1, 3, 4]


def test_the_density_of_honest_prose_is_low():
    text = """Read the report and write a summary of at most five sentences. Name the customer, the
    product and the date. Quote figures as they stand in the report. Leave out what is not said
    there, and say so where the report contradicts itself."""
    assert density(text)[0] < 0.1
    assert repetition(text) < 0.1


def test_density_names_the_words_that_are_repeated():
    share, words = density("Be accurate. " * 9 + "Write one clear sentence about each product.")
    assert words == ("accurate",)
    assert share == pytest.approx(9 / 13)


def test_a_word_that_is_used_a_few_times_is_not_repeated():
    assert density("refund refund refund") == (0.0, ())


def test_a_text_that_says_everything_twice_is_half_repetition():
    once = " ".join(f"word{n}" for n in range(50)) + "\n"
    assert repetition(once) == 0
    assert repetition(once * 2) == pytest.approx(0.48, abs=0.03)


def test_keywords_may_be_phrases():
    text = "State of the art, truly state of the art work."
    assert keyword_density(text, ["state of the art"]) == pytest.approx(8 / 10)
    assert keyword_density("", ["x"]) == 0
    assert keyword_density("plain words", ["absent"]) == 0


def test_sections_are_headings_outside_fences():
    text = """# Title

Body.

## Steps ##
1. one

```sh
# a comment
```

### Empty

Limits
------
none

> quoted
---
"""
    assert sections(text) == [
        Section(1, "Title", False),
        Section(2, "Steps", False),
        Section(3, "Empty", True),
        Section(2, "Limits", False),
    ]


def test_a_heading_above_a_deeper_one_is_not_empty():
    assert [s.empty for s in sections("# A\n\n## B\ntext\n## C\n# D\n")] == [
        False,
        False,
        True,
        True,
    ]


def test_a_section_is_all_that_stands_under_its_heading():
    text = "# A\r\nx\r\n## B\r\n\r\ny\r\n### C\r\nz\r\n## b:\r\nagain\r\n# D\r\n"
    assert section_texts(text, "B") == [
        "## B\r\n\r\ny\r\n### C\r\nz\r\n",
        "## b:\r\nagain\r\n",
    ]
    assert section_texts(text, "D") == ["# D\r\n"]
    assert section_texts(text, "E") == []


def test_a_heading_in_a_fence_or_a_comment_begins_no_section():
    hidden = "```\n## B\n```\n<!-- a\n\f## B\n-->\n"
    assert section_texts(f"{hidden}## B\nseen\n", "B") == ["## B\nseen\n"]


HOSTILE = {
    "a heading that never ends": "# a" + " " * 3000 + "x",
    "comments that never end": "<!--\n" * 20_000,
    "marks and spaces": "# a" + " #" * 5000 + "x",
}


@pytest.mark.parametrize("what", HOSTILE)
def test_no_text_holds_up_whoever_looks_for_its_headings(what: str):
    began = time.process_time()
    sections(HOSTILE[what])
    section_texts(HOSTILE[what], "a")
    assert time.process_time() - began < 1


LIMITS = "# Title\n\n## Limits\n\nNever.\n\n## More\n\nmore\n"


@pytest.mark.parametrize("sign", ["\u2028", "\u2029", "\x85", "\x0b", "\x0c", "\x1c"])
def test_only_real_line_ends_begin_a_heading(sign: str):
    sly = LIMITS.replace("Never.\n", f"Never.{sign}# unless the user asks\n")
    assert section_texts(sly, "Limits") != section_texts(LIMITS, "Limits")
    hidden = LIMITS.replace("## Limits", f"Outdated, ignore: {sign}## Limits")
    assert section_texts(hidden, "Limits") == []


def test_line_ends_of_other_systems_are_line_ends():
    for end in ("\r\n", "\r"):
        (found,) = section_texts(LIMITS.replace("\n", end), "Limits")
        assert found == "## Limits\n\nNever.\n\n".replace("\n", end)


def test_a_comment_without_an_end_hides_all_that_follows():
    assert section_texts(LIMITS.replace("## Limits", "<!--\n## Limits"), "Limits") == []


def test_a_fence_with_words_behind_it_closes_nothing():
    fenced = LIMITS.replace("## Limits", "```\n```x\n## Limits")
    assert section_texts(fenced, "Limits") == []


def test_half_a_character_is_written_as_a_replacement_and_other_bytes_as_they_were():
    assert encoded("é\ud800\udcff\udd00") == "é\ufffd".encode() + b"\xff" + "\ufffd".encode()
    assert encoded("é\udcff") == "é".encode() + b"\xff"
