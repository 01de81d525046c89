"""Values set in place: the characters of the value change, and nothing around them."""

import pytest

from kept.core.artifact import Artifact, Candidate, Rules, Value, render_value
from kept.core.edit import SetValue, apply_edits


def set_value(text: str, key: str, value: Value, path: str = "conf.yaml") -> tuple[str, str]:
    rules = Rules({path: Artifact(path)})
    applied = apply_edits(Candidate({path: text}), [SetValue(path, key, value)], rules)
    return applied.reports[0].fate, applied.candidate.text


@pytest.mark.parametrize(
    ("before", "value", "after"),
    [
        ("k = 1\n", 2, "k = 2\n"),
        ("k=1", 2, "k=2"),
        ("k: 1\n", 2, "k: 2\n"),
        ("k:   1   \n", 2, "k:   2   \n"),
        ("  k : old words here\n", "new", "  k : new\n"),
        ("\tk = 1\r\nj = 2\r\n", 3, "\tk = 3\r\nj = 2\r\n"),
        ("k = 1  # why\n", 2, "k = 2  # why\n"),
        ("k: 1 # a # b\n", 2, "k: 2 # a # b\n"),
        ("k: a#b\n", "c", "k: c\n"),
        ("k: a#b # why\n", "c#d", "k: c#d # why\n"),
        ('k = "old" # why\n', "new", 'k = "new" # why\n'),
        ('k = "a # b"\n', "new", 'k = "new"\n'),
        ('k = "a \\" b"\n', 'c " d', 'k = "c \\" d"\n'),
        ("k: 'old'\n", "new", "k: 'new'\n"),
        ("k: 'a: b = c'\n", "d", "k: 'd'\n"),
        ("k: true\n", False, "k: false\n"),
        ("k = 'yes'\n", True, "k = true\n"),
        ("k: 0.5\n", 0.25, "k: 0.25\n"),
        ("k: 0.5\n", 1, "k: 1\n"),
        ("a.b-c: 1\n", 2, "a.b-c: 2\n"),
        ("x: 1\nk: 2\ny: 3", 9, "x: 1\nk: 9\ny: 3"),
        ("# k: 1\nk: 2\n", 3, "# k: 1\nk: 3\n"),
        ("k = \n", 2, "k = 2\n"),
        ("k:\n", 2, "k: 2\n"),
        ("k: # why\n", 2, "k: 2 # why\n"),
        ("k =   # why\n", 2, "k =   2 # why\n"),
    ],
)
def test_a_value_is_set_where_it_stands(before: str, value: Value, after: str):
    key = "a.b-c" if "a.b-c" in before else "k"
    assert set_value(before, key, value) == ("applied", after)


@pytest.mark.parametrize(
    ("before", "value", "after"),
    [
        ("K = 1\n", True, "K = True\n"),
        ("K = True  # why\n", False, "K = False  # why\n"),
        ("K: float = 0.2\n", 0.5, "K: float = 0.5\n"),
        ("K: dict[str, int] = None  # why\n", 1, "K: dict[str, int] = 1  # why\n"),
        ("call(\n    K=0.2,\n    other=1,\n)\n", 0.5, "call(\n    K=0.5,\n    other=1,\n)\n"),
        ("K = 'old'\n", "it's", 'K = "it\'s"\n'),
        ("if K == 3:\n    pass\nK = 1\n", 2, "if K == 3:\n    pass\nK = 2\n"),
    ],
)
def test_in_python_the_value_is_what_stands_behind_the_equals_sign(
    before: str, value: Value, after: str
):
    assert set_value(before, "K", value, "conf.py") == ("applied", after)


@pytest.mark.parametrize(
    ("text", "path"),
    [
        ("", "conf.yaml"),
        ("kk: 1\n", "conf.yaml"),
        ("k 1\n", "conf.yaml"),
        ("# k: 1\n", "conf.yaml"),
        ("- k: 1\n", "conf.yaml"),
        ("K: int\n", "conf.py"),
        ("K == 1\n", "conf.py"),
    ],
)
def test_a_key_without_a_line_of_its_own_is_missing(text: str, path: str):
    assert set_value(text, "K" if "K" in text else "k", 2, path) == ("target missing", text)


def test_a_key_that_stands_twice_is_ambiguous_and_the_lines_are_named():
    text = "k: 1\nj: 2\nk: 3\n"
    rules = Rules({"a": Artifact("a")})
    report = apply_edits(Candidate({"a": text}), [SetValue("a", "k", 2)], rules).reports[0]
    assert report.fate == "ambiguous"
    assert "lines 1, 3" in report.detail


def test_setting_what_is_there_already_is_no_change():
    assert set_value("k: 1\n", "k", 1)[0] == "no change"
    assert set_value("k: 'a'\n", "k", "a")[0] == "no change"


@pytest.mark.parametrize(
    ("value", "quote", "shown"),
    [
        ("two\nlines", '"', '"two\\nlines"'),
        ("two\nlines", "'", '"two\\nlines"'),
        ("two\nlines", "", '"two\\nlines"'),
        ("it's", "'", '"it\'s"'),
        ("back\\slash", "'", '"back\\\\slash"'),
        ("back\\slash", "", "back\\slash"),
        ("a # b", "", '"a # b"'),
        ("# b", "", '"# b"'),
        (" padded ", "", '" padded "'),
        ("a#b", "", "a#b"),
        ("", '"', '""'),
        (1e-05, "", "1.0e-05"),
        (1.5e-05, "", "1.5e-05"),
        (1e300, "", "1.0e+300"),
        (3, '"', "3"),
        (True, "'", "true"),
    ],
)
def test_a_value_is_written_so_that_it_stays_on_its_line_and_reads_back(
    value: Value, quote: str, shown: str
):
    assert render_value(value, quote=quote) == shown
