"""L0 (rule R34): six looks, in order, before anything dearer."""

import pytest

from kept.orchestrator.checks import L0, Look, l0_flaws

LONG = " ".join(f"word{n}" for n in range(25))


def rules(path: str, text: str, **more: object) -> list[str]:
    look = Look(path=path, data=text.encode(), **more)  # type: ignore[arg-type]
    return [flaw.rule for flaw in l0_flaws([look])]


def test_l0_has_its_six_checks_in_the_order_of_the_rule():
    assert list(L0) == [
        "no_placeholder",
        "no_text_loop",
        "file_size_delta",
        "no_duplicate_headings",
        "balanced_delimiters",
        "json_valid_if_claimed",
    ]


@pytest.mark.parametrize(
    "text",
    [
        *("# A\n\nTODO: write", "XXX", "why ???", "Lorem ipsum dolor", "value: TBD", "# FIXME now"),
        *("TITLE GOES HERE", "by Author Name", "this is to be filled later"),
    ],
)
def test_no_placeholder_finds_each_marker(text: str):
    assert rules("a.md", text) == ["no_placeholder"]


@pytest.mark.parametrize("text", ["a todo list", "METHODOLOGY", "Really???", "lorem", "XXXL"])
def test_no_placeholder_goes_by_the_very_spelling(text: str):
    assert rules("a.md", text) == []


def test_a_marker_that_the_task_speaks_of_is_its_subject():
    assert rules("a.md", "the TODO app", task="Write a page about a TODO app") == []


def test_no_text_loop_finds_a_paragraph_that_repeats_another_with_a_word_changed():
    changed = LONG.replace("word7", "other")
    assert rules("a.md", f"{LONG}\n\nIn between.\n\n{changed}") == ["no_text_loop"]


def test_no_text_loop_lets_short_paragraphs_and_code_repeat():
    short = " ".join(LONG.split()[:19])
    assert rules("a.md", f"{short}\n\n{short}") == []
    assert rules("a.md", f"```\n{LONG}\n\n{LONG}\n```") == []
    assert rules("a.py", f"# {LONG}\n\n# {LONG}") == []


def test_paragraphs_of_one_subject_are_no_loop():
    page = (
        "The journal is append only. Every event that happened is one line of it, written before"
        " anything depends on it, so that a killed process loses at most what was in flight then."
        "\n\nThe state is a fold over the journal. It has no other home, so the live run and the"
        " resume and the report all see the same, and nothing has to be kept in step by hand."
    )
    assert rules("a.md", page) == []


def test_file_size_delta_finds_what_grew_over_two_and_a_half_times():
    assert rules("a.txt", "x" * 2501, before=1000) == ["file_size_delta"]
    assert rules("a.txt", "x" * 2500, before=1000) == []
    assert rules("a.txt", "x" * 2501) == []
    # a beginning is meant to grow
    assert rules("a.txt", "x" * 2501, before=100) == []


def test_no_duplicate_headings_finds_one_that_stands_twice_below_the_same():
    assert rules("a.md", "# A\n\n## B\n\none\n\n## B\n\ntwo\n") == ["no_duplicate_headings"]
    assert rules("a.md", "# 1.1\n\n### Added\n\nx\n\n# 1.0\n\n### Added\n\ny\n") == []
    assert rules("a.md", "# A\n\n```\n# A\n```\n") == []


@pytest.mark.parametrize(
    ("path", "text", "even"),
    [
        ("a.md", "```python\nx = 1\n", False),
        ("a.md", "```python\nx = 1\n```\n", True),
        ("a.md", "a smile :) and 1) a list", True),
        ("a.tex", "\\begin{itemize}\n\\item a\n", False),
        ("a.tex", "\\begin{itemize}\n\\item \\textbf{a} % {\n\\end{itemize}\n", True),
        ("a.tex", "\\textbf{a", False),
        ("a.c", "int f() { return '{'; } // }", True),
        ("a.c", "int f() { if (1) { return 0; }", False),
        ("a.rs", "fn f<'a>(x: &'a str) -> &'a str { x }", True),
        ("a.js", "const r = /[(]/; f(`${x} (`);", True),
        ("a.js", "function f() { return [1, 2; }", False),
        ("a.css", "a { color: red; } /* } */", True),
        ("a.css", "a { color: red;", False),
        ("a.go", "func f() { s := `{` }", True),
    ],
)
def test_balanced_delimiters_finds_what_was_cut_off(path: str, text: str, even: bool):
    assert rules(path, text) == ([] if even else ["balanced_delimiters"])


def test_json_valid_if_claimed_goes_by_the_name():
    assert rules("a.json", '{"a": 1') == ["json_valid_if_claimed"]
    assert rules("a.jsonl", '{"a": 1}\n\n{"a"}\n') == ["json_valid_if_claimed"]
    assert rules("a.json", '{"a": 1}') == []
    assert rules("a.txt", '{"a": 1') == []


def test_the_first_flaw_of_each_file_is_told_with_its_line():
    looks = [
        Look(path="a.json", data=b'{"x": "TODO"'),
        Look(path="b.md", data=b"one\n\ntwo\n\nTBD\n"),
        Look(path="c.png", data=b"\x89PNG\0TODO"),
    ]
    found = list(l0_flaws(looks))
    assert [(f.file, f.rule, f.line) for f in found] == [
        ("a.json", "no_placeholder", 1),
        ("b.md", "no_placeholder", 5),
    ]
