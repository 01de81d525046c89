"""Which of what a program printed is meant."""

import time

import pytest

from kept.core.parsing import DuplicateKey, ParseLimit
from kept.evaluators.scorers.command import printed_objects

EMPTY: list[dict[str, object]] = [{}]


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ('{"a": {"b": 1}}', [{"a": {"b": 1}}]),
        ('{\n  "a": 1\n}\n', [{"a": 1}]),
        ('x {"a": 1} y z }', [{"a": 1}]),
        ('{"a": "}{"}', [{"a": "}{"}]),
        ('{{{"a": 1}', [{"a": 1}]),
        ('loss {x}\n{"a": 1}\nbye {y}', [{"a": 1}]),
        ("", []),
        ("{}", EMPTY),
        ("[1]", []),
    ],
)
def test_the_object_of_a_text(text: str, found: object):
    assert printed_objects(text) == found


@pytest.mark.parametrize(
    "text",
    [
        '{"a": 1}\n{"b": 2}\n',
        '{"a": 1}\n{\n  "b": 2\n}\n',
        '{"a": 1}\nlog\n{"b": 2}\nbye',
        '{"a": 1}{"b": 2}',
        'x {"a": 1} y {"b": 2} z }',
    ],
)
def test_which_of_two_objects_is_meant_is_not_guessed(text: str):
    assert printed_objects(text) == [{"a": 1}, {"b": 2}]


@pytest.mark.parametrize(
    "text",
    [
        'options {} and {"seed": 1}\n{"a": 1}\n',
        '{"a": 1}\ndone, {"errors": 0} in all\n',
        'INFO {"n": 1}\n{\n "a": 1\n}\nINFO {"n": 2}\n',
        '{"step": 1} of 2\r\n{"a": 1}\r\n',
    ],
)
def test_objects_inside_of_lines_are_words_where_one_has_a_line_of_its_own(text: str):
    assert printed_objects(text) == [{"a": 1}]


@pytest.mark.parametrize(
    "text",
    [
        '{"metrics": {"score": 5}, oops',
        '{"metrics": {"score": 5}, "note": "cut of',
        '{\n "metrics": {"score": 5},\n "note":\n',
    ],
)
def test_a_part_of_an_object_that_is_not_whole_is_none(text: str):
    assert printed_objects(text) == []


def test_of_a_text_without_its_beginning_only_what_begins_a_line_counts():
    lost = "… 7 bytes left out …\n"
    assert printed_objects(f'{lost}"x": [{{"score": 3}}, {{"score": 4}}]}}\n', cut=True) == []
    assert printed_objects(f'{lost}  "x": 1}},\n  {{"score": 4}}\n ]\n}}\n', cut=True) == []
    assert printed_objects(f'{lost}}}\nlog\n{{"score": 4}}\nbye\n', cut=True) == [{"score": 4}]


@pytest.mark.parametrize(
    "noise", ["{" * 1_000_000, '{"a":' * 200_000, '{"a": 1, ' * 110_000, "{\n" * 500_000]
)
def test_a_megabyte_of_braces_is_searched_in_a_moment(noise: str):
    began = time.process_time()
    assert printed_objects(noise) == []
    assert printed_objects(noise + '\n{"a": 1}\n') == [{"a": 1}]
    assert time.process_time() - began < 8


@pytest.mark.parametrize(
    "text",
    [
        '{"score": 0.2, "score": 0.9}\n',
        '{\n "metrics": {"score": 0.2, "score": 0.9}\n}\nbye\n',
        'so {"score": 0.2, "score": 0.9} in all',
        '{"score": 0.2, "score": 0.9}\n{"a": 1}\n',
    ],
)
def test_a_key_that_stands_twice_is_an_error_and_not_its_last_value(text: str):
    with pytest.raises(DuplicateKey, match="the key `score` stands twice in one object"):
        printed_objects(text)


def test_a_key_twice_in_what_is_not_meant_does_not_matter():
    assert printed_objects('INFO {"n": 1, "n": 2}\n{"a": 1}\n') == [{"a": 1}]
    assert printed_objects('INFO {"n": 1, "n": 2}\n{\n"a": 1\n}\nbye') == [{"a": 1}]


def test_an_object_beyond_a_bound_says_which():
    with pytest.raises(ParseLimit, match="nested more than 100 levels deep"):
        printed_objects('{"a":' * 500 + "1" + "}" * 500)
