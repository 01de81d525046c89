"""Records of json, jsonl and csv files."""

import json
import logging
from pathlib import Path
from typing import Any

import pytest

from kept.errors import SetupError
from kept.evaluators.tools import documents
from kept.evaluators.tools.retrieval import sources
from kept.evaluators.tools.retrieval.config import VectorStore, ingestion_of
from kept.evaluators.tools.retrieval.sources import chunks_of

ROWS = [
    {"id": 7, "title": "Parcel", "body": "It is late", "tags": ["a"], "by": {"name": "Ann"}},
    {"id": 8, "title": "Card", "body": "It expired", "price": 1.5, "none": None},
]


def read(path: Path, text: str, **given: Any) -> list[tuple[str, str, dict[str, str]]]:
    path.write_text(text)
    config = VectorStore(name="look", source=path.name, folder=path.parent, **given)
    return [(c.source, c.text, c.meta) for c in chunks_of(ingestion_of(config))]


def test_a_record_is_searched_by_its_fields_and_told_with_others(tmp_path: Path):
    found = read(
        tmp_path / "rows.json",
        json.dumps(ROWS),
        vector_field=("title", "body"),
        meta_fields=("by.name", "price"),
        id_field="id",
        field_separator=" | ",
    )
    assert found == [
        ("rows.json#7", "Parcel | It is late", {"by.name": "Ann"}),
        ("rows.json#8", "Card | It expired", {"price": "1.5"}),
    ]


def test_without_fields_a_record_is_searched_whole(tmp_path: Path):
    found = read(tmp_path / "rows.jsonl", "\n".join(map(json.dumps, ROWS)))
    assert found[1][:2] == (
        "rows.jsonl#2",
        "id: 8\ntitle: Card\nbody: It expired\nprice: 1.5",
    )


def test_records_may_lie_deep_and_take_along_what_stands_beside_their_path(tmp_path: Path):
    whole = {"shop": "West", "data": {"items": [{"name": "Tea"}, {"name": "Ink"}]}, "n": 2}
    found = read(
        tmp_path / "rows.json",
        json.dumps([whole]),
        record_path="data.items",
        record_prefix="item_",
        meta_prefix="its_",
        vector_field="item_name",
        meta_fields=("its_shop",),
    )
    assert found == [
        ("rows.json#1", "Tea", {"its_shop": "West"}),
        ("rows.json#2", "Ink", {"its_shop": "West"}),
    ]


@pytest.mark.parametrize(
    ("name", "given", "comma"),
    [("rows.csv", {}, ","), ("rows.tsv", {}, "\t"), ("rows.csv", {"delimiter": ";"}, ";")],
)
def test_a_table_is_read_by_its_header(tmp_path: Path, name: str, given: Any, comma: str):
    text = f'sku{comma}text\n1{comma}"two\nlines"\n2{comma}\n3{comma}three\n'
    found = read(tmp_path / name, text, vector_field="text", id_field="sku", **given)
    assert [one[:2] for one in found] == [(f"{name}#1", "two\nlines"), (f"{name}#3", "three")]


def test_a_long_record_is_cut_and_every_part_keeps_what_is_told_with_it(tmp_path: Path):
    rows = json.dumps([{"text": "one two three", "tag": "t"}])
    found = read(
        tmp_path / "rows.json",
        rows,
        vector_field="text",
        meta_fields=("tag",),
        chunk_size=3,
        chunk_overlap=0,
    )
    assert found == [
        ("rows.json#1", "one two", {"tag": "t"}),
        ("rows.json#1", "three", {"tag": "t"}),
    ]


def test_json_without_records_is_text(tmp_path: Path):
    assert read(tmp_path / "x.json", '["one", "two"]') == [("x.json", '["one", "two"]', {})]


@pytest.mark.parametrize(
    ("name", "text", "given", "problem"),
    [
        (
            "x.json",
            '[{"a": 1}]',
            {"vector_field": "b"},
            "record of `x.json` has `b`; there is a",
        ),
        ("x.csv", "a,b\n1,2\n", {"meta_fields": ("c",)}, "has `c`; there is a, b"),
        ("x.json", '[{"a": 1}]', {"id_field": "id"}, "has `id`"),
        ("x.json", '{"a": 1}', {"record_path": "b.c"}, "has no `b` of `b.c`: a"),
        ("x.json", '{"b": 1}', {"record_path": "b.c"}, "nothing at `b.c`"),
        ("x.json", "{", {}, "`x.json` is no JSON"),
        ("x.jsonl", '{"a": 1}\n{', {}, "`x.jsonl:2` is no JSON"),
        ("x.json", "[]", {}, "there is no text in"),
        ("x.md", " \n", {}, "there is no text in"),
    ],
)
def test_what_cannot_be_read_is_said_in_words(
    tmp_path: Path, name: str, text: str, given: Any, problem: str
):
    with pytest.raises(SetupError) as caught:
        read(tmp_path / name, text, **given)
    assert problem in str(caught.value)


def test_a_folder_is_read_whole_but_for_what_is_hidden_or_no_text(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
):
    source = tmp_path / "docs"
    (source / "deep").mkdir(parents=True)
    (source / ".git").mkdir()
    (source / "b.md").write_text("second")
    (source / "deep" / "a.html").write_text("<h1>T</h1><p>third</p>")
    (source / "a.txt").write_text("first")
    (source / "blob.bin").write_bytes(b"\x00\xff")
    (source / ".git" / "x.txt").write_text("hidden")
    config = VectorStore(name="look", source="docs", folder=tmp_path)
    with caplog.at_level(logging.WARNING, "kept"):
        chunks = chunks_of(ingestion_of(config))
    assert [(c.source, c.text) for c in chunks] == [
        ("a.txt", "first"),
        ("b.md", "second"),
        ("deep/a.html", "# T\n\nthird"),
    ]
    assert "blob.bin is left out of the index" in caplog.text


def test_a_file_of_text_may_be_longer_than_a_message(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(documents, "MOST_TEXT", 10)
    assert read(tmp_path / "x.md", "more than ten characters")
    monkeypatch.setattr(sources, "MOST_BYTES", 10)
    with pytest.raises(SetupError, match=r"`x\.md` has 0 MiB"):
        read(tmp_path / "x.md", "more than ten characters")


def test_a_source_that_is_not_there_is_named(tmp_path: Path):
    config = VectorStore(name="look", source="nowhere", folder=tmp_path)
    with pytest.raises(SetupError, match=r"there is no .*nowhere"):
        chunks_of(ingestion_of(config))
