from collections.abc import Iterator
from pathlib import Path

import pytest

from kept.errors import SetupError, SpecError
from kept.evaluators.environments.base import Item
from kept.evaluators.environments.datasets import MOST, Fields, as_items, item, rows_in


def test_rows_of_json_lines_know_their_lines(tmp_path: Path):
    path = tmp_path / "a.jsonl"
    path.write_text('{"a": 1}\n\n{"a": "x\u2028y"}\n', encoding="utf-8")
    assert [(row.data, row.number, row.line) for row in rows_in(path)] == [
        ({"a": 1}, 1, 1),
        ({"a": "x\u2028y"}, 2, 3),
    ]


@pytest.mark.parametrize(
    "text",
    [
        '[\n {"a": 1},\n {"a":\n 2}\n]\n',
        '{"canary": {"x": [1]},\n "examples": [{"a": 1}\n,{"a": 2}]}',
        '{\n"version": 1, "data": "no list",\n"items":[{"a": 1},\n\n{"a": 2} ] , "more": 3}',
    ],
)
def test_rows_of_json_are_found_in_a_list_or_an_object(tmp_path: Path, text: str):
    path = tmp_path / "a.json"
    path.write_text(text)
    found = list(rows_in(path))
    assert [row.data for row in found] == [{"a": 1}, {"a": 2}]
    lines = text.split("\n")
    assert all('{"a":' in lines[row.line - 1] for row in found)


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("a.json", '[{"a": 1},\n{"a" 2}]', ":2 not JSON: Expecting ':' delimiter"),
        ("a.json", '[{"a": 1}\n{"a": 2}]', ":2 not JSON: a comma or the end of the list"),
        ("a.json", '[{"a": 1},\n', ":2 not JSON: Expecting value"),
        ("a.json", "7", ":1 no list of rows"),
        ("a.json", '{"a": 1}', ":1 no list of rows"),
        ("a.json", "", ":1 no list of rows"),
        ("a.jsonl", '{"a": 1}\n{"a"}\n[]\n', ":2 not JSON"),
        ("a.csv", "a,b\n1,2\n3\n", ":3 more or fewer columns"),
    ],
)
def test_what_cannot_be_read_is_said_with_its_line(
    tmp_path: Path, name: str, text: str, message: str
):
    path = tmp_path / name
    path.write_text(text)
    with pytest.raises(SpecError) as error:
        list(rows_in(path))
    assert f"{path}{message}" in str(error.value)


def test_what_is_no_text_is_said_with_its_line(tmp_path: Path):
    path = tmp_path / "a.jsonl"
    path.write_bytes(b'{"a": 1}\n{"a": "\xff"}\n')
    with pytest.raises(SpecError, match=f"{path}:2 not UTF-8 text"):
        list(rows_in(path))


def test_a_row_of_csv_begins_where_it_begins(tmp_path: Path):
    path = tmp_path / "a.csv"
    path.write_text('q,a\n"one\ntwo",1\nthree,2\n')
    assert [(row.data, row.line) for row in rows_in(path)] == [
        ({"q": "one\ntwo", "a": "1"}, 2),
        ({"q": "three", "a": "2"}, 4),
    ]


@pytest.mark.parametrize("sign", ["\u2028", "\x0b", "\x0c", "\x1c", "\x85"])
def test_only_line_ends_part_the_rows_of_csv(tmp_path: Path, sign: str):
    path = tmp_path / "a.csv"
    path.write_text(f'q,a\none{sign}two,1\n"three{sign}\nfour",2\nfive,3\n', encoding="utf-8")
    assert [(row.data["q"], row.line) for row in rows_in(path)] == [
        (f"one{sign}two", 2),
        (f"three{sign}\nfour", 3),
        ("five", 5),
    ]


def test_all_rows_of_csv_with_wrong_columns_are_told_at_once(tmp_path: Path):
    path = tmp_path / "a.csv"
    path.write_text("q,a\n\none\n\n\ntwo,2\nthree,3,3\n")
    with pytest.raises(SpecError) as error:
        list(rows_in(path))
    assert [problem.where for problem in error.value.problems] == [f"{path}:3", f"{path}:7"]


def test_all_files_of_a_folder_are_read_by_name(tmp_path: Path):
    (tmp_path / "b.json").write_text('[{"n": 2}]')
    (tmp_path / "a.jsonl").write_text('{"n": 1}')
    (tmp_path / "split_manifest.json").write_text('{"counts": {}}')
    (tmp_path / "notes.txt").write_text("no data")
    assert [row.data["n"] for row in rows_in(tmp_path)] == [1, 2]


def test_a_folder_without_data_is_refused(tmp_path: Path):
    with pytest.raises(SetupError, match="there is no data in"):
        list(rows_in(tmp_path))


def test_of_very_many_problems_some_are_told(tmp_path: Path):
    path = tmp_path / "a.jsonl"
    path.write_text("[]\n" * 100)
    with pytest.raises(SpecError) as error:
        list(rows_in(path))
    assert len(error.value.problems) == MOST + 1
    assert "and 80 more like these" in str(error.value)


def test_rows_that_share_a_line_are_told_apart_by_their_number(tmp_path: Path):
    """A published file of 5,000 rows in one line named no row that was wrong."""
    path = tmp_path / "a.json"
    path.write_text('{"data": [{"id": 1}, {"id": 2, "question": "q"}, 3, {"id": 4}]}')
    assert told_of(path) == [
        f"{path}:1 row 1: there is no `question`",
        f"{path}:1 row 4: there is no `question`",
        f"{path}:1 row 3: no JSON object, where one was expected",
    ]
    path.write_text('[\n{"id": 1},\n{"id": 2}, {"id": 3},\n{"id": 4}]')
    assert told_of(path) == [
        f"{path}:2 there is no `question`",
        f"{path}:3 row 2: there is no `question`",
        f"{path}:3 row 3: there is no `question`",
        f"{path}:4 there is no `question`",
    ]


def told_of(path: Path) -> list[str]:
    fields = Fields()

    def found() -> Iterator[Item]:
        for row in rows_in(path):
            if fields.text(row, ("question",)):
                yield item(row, {})

    with pytest.raises(SpecError) as error:
        as_items(fields, found())
    return str(error.value).splitlines()


def test_rows_of_a_list_of_ids_are_said_to_be_no_more(tmp_path: Path):
    path = tmp_path / "train" / "items.json"
    path.parent.mkdir()
    (tmp_path / "split_manifest.json").write_text("{}")
    path.write_text('[\n{"id": 1},\n{"id": 2}]')
    first, second = told_of(path)
    assert "put the rows of the data with these ids in their places" in first
    assert second == f"{path}:3 there is no `question`"


def test_a_field_of_csv_may_be_as_long_as_evidence_is(tmp_path: Path):
    path = tmp_path / "a.csv"
    path.write_text(f'question,evidence\nq,"{"word " * 60_000}"\n')
    (row,) = rows_in(path)
    assert len(row.data["evidence"]) == 300_000


@pytest.mark.parametrize("alone", [True, False])
def test_a_parquet_file_is_told_with_a_way_to_convert_it(tmp_path: Path, alone: bool):
    path = tmp_path / "test.parquet"
    path.write_bytes(b"PAR1")
    with pytest.raises(SetupError, match=r"is a Parquet file.*\n\n.*read_parquet"):
        list(rows_in(path if alone else tmp_path))
