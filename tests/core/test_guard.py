"""Each guard meets the hack that it is for, and edits that are honest."""

import pytest

from kept.core.artifact import Candidate
from kept.core.guards import EmptyGuard, LengthGuard, SectionsGuard, StuffingGuard
from kept.core.ports import Guard

SKILL = """# Summarise

Read the report and write a summary of at most five sentences.

## Steps

1. Name the customer, the product and the date.
2. Quote figures as they stand in the report.
3. Leave out what is not said there.

## Limits

Say so where the report contradicts itself. Never guess a figure.
"""
SEED = Candidate({"SKILL.md": SKILL})


def told(guard: Guard, text: str, seed: str = SKILL, incumbent: str | None = None) -> str | None:
    before = Candidate({"SKILL.md": seed if incumbent is None else incumbent})
    return guard.check(Candidate({"SKILL.md": seed}), before, Candidate({"SKILL.md": text}))


ALL = (LengthGuard(), StuffingGuard(), SectionsGuard())


@pytest.mark.parametrize(
    "text",
    [
        SKILL,
        SKILL.replace("five sentences", "three sentences"),
        SKILL.replace("Never guess", "Do not round. Never guess"),
        SKILL.replace("## Limits", "## Style\n\nShort words.\n\n## Limits"),
        SKILL.replace("3. Leave out what is not said there.\n", ""),
        SKILL + "\n## Example\n\nInput: a report of two pages. Output: five sentences.\n",
    ],
)
def test_an_honest_edit_passes_every_guard(text: str):
    assert [told(guard, text) for guard in ALL] == [None, None, None]


def test_a_text_that_only_grows_is_refused():
    padded = SKILL + "\n".join(f"Also mind point {n} of the style guide." for n in range(60))
    assert told(LengthGuard(), padded) == "607 tokens, 9.1 times the seed's 67, 3 times allowed"


def test_length_may_be_limited_in_tokens_and_characters():
    longer = SKILL + "One more line.\n"
    assert told(LengthGuard(None, max_tokens=70), longer) == "71 tokens, 70 allowed"
    assert told(LengthGuard(None, max_chars=10), longer) == f"{len(longer)} characters, 10 allowed"
    assert told(LengthGuard(None), longer * 50) is None


def test_the_way_back_from_a_text_that_is_too_long_is_open():
    guard = LengthGuard(None, max_tokens=5)
    assert told(guard, SKILL.replace("Never guess a figure.", ""), SKILL) is None
    assert told(guard, SKILL + "more", SKILL) is not None


def test_length_is_that_of_all_files_together():
    seed = Candidate({"a.md": "one two", "b.md": "three"})
    grown = Candidate({"a.md": "one two", "b.md": "three " * 20})
    assert LengthGuard().check(seed, seed, grown) is not None


def test_keywords_said_again_and_again_are_refused():
    stuffed = SKILL + "Accurate, complete, faithful. " * 12
    assert told(StuffingGuard(), stuffed) == (
        "SKILL.md: `accurate`, `complete`, `faithful` take 58% of the content words, 25% allowed"
    )


def test_a_paragraph_said_again_and_again_is_refused():
    lines = " ".join(f"check{n} item{n} by list{n}" for n in range(40))
    reason = told(StuffingGuard(), SKILL + (lines + "\n") * 3)
    assert reason is not None
    assert "of its phrases stood in it before, 30% allowed" in reason


def test_a_seed_that_repeats_itself_sets_its_own_bar():
    table = "".join(f"price of item{n}: low\n" for n in range(40))
    assert told(StuffingGuard(), table) is not None
    assert told(StuffingGuard(), table + "price of item41: high\n", seed=table) is None


def test_a_file_that_did_not_change_is_not_held_against_a_candidate():
    stuffed = "good " * 50
    seed = Candidate({"a.md": SKILL, "b.md": "short"})
    incumbent = Candidate({"a.md": SKILL, "b.md": stuffed})
    changed = Candidate({"a.md": SKILL + "More.\n", "b.md": stuffed})
    assert StuffingGuard().check(seed, incumbent, changed) is None


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (SKILL[: SKILL.index("## Limits")], "SKILL.md lost its section `Limits`"),
        (SKILL.replace("## Limits", "**Limits**"), "SKILL.md lost its section `Limits`"),
        (SKILL.replace("## Limits", "#### Limits"), "SKILL.md lost its section `Limits`"),
        (SKILL.replace("## Limits", "```\n## Limits\n```"), "SKILL.md lost its section `Limits`"),
        (
            SKILL[: SKILL.index("Say so")],
            "SKILL.md: the section `Limits` is empty",
        ),
        (
            SKILL.replace("## Limits", "<!--\n## Limits\n") + "-->\n",
            "SKILL.md lost its section `Limits`",
        ),
        (
            SKILL[: SKILL.index("Say so")] + "---\n&nbsp;\n<!-- none -->\n.\n",
            "SKILL.md: the section `Limits` is empty",
        ),
        ("", "SKILL.md lost its section `Summarise`"),
    ],
)
def test_a_section_that_is_dropped_or_emptied_is_refused(text: str, reason: str):
    assert told(SectionsGuard(), text) == reason


def test_a_file_that_is_gone_took_its_sections_with_it():
    assert SectionsGuard().check(SEED, SEED, Candidate({})) is not None


def test_only_named_sections_must_stay():
    without = SKILL[: SKILL.index("## Limits")]
    assert told(SectionsGuard(("steps",)), without) is None
    assert told(SectionsGuard(("LIMITS:",)), without) == "SKILL.md lost its section `Limits`"
    assert told(SectionsGuard(max_level=1), without) is None


def test_titles_may_be_respelt_but_not_moved_to_another_depth():
    assert told(SectionsGuard(), SKILL.replace("## Limits", "##  *LIMITS*:")) is None


def test_a_text_of_which_nothing_is_left_is_refused():
    assert told(EmptyGuard(), " \n") == "nothing would be left of SKILL.md"
    assert told(EmptyGuard(), "x\n") is None
    # it was empty before, and is not made so
    assert told(EmptyGuard(), "\n\n", SKILL, incumbent="\n") is None


def test_each_of_two_sections_of_one_name_must_stay():
    seed = "# A\n## Notes\nx\n# B\n## Notes\ny\n"
    assert told(SectionsGuard(), "# A\n## Notes\nx\n# B\nz\n", seed) == (
        "SKILL.md lost its section `Notes`"
    )
