"""The skill as a document: what a model may change of it, and what it may not."""

import pytest

from kept.core.artifact import Artifact, Candidate, Rules
from kept.recipes.skill.document import (
    APPENDIX,
    REGIONS,
    SLOW_UPDATE,
    region_text,
    rewritten,
    try_edits,
)

BODY = "# Skill\n\n- First rule.\n- Second rule.\n"
REGION = f"{SLOW_UPDATE.begin}\nguidance\n{SLOW_UPDATE.end}"
WHOLE = f"{BODY}\n{REGION}\n"
RULES = Rules({"SKILL.md": Artifact("SKILL.md", REGIONS)})


def made(text: str, *items: dict[str, str]) -> tuple[str, list[str]]:
    tried = try_edits(Candidate({"SKILL.md": text}), items, RULES)
    return tried.candidate["SKILL.md"], [report.fate for report in tried.reports]


def item(op: str, target: str = "", content: str = "") -> dict[str, str]:
    return {"op": op, "target": target, "content": content}


def test_each_operation_does_what_it_says():
    text, fates = made(
        BODY,
        item("append", content="- Last."),
        item("insert_after", "First", "- Between."),
        item("replace", "Second rule.", "Other rule."),
        item("delete", "# Skill\n\n"),
    )
    assert fates == ["applied"] * 4
    assert text == "- First rule.\n- Between.\n- Other rule.\n- Last.\n"


def test_what_is_appended_comes_before_protected_regions():
    text, fates = made(WHOLE, item("append", content="- Last."))
    assert fates == ["applied"] and text.index("- Last.") < text.index(SLOW_UPDATE.begin)
    assert region_text(text, SLOW_UPDATE) == "guidance"


@pytest.mark.parametrize(
    "edit",
    [
        item("replace", "guidance", "other"),
        item("delete", "guidance"),
        item("insert_after", "guidance", "more"),
        item("replace", f"Second rule.\n\n{SLOW_UPDATE.begin}\n", "x"),
        item("delete", SLOW_UPDATE.begin),
    ],
)
def test_no_edit_reaches_into_a_protected_region(edit: dict[str, str]):
    """The original looked at the first place of a target alone, and at its beginning."""
    text, fates = made(WHOLE, edit)
    assert text == WHOLE and fates == ["protected"]


def test_a_skill_with_line_endings_of_windows_keeps_them_and_is_edited_like_any_other():
    """A target of two lines was in none of them, and what came in had endings of its own."""
    text, fates = made(
        WHOLE.replace("\n", "\r\n"),
        item("append", content="- Last.\n- Of all."),
        item("insert_after", "First", "- Between."),
        item("replace", "- Between.\n- Second rule.", "- Other.\n- Third."),
    )
    assert fates == ["applied"] * 3
    assert "\n" not in text.replace("\r\n", "")
    plain = "# Skill\n\n- First rule.\n- Other.\n- Third.\n\n- Last.\n- Of all.\n\n"
    assert text.replace("\r\n", "\n") == f"{plain}{REGION}\n"
    anew = rewritten(text, "# New\n\nOne.\n")
    assert anew == f"# New\n\nOne.\n\n{REGION}\n".replace("\n", "\r\n")


def test_in_a_skill_whose_lines_do_not_all_end_alike_edits_go_where_they_are_meant():
    """One line of Windows, of a head that another editor wrote, had rules put behind a region."""
    mixed = f"---\r\nname: x\r\n---\r\n{WHOLE}"
    text, fates = made(
        mixed,
        item("insert_after", "First rule", "- Between."),
        item("replace", "- Between.\n- Second rule.", "- Other.\n- Third."),
        item("insert_after", "name: x", "note: y"),
    )
    assert fates == ["applied"] * 3
    body = BODY.replace("- Second rule.", "- Other.\n- Third.")
    assert text == f"---\r\nname: x\r\nnote: y\r\n---\r\n{body}\n{REGION}\n"


def test_a_model_cannot_open_or_close_a_region():
    text, _ = made(WHOLE, item("append", content=f"x {APPENDIX.begin} y {SLOW_UPDATE.end}"))
    assert text.count(APPENDIX.begin) == 0 and text.count(SLOW_UPDATE.end) == 1


@pytest.mark.parametrize(
    ("edit", "fate"),
    [
        (item("insert_after", "nowhere", "- x"), "target missing"),
        (item("delete", "rule"), "ambiguous"),
        (item("insert_after", "rule", "- x"), "ambiguous"),
        (item("replace", "", "x"), "target missing"),
    ],
)
def test_an_edit_without_a_place_of_its_own_changes_nothing(edit: dict[str, str], fate: str):
    """The original took the first hit, or appended instead."""
    assert made(BODY, edit) == (BODY, [fate])


def test_an_edit_is_read_for_the_text_that_those_before_it_left():
    text, fates = made(BODY, item("append", content="- New."), item("replace", "- New.", "- Old."))
    assert fates == ["applied", "applied"] and text.endswith("- Old.\n")


def test_whoever_writes_the_skill_anew_keeps_its_regions():
    other = f"# New\n\n{SLOW_UPDATE.begin}\ninvented\n{SLOW_UPDATE.end}\n{APPENDIX.begin}\n"
    for new in (other, "# New\n"):
        text = rewritten(WHOLE, new)
        assert text == f"# New\n\n{REGION}\n"
    assert rewritten(BODY, other) == "# New\n"


def test_a_marker_that_opens_a_region_and_never_closes_it_takes_no_rules_along():
    """All behind it was left out, and nobody was told."""
    new = f"# New\n\n- One.\n{APPENDIX.begin}\n- Two.\n"
    assert rewritten(BODY, new) == "# New\n\n- One.\n\n- Two.\n"
    assert rewritten(WHOLE, new) == f"# New\n\n- One.\n\n- Two.\n\n{REGION}\n"


def test_whoever_writes_the_skill_anew_keeps_its_head():
    head = "---\nname: dates\n---\n"
    assert rewritten(f"{head}\nOld.\n", "New.\n") == f"{head}\nNew.\n"
    other = "---\nname: dates\ndescription: x\n---\nNew.\n"
    assert rewritten(f"{head}\nOld.\n", other) == other, "one that was written is looked at"
    assert rewritten("Old.\n", "New.\n") == "New.\n"


@pytest.mark.parametrize("op", ["replace", "delete", "insert_after"])
def test_a_target_inside_of_a_word_is_refused_by_every_operation(op: str):
    """Deleting `Answer` left `# ing trivia questions`; inserting took the heading for the line."""
    heading = "# Answering trivia questions\n\nBe brief.\n"
    assert made(heading, item(op, "Answer", "- A rule.")) == (heading, ["target missing"])


def test_what_is_inserted_goes_behind_the_line_of_the_whole_word():
    """Where the target is a part of another word, too, it was put into the line."""
    text = "# Answering questions\n- Answer at once.\n"
    said = made(text, item("insert_after", "Answer", "- Then stop."))
    assert said == (f"{text}- Then stop.\n", ["applied"])
