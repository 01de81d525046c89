"""Which of the objects that a program printed is meant."""

import time

import pytest

from kept.scorers.printed import last_object


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ('{"a": {"b": 1}}', {"a": {"b": 1}}),
        ('{\n  "a": 1\n}\n', {"a": 1}),
        ('x {"a": 1} y {"b": 2} z }', {"b": 2}),
        ('{"a": "}{"}', {"a": "}{"}),
        ('{{{"a": 1}', {"a": 1}),
        ('loss {x}\n{"a": 1}\nbye {y}', {"a": 1}),
        ('{"a": 1}{"b": 2}', {"b": 2}),
        ("", None),
        ("{}", {}),
        ("[1]", None),
    ],
)
def test_the_last_object_of_a_text(text: str, found: object):
    assert last_object(text) == found


@pytest.mark.parametrize(
    "text",
    [
        '{"metrics": {"score": 5}, oops',
        '{"metrics": {"score": 5}, "note": "cut of',
        '{\n "metrics": {"score": 5},\n "note":\n',
    ],
)
def test_a_part_of_an_object_that_is_not_whole_is_none(text: str):
    assert last_object(text) is None


def test_of_a_text_without_its_beginning_only_what_begins_a_line_counts():
    lost = "… 7 bytes left out …\n"
    assert last_object(f'{lost}"x": [{{"score": 3}}, {{"score": 4}}]}}\n', cut=True) is None
    assert last_object(f'{lost}  "x": 1}},\n  {{"score": 4}}\n ]\n}}\n', cut=True) is None
    assert last_object(f'{lost}}}\nlog\n{{"score": 4}}\nbye\n', cut=True) == {"score": 4}


@pytest.mark.parametrize(
    "noise", ["{" * 1_000_000, '{"a":' * 200_000, '{"a": 1, ' * 110_000, "{\n" * 500_000]
)
def test_a_megabyte_of_braces_is_searched_in_a_moment(noise: str):
    began = time.perf_counter()
    assert last_object(noise) is None
    assert last_object(noise + '\n{"a": 1}\n') == {"a": 1}
    assert time.perf_counter() - began < 2
