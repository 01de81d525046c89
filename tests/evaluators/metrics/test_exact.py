"""Equality and numbers, by hand."""

import pytest

from kept.evaluators.metrics.config import read_metric
from kept.evaluators.metrics.deterministic import NoValue, equality, numeric, value_at


def settings(metric: str, **given: object):
    return read_metric({"metric": metric, **given})


@pytest.mark.parametrize(
    ("response", "truth", "given", "score"),
    [
        ("Paris", "Paris", {}, 1.0),
        ("paris", "Paris", {}, 0.0),
        ("PARIS", "paris", {"case_insensitive": True}, 1.0),
        ("straße", "STRASSE", {"case_insensitive": True}, 1.0),
        (" a \n b ", "a b", {}, 0.0),
        (" a \n b ", "a b", {"strip_whitespace": True}, 1.0),
        ("ab", "a b", {"strip_whitespace": True}, 0.0),
        ("Yes, sir!", "Yes sir", {"strip_punctuation": True}, 1.0),
        ("Yes, sir!", "Yes sir", {}, 0.0),
        ("yes , sir", "Yes sir", {"strip_punctuation": True, "case_insensitive": True}, 0.0),
        ("", "", {}, 1.0),
        ("", "x", {}, 0.0),
    ],
)
def test_texts_are_equal_after_what_the_settings_take_away(
    response: str, truth: str, given: dict[str, object], score: float
):
    said = equality(settings("equality", **given), response, truth)  # pyright: ignore[reportArgumentType] # a standard one
    assert (said.score, said.passed) == (score, score == 1.0)


def test_a_reason_quotes_the_answer_and_never_what_was_expected():
    said = equality(settings("equality"), "London", "Paris")  # pyright: ignore[reportArgumentType] # a standard one
    assert said.reason == "`London` is not what was expected"


@pytest.mark.parametrize(
    ("response", "truth", "given", "score"),
    [
        ("14.1", "14.1", {}, 1.0),
        ("14.1000005", "14.1", {}, 1.0),
        ("14.10001", "14.1", {}, 0.0),
        ("14.2", "14.1", {"absolute_tolerance": 0.11}, 1.0),
        ("110", "100", {"relative_tolerance": 0.1}, 1.0),
        ("110.1", "100", {"relative_tolerance": 0.1}, 0.0),
        ("14.1%", "0.141", {"accept_percent": True}, 1.0),
        ("14.1 %", "14.1%", {"accept_percent": True}, 1.0),
        ("1,234", "1234", {"accept_thousands_separators": True}, 1.0),
        ("1\u202f234.5", "1_234.5", {"accept_thousands_separators": True}, 1.0),
        ("-3e2", "-300", {}, 1.0),
        ("0", "0", {"relative_tolerance": 0.5}, 1.0),
    ],
)
def test_numbers_are_near_by_either_tolerance(
    response: str, truth: str, given: dict[str, object], score: float
):
    said = numeric(settings("numeric", **given), response, truth)  # pyright: ignore[reportArgumentType] # a standard one
    assert (said.score, said.error) == (score, "")


@pytest.mark.parametrize("response", ["", "about 14", "14.1%", "1,234", "nan", "inf", "1_0"])
def test_an_answer_that_is_no_number_is_the_candidates_failure(response: str):
    said = numeric(settings("numeric"), response, "14.1")  # pyright: ignore[reportArgumentType] # a standard one
    assert (said.score, said.passed) == (0.0, False)
    assert "is not a number" in said.error


def test_a_case_whose_truth_is_no_number_is_not_the_candidates_failure():
    said = numeric(settings("numeric"), "1", "one")  # pyright: ignore[reportArgumentType] # a standard one
    assert said.score is None and "`ground_truth`" in said.reason and not said.error


@pytest.mark.parametrize(
    ("answer", "path", "value"),
    [
        ('{"a": {"b": [{"c": 7}]}}', "a.b[0].c", "7"),
        ('{"items": [[1, 2.5]]}', "items[0][1]", "2.5"),
        ('{"a-b": "x"}', "a-b", "x"),
        ('[{"1st": "x"}]', "[0].1st", "x"),
        ('{"a": ""}', "a", ""),
        ('{"a": true}', "a", "True"),
        ('{"a": null}', "a", "None"),
    ],
)
def test_a_value_is_found_by_its_path(answer: str, path: str, value: str):
    assert value_at(answer, path) == value


@pytest.mark.parametrize(
    ("answer", "path", "why"),
    [
        ("7", "a", "nothing at `a`"),
        ("{broken", "a", "not JSON"),
        ("", "a", "not JSON"),
        ("[" * 100_000, "a", "JSON"),
        ('{"a": [1]}', "a[1]", "nothing at `a[1]`"),
        ('{"a": {"b": 1}}', "a.c.d", "nothing at `a.c`"),
        ('{"a": "text"}', "a[0]", "nothing at `a[0]`"),
        ('{"a": {"b": 1}}', "a", "not a single value"),
    ],
)
def test_an_answer_without_the_value_says_why(answer: str, path: str, why: str):
    with pytest.raises(NoValue, match=why.replace("[", r"\[")):
        value_at(answer, path)
