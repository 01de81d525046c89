"""Edits: what becomes of each, and that none does anything it did not say."""

import time

import pytest

from kept.core.artifact import Artifact, Candidate, Region, Rules
from kept.core.edit import (
    Append,
    Applied,
    Delete,
    Edit,
    EditReport,
    Fill,
    InsertAfter,
    Replace,
    SetValue,
    Write,
    apply_edits,
    changed_lines,
    changed_paths,
    diff,
    invert,
    partly_applied,
)

TEXT = "one\ntwo\nthree\n"
KEEP = Region("<keep>", "</keep>")
GUARDED = "before\n<keep>\nsecret\n</keep>\nafter\n"


def apply(text: str, *edits: Edit, **rules: object) -> Applied:
    """Edits of the artifact `a` that reads so; rules of the artifact, or of all."""
    own = {k: v for k, v in rules.items() if k in ("protected", "max_chars")}
    rest = {k: v for k, v in rules.items() if k not in own}
    made = Rules({"a": Artifact("a", **own)}, **rest)  # pyright: ignore[reportArgumentType] # by name
    return apply_edits(Candidate({"a": text}), edits, made)


def fate(text: str, edit: Edit, **rules: object) -> str:
    applied = apply(text, edit, **rules)
    if applied.reports[0].fate != "applied":
        assert applied.candidate.text == text, "an edit that was not applied changed the text"
        assert applied.reports[0].detail, "an edit that was not applied has no word on why"
        assert not applied.complete
    return applied.reports[0].fate


@pytest.mark.parametrize(
    ("edit", "text"),
    [
        (Replace("a", "two", "2"), "one\n2\nthree\n"),
        (Replace("a", TEXT, ""), ""),
        (InsertAfter("a", "two\n", "two and a half\n"), "one\ntwo\ntwo and a half\nthree\n"),
        (Delete("a", "two\n"), "one\nthree\n"),
        (Append("a", "four\n"), TEXT + "four\n"),
        (Write("a", "all new"), "all new"),
    ],
    ids=lambda value: getattr(value, "op", ""),
)
def test_an_edit_does_what_it_says(edit: Edit, text: str):
    applied = apply(TEXT, edit)
    assert applied.candidate.text == text
    assert applied.complete


@pytest.mark.parametrize(
    "edit", [Replace("a", "\n", "0"), Delete("a", "\n"), InsertAfter("a", "\n", "!")]
)
def test_a_target_that_stands_twice_is_ambiguous(edit: Edit):
    assert fate(TEXT, edit) == "ambiguous"


def test_a_target_that_overlaps_itself_is_ambiguous():
    assert fate("a a a", Replace("a", "a a", "b")) == "ambiguous"
    assert fate("ab-ab ab", Delete("a", "ab ab")) == "applied"


@pytest.mark.parametrize(
    "edit",
    [
        Replace("a", "four", "4"),
        Delete("a", "One"),
        InsertAfter("a", "two ", "!"),
        Replace("a", "", "anything"),
        Delete("a", ""),
        InsertAfter("a", "", "anything"),
    ],
)
def test_a_target_that_does_not_stand_there_is_missing(edit: Edit):
    assert fate(TEXT, edit) == "target missing"


@pytest.mark.parametrize(
    "edit",
    [
        Replace("a", "two", "two"),
        InsertAfter("a", "two", ""),
        Append("a", ""),
        Write("a", TEXT),
    ],
)
def test_an_edit_that_changes_nothing_says_so(edit: Edit):
    assert fate(TEXT, edit) == "no change"


@pytest.mark.parametrize(
    ("text", "added", "expected"),
    [
        ("", "x\n", "x\n"),
        ("one", "x\n", "one\nx\n"),
        ("one\n", "x\n", "one\nx\n"),
        ("one\r\n", "x", "one\r\nx"),
        ("one\n\n", "x", "one\n\nx"),
    ],
)
def test_appended_text_stands_on_a_line_of_its_own(text: str, added: str, expected: str):
    assert apply(text, Append("a", added)).candidate.text == expected


@pytest.mark.parametrize(
    ("text", "added", "expected"),
    [
        ("one\r\ntwo", "three\nfour\n", "one\r\ntwo\r\nthree\r\nfour\r\n"),
        ("one\r\ntwo\r\n", "three\n", "one\r\ntwo\r\nthree\r\n"),
        ("one\r\n", "two\r\n", "one\r\ntwo\r\n"),
        ("one\n", "two\r\n", "one\ntwo\n"),
        # which of two kinds a mixed file has is a matter of its end
        ("one\r\ntwo\n", "three\n", "one\r\ntwo\nthree\n"),
        ("one", "two\r\n", "one\ntwo\r\n"),
        ("", "two\r\n", "two\r\n"),
    ],
)
def test_what_is_appended_has_the_line_endings_of_the_text(text: str, added: str, expected: str):
    applied = apply(text, Append("a", added))
    assert applied.candidate.text == expected
    assert invert(applied.candidate, applied.reports).text == text


def test_each_edit_meets_the_text_that_the_ones_before_it_left():
    edits = (Replace("a", "two", "2"), Replace("a", "two", "2"), Replace("a", "2", "zwei"))
    applied = apply(TEXT, *edits)
    assert [report.fate for report in applied.reports] == ["applied", "target missing", "applied"]
    assert applied.candidate.text == "one\nzwei\nthree\n"
    assert not applied.complete


def test_the_candidate_that_was_edited_stays_as_it_was():
    before = Candidate({"a": TEXT})
    apply_edits(before, (Write("a", "x"),), Rules({"a": Artifact("a")}))
    assert before.texts == {"a": TEXT}


@pytest.mark.parametrize(
    "path", ["b", "../a", "/etc/passwd", "a/../a", "a\\b", "C:/a", "new/../../x", "A"]
)
def test_an_edit_outside_the_scope_is_refused(path: str):
    assert fate(TEXT, Write(path, "x"), new_files=("new/*", "*.md")) == "outside scope"
    assert fate(TEXT, Append(path, "x"), new_files=("new/*", "*.md")) == "outside scope"


def test_a_new_file_needs_a_pattern_that_allows_it():
    applied = apply(TEXT, Write("new/b.md", "x"), new_files=("new/*.md",))
    assert applied.candidate.texts == {"a": TEXT, "new/b.md": "x"}
    assert applied.reports[0].splice is not None
    assert applied.reports[0].splice.creates
    assert fate(TEXT, Write("new/b.txt", "x"), new_files=("new/*.md",)) == "outside scope"


def test_only_a_write_makes_a_file():
    assert fate(TEXT, Append("new/b.md", "x"), new_files=("new/*",)) == "target missing"
    edits = (Write("new/b.md", "x"), Append("new/b.md", "y"))
    assert apply(TEXT, *edits, new_files=("new/*",)).candidate["new/b.md"] == "x\ny"


def test_an_empty_new_file_is_a_change():
    assert fate(TEXT, Write("new/b", ""), new_files=("new/*",)) == "applied"


@pytest.mark.parametrize(
    "edit",
    [
        Replace("a", "secret", "open"),
        Delete("a", "secret\n"),
        InsertAfter("a", "secret\n", "and more\n"),
        InsertAfter("a", "<keep>", "!"),
        Replace("a", "before\n<keep>", "before"),
        Replace("a", "</keep>\nafter", "after"),
        Replace("a", "before\n<keep>\n", "x"),
        Delete("a", GUARDED),
        Delete("a", "<keep>"),
        Delete("a", "</keep>"),
        Append("a", "<keep>\n"),
        Append("a", "</keep>\n"),
        Append("a", "<keep>\nmine\n</keep>\n"),
        Replace("a", "before", "</keep>"),
        Replace("a", "before", "<keep>"),
        Write("a", "all new\n"),
        Write("a", GUARDED.replace("secret", "open")),
        Write("a", GUARDED + GUARDED),
        SetValue("a", "secret", 1),
    ],
)
def test_nothing_inside_a_protected_region_changes(edit: Edit):
    text = GUARDED.replace("secret", "secret: 0") if isinstance(edit, SetValue) else GUARDED
    assert fate(text, edit, protected=(KEEP,)) == "protected"


@pytest.mark.parametrize(
    "edit",
    [
        Replace("a", "before", "ahead"),
        Delete("a", "after\n"),
        InsertAfter("a", "</keep>\n", "right behind\n"),
        Append("a", "more\n"),
        Write("a", "new\n<keep>\nsecret\n</keep>\nnew\n"),
    ],
)
def test_around_a_protected_region_edits_are_free(edit: Edit):
    assert fate(GUARDED, edit, protected=(KEEP,)) == "applied"


def test_a_region_that_never_closes_protects_the_rest():
    text = "free\n<keep>\nall of this\n"
    assert fate(text, Append("a", "more"), protected=(KEEP,)) == "protected"
    assert fate(text, Replace("a", "free", "x"), protected=(KEEP,)) == "applied"


def test_every_region_of_a_text_is_protected():
    other = Region("[", "]")
    text = "<keep>one</keep> [two] <keep>three</keep>"
    for word in ("one", "two", "three"):
        assert fate(text, Replace("a", word, "x"), protected=(KEEP, other)) == "protected"


def test_a_text_may_not_grow_beyond_its_limit():
    assert fate("12345", Append("a", "6"), max_chars=7) == "applied"
    assert fate("12345", Append("a", "67"), max_chars=7) == "over limit"
    assert fate("12345", Write("a", "12345678"), max_chars=7) == "over limit"


def test_a_text_that_is_too_long_already_may_shrink_but_not_grow():
    assert fate("12345678 9", Delete("a", "9"), max_chars=5) == "applied"
    assert fate("12345678 9", Replace("a", "9", "8"), max_chars=5) == "applied"
    assert fate("12345678 9", Append("a", "x"), max_chars=5) == "over limit"


def test_half_a_character_is_refused_and_bytes_that_are_not_utf8_are_not():
    assert fate(TEXT, Append("a", "cut \ud83d")) == "outside scope"
    assert fate(TEXT, Append("a", "caf\udce9")) == "applied"
    assert fate("caf\udce9", Replace("a", "caf", "Caf")) == "applied"


def test_taking_applied_edits_back_gives_what_was_there():
    edits = (
        Replace("a", "two", "2"),
        Write("new/b", "x"),
        Append("new/b", "y"),
        Delete("a", "nowhere"),
        Write("a", "all new"),
    )
    applied = apply(TEXT, *edits, new_files=("new/*",))
    back = invert(applied.candidate, applied.reports)
    assert back.texts == {"a": TEXT}


def test_carried_files_stay_with_the_candidate():
    before = Candidate({"a": TEXT}, {"logo.png": "0" * 64})
    applied = apply_edits(before, (Append("a", "x"),), Rules({"a": Artifact("a")}))
    assert applied.candidate.blobs == before.blobs
    assert invert(applied.candidate, applied.reports) == before


def test_a_diff_shows_every_change_and_nothing_else():
    before = Candidate({"a": "one\ntwo\n", "b": "same\n"})
    after = Candidate({"a": "one\n2", "b": "same\n", "c": "new\n"})
    assert changed_paths(before, after) == ("a", "c")
    assert diff(before, after) == (
        "--- a/a\n+++ b/a\n@@ -1,2 +1,2 @@\n one\n-two\n+2\n\\ no newline at end of file\n"
        "--- /dev/null\n+++ b/c\n@@ -0,0 +1 @@\n+new\n"
    )
    assert diff(before, before) == ""


@pytest.mark.parametrize("odd", ["\u2028", "\x0c", "\x85", "\r", "\x1e"])
def test_only_a_newline_ends_a_line_of_a_diff(odd: str):
    before = Candidate({"a": f"left{odd}right\nlast\n"})
    after = Candidate({"a": f"left{odd}right\nLAST\n"})
    assert diff(before, after).count("\\ no newline") == 0
    assert changed_lines(before, after) == 2


@pytest.mark.parametrize(
    ("before", "after", "lines"),
    [
        (TEXT, TEXT, 0),
        (TEXT, TEXT + "four\n", 1),
        (TEXT, "one\nthree\n", 1),
        (TEXT, "one\n2\nthree\n", 2),
        (TEXT, "", 3),
        ("", TEXT, 3),
        ("one", "one\n", 0),
        ("one\ntwo\n", "one\r\ntwo\r\n", 4),
    ],
)
def test_changed_lines_are_those_removed_plus_those_added(before: str, after: str, lines: int):
    assert changed_lines(Candidate({"a": before}), Candidate({"a": after})) == lines


MARKS = Region("<!-- A -->", "<!-- /A -->")
FILLABLE = Rules({"s": Artifact("s", (MARKS, Region("<!-- B -->", "<!-- /B -->")))})


def filled(text: str, new: str, begin: str = MARKS.begin, end: str = MARKS.end) -> EditReport:
    return apply_edits(Candidate({"s": text}), (Fill("s", begin, end, new),), FILLABLE).reports[0]


def test_a_region_is_filled_where_it_stands_and_made_where_it_is_not():
    made = apply_edits(Candidate({"s": "body\n"}), (Fill("s", *_marks(), "one"),), FILLABLE)
    assert made.candidate["s"] == "body\n\n<!-- A -->\none\n<!-- /A -->\n"
    again = apply_edits(made.candidate, (Fill("s", *_marks(), "two"),), FILLABLE)
    assert again.candidate["s"] == "body\n\n<!-- A -->\ntwo\n<!-- /A -->\n"
    assert invert(again.candidate, again.reports) == made.candidate


def test_a_region_that_is_filled_again_keeps_its_line_endings():
    made = Candidate({"s": "body\r\n"})
    for text in ("one\nmore", "two\nmore"):
        made = apply_edits(made, (Fill("s", *_marks(), text),), FILLABLE).candidate
    assert made["s"] == "body\r\n\r\n<!-- A -->\r\ntwo\r\nmore\r\n<!-- /A -->\r\n"


def _marks() -> tuple[str, str]:
    return MARKS.begin, MARKS.end


def test_no_other_edit_may_touch_a_region_and_filling_one_may_not_touch_another():
    text = "body\n<!-- A -->\nkeep\n<!-- /A -->\n"
    touching = apply_edits(Candidate({"s": text}), (Replace("s", "keep", "lose"),), FILLABLE)
    assert touching.reports[0].fate == "protected"
    assert filled(text, "<!-- B -->x<!-- /B -->").fate == "protected"
    assert filled(text, "<!-- /A -->").fate == "outside scope"
    assert filled(text + text, "new").fate == "ambiguous"
    assert filled("body\n<!-- A -->\nopen", "new").fate == "ambiguous"


@pytest.mark.parametrize(
    ("path", "meant"),
    [
        ("prompt.md", "prompt.md"),
        ("/prompt.md", "prompt.md"),
        ("./prompt.md", "prompt.md"),
        ("elsewhere/prompt.md", "prompt.md"),
        ("guide.md", "docs/guide.md"),
        ("/work/docs/guide.md", "docs/guide.md"),
        ("note.md", None),
        ("score.py", None),
        ("", None),
        ("../prompt.md", None),
        ("prompt", None),
    ],
)
def test_a_path_means_the_artifact_with_its_file_name_where_that_is_unique(
    path: str, meant: str | None
):
    texts = {"prompt.md": TEXT, "docs/guide.md": TEXT, "a/note.md": TEXT, "b/note.md": TEXT}
    rules = Rules({name: Artifact(name) for name in texts})
    carried = {**texts, "score.py": TEXT}
    applied = apply_edits(Candidate(carried), [Replace(path, "two", "2")], rules)
    if meant is None:
        assert applied.reports[0].fate == "outside scope"
        assert changed_paths(Candidate(carried), applied.candidate) == ()
    else:
        assert changed_paths(Candidate(carried), applied.candidate) == (meant,)


@pytest.mark.parametrize("path", ["", "/text", "./text", "text", "/app/text"])
def test_a_run_with_one_text_needs_no_path(path: str):
    rules = Rules({"text": Artifact("text")})
    applied = apply_edits(Candidate({"text": TEXT}), [Append(path, "four\n")], rules)
    assert applied.candidate.text == TEXT + "four\n"


def test_a_whole_file_is_not_written_over_another_of_its_name():
    rules = Rules({"docs/guide.md": Artifact("docs/guide.md")})
    there = Candidate({"docs/guide.md": TEXT})
    assert apply_edits(there, [Write("src/guide.md", "new")], rules).candidate == there
    assert apply_edits(there, [Write("guide.md", "new")], rules).candidate.text == "new"


def test_a_file_that_allowed_file_types_leaves_out_says_so():
    texts = {"a.md": TEXT, "data.json": TEXT}
    rules = Rules({"a.md": Artifact("a.md")}, file_types=(".md", ".txt"))
    edits = [Append("data.json", "x"), Append("other.json", "x")]
    refused, unknown = apply_edits(Candidate(texts), edits, rules).reports
    assert refused.detail == (
        "`data.json` is not of a type that `allowed_file_types` lists (.md, .txt)"
    )
    assert unknown.detail == "`other.json` is outside the artifacts"


def test_a_partly_applied_proposal_is_told_in_one_line():
    edits = [Append("a", "x"), Append("scripts/score.py", "x"), Delete("a", "nowhere")]
    reports = apply(TEXT, *edits).reports
    words = "1 of 3 edits applied: `scripts/score.py` is outside the artifacts"
    assert partly_applied(reports) == words
    assert partly_applied(apply(TEXT, edits[0], edits[2]).reports) == (
        "1 of 2 edits applied: target missing, not in `a`"
    )
    assert partly_applied(apply(TEXT, edits[0]).reports) == ""
    assert partly_applied(apply(TEXT, *edits[1:]).reports) == ""


HEADING = "# Answering trivia\nAnswers are short.\n"


@pytest.mark.parametrize(
    "edit",
    [Delete("a", "Answer"), Replace("a", "trivi", "x"), InsertAfter("a", "shor", "x")],
)
def test_a_target_inside_a_word_is_no_target(edit: Edit):
    applied = apply(HEADING, edit)
    assert applied.candidate["a"] == HEADING
    (report,) = applied.reports
    assert report.fate == "target missing"
    assert report.detail.startswith("stands only inside of the word `")


def test_a_target_that_is_a_word_once_is_found_beside_longer_words():
    applied = apply("Answering: Answer. Answers.\n", Delete("a", "Answer"))
    assert applied.candidate["a"] == "Answering: . Answers.\n"


@pytest.mark.parametrize("target", ["a", "a" * 4000])
def test_a_target_is_looked_for_in_a_long_word_in_time(target: str):
    began = time.process_time()
    (report,) = apply("a" * 8000, Delete("a", target)).reports
    # to find the whole word at every place takes 20 s and more
    assert time.process_time() - began < 2
    assert report.fate == "target missing" and len(report.detail) < 200


def test_a_combining_accent_is_a_part_of_its_word():
    applied = apply("cafe\u0301 noir\n", Delete("a", "cafe"))
    assert applied.candidate["a"] == "cafe\u0301 noir\n"


def test_targets_in_scripts_without_spaces_are_found():
    applied = apply("简洁地回答问题。\n", Replace("a", "回答", "解释"))
    assert applied.candidate["a"] == "简洁地解释问题。\n"
