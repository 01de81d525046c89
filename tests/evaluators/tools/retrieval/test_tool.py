"""What a model is told by an index, and what is written down of it."""

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from kept.core.llm import Embedded, ToolAnswer
from kept.core.ports import Tool
from kept.core.rollout import FREE, Failure, Usage
from kept.errors import SetupError
from kept.evaluators.tools.retrieval.config import HierarchicalDocument, VectorStore
from kept.evaluators.tools.retrieval.tool import Indexes
from kept.models.embeddings import HttpEmbedder
from kept.models.providers import ModelConfig, Price
from kept.testing import MemoryJournal, WordEmbedder
from kept.testing.server import ModelServer
from kept.testing.suites.evaluators import ToolSuite
from tests.evaluators.tools.retrieval.worlds import (
    HANDBOOK,
    found,
    handbook,
    maker,
    scope,
    store,
    use,
)


class Never(WordEmbedder):
    """One whose provider does not answer a query; sources are embedded."""

    async def embed(self, texts: Sequence[str]) -> Embedded | Failure:
        if len(texts) == 1:
            await asyncio.Event().wait()
        return await super().embed(texts)


class Indexed(ToolSuite):
    @pytest.fixture(autouse=True)
    def opened(self, tmp_path: Path) -> None:
        self.indexes = Indexes(tmp_path / "cache")
        (tmp_path / "handbook.md").write_text(HANDBOOK)
        self.folder = tmp_path

    def config(self) -> VectorStore | HierarchicalDocument:
        raise NotImplementedError

    async def open_tool(self) -> Tool:
        return self.indexes.tool(self.config(), WordEmbedder())

    async def open_hanging_tool(self) -> Tool | None:
        return self.indexes.tool(self.config(), Never(name="never"))

    async def close(self) -> None:
        await self.indexes.close()

    def arguments(self) -> Mapping[str, object]:
        return {"query": "parcel"}

    def wrong_arguments(self) -> Mapping[str, object]:
        return {"query": 5}


class TestVectorStore(Indexed):
    def config(self) -> VectorStore:
        return VectorStore(name="look", source="handbook.md", folder=self.folder)


class TestHierarchicalDocument(Indexed):
    def config(self) -> HierarchicalDocument:
        return HierarchicalDocument(name="look", source="handbook.md", folder=self.folder)


class TestWordsAlone(Indexed):
    def config(self) -> HierarchicalDocument:
        made = HierarchicalDocument(name="look", source="handbook.md", folder=self.folder)
        return replace(made, search_mode="keyword")

    async def open_hanging_tool(self) -> Tool | None:
        return None


def test_passages_are_numbered_with_where_they_stand(tmp_path: Path):
    config = handbook(tmp_path, search_mode="keyword", top_k=2)
    answer = use(maker(tmp_path)(config), "parcel")
    assert answer.text == (
        "[1] handbook.md > Handbook > Returns\nA parcel may be returned within thirty days."
    )
    assert answer.context == ("Handbook > Returns\nA parcel may be returned within thirty days.",)
    assert not answer.wrong


def test_what_is_told_with_a_record_stands_above_it(tmp_path: Path):
    (tmp_path / "faq.csv").write_text("id,text,topic\nq1,late parcel,shipping\nq2,tea,food\n")
    config = VectorStore(
        name="look",
        source="faq.csv",
        folder=tmp_path,
        vector_field="text",
        meta_fields=("topic",),
        id_field="id",
        top_k=1,
    )
    answer = use(maker(tmp_path)(config, WordEmbedder()), "late parcel")
    assert answer.text == "[1] faq.csv#q1\ntopic: shipping\nlate parcel"


def test_nothing_found_is_an_answer(tmp_path: Path):
    config = handbook(tmp_path, search_mode="keyword")
    answer = use(maker(tmp_path)(config), "zebra")
    assert (answer.text, answer.context, answer.wrong) == ("nothing was found", (), False)


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        ({"query": ""}, "`query` is empty"),
        ({"query": " \n"}, "`query` is empty"),
        ({"query": 5}, "give `query`, a text"),
        ({"query": ["parcel"]}, "give `query`, a text"),
        ({}, "give `query`, a text"),
        ({"query": "parcel", "top_k": 3}, "there is no argument `top_k`"),
    ],
)
def test_a_query_that_is_none_is_answered_with_what_is_wrong(
    tmp_path: Path, arguments: Mapping[str, object], told: str
):
    embedder = WordEmbedder()
    tool = maker(tmp_path)(store(tmp_path, {"a.txt": "a parcel"}), embedder)
    answer = asyncio.run(tool.use(arguments, scope()))
    assert isinstance(answer, ToolAnswer)
    assert answer.wrong
    assert told in answer.text
    assert embedder.calls == []


def test_a_resume_searches_nothing_and_another_look_does(tmp_path: Path):
    journal, embedder = MemoryJournal(), WordEmbedder()
    make = maker(tmp_path)
    first = use(make(handbook(tmp_path), embedder), "parcel", journal)
    asked = len(embedder.calls)
    assert use(make(handbook(tmp_path), embedder), "parcel", journal) == first
    assert len(embedder.calls) == asked
    other = handbook(tmp_path, top_k=1)
    assert use(make(other, embedder), "parcel", journal) != first
    (tmp_path / "handbook.md").write_text("# New\n\na parcel")
    changed = HierarchicalDocument(name="look", source="handbook.md", folder=tmp_path)
    assert "New" in use(make(changed, embedder), "parcel", journal).text


def test_what_vectors_cost_is_told_with_the_answer(tmp_path: Path):
    with ModelServer() as server:
        config = ModelConfig(
            provider="openai_compatible",
            model="m",
            base_url=server.v1,
            price=Price(input=1e6, output=0),
        )
        tool = maker(tmp_path)(
            store(tmp_path, {"a.txt": "a parcel", "b.txt": "x"}), HttpEmbedder(config)
        )
        answers = [use(tool, "parcel"), use(tool, "parcel")]
    # a token is a dollar; `a parcel` has 3, `x` has 1, and the query 2
    assert [answer.usage for answer in answers] == [
        Usage(2, 6, usd=6.0),
        Usage(1, 2, usd=2.0),
    ]
    assert answers[0].seconds > 0


def test_an_outage_of_the_embedder_is_a_failure_and_not_written_down(tmp_path: Path):
    embedder, journal = WordEmbedder(), MemoryJournal()
    tool = maker(tmp_path)(store(tmp_path, {"a.txt": "a parcel"}), embedder)
    found(tool, "parcel")
    embedder.fail(Failure("server", "infrastructure", "away"))
    answer = asyncio.run(tool.use({"query": "parcel"}, scope(journal)))
    assert isinstance(answer, Failure)
    assert not use(tool, "parcel", journal).wrong


def test_a_query_that_no_provider_takes_is_told_to_the_model(tmp_path: Path):
    embedder = WordEmbedder()
    tool = maker(tmp_path)(store(tmp_path, {"a.txt": "a parcel"}), embedder)
    found(tool, "parcel")
    embedder.fail(Failure("context", "candidate", "it is too long", usage=Usage(1)))
    answer = use(tool, "parcel " * 9000)
    assert (answer.wrong, answer.text, answer.usage) == (True, "it is too long", Usage(1))


def test_a_source_that_is_missing_fails_a_use_in_words(tmp_path: Path):
    config = VectorStore(name="look", source="nowhere", folder=tmp_path)
    answer = asyncio.run(maker(tmp_path)(config, WordEmbedder()).use({"query": "x"}, scope()))
    assert isinstance(answer, Failure)
    assert "there is no" in answer.message
    assert answer.usage == FREE


def test_a_document_that_is_searched_by_meaning_needs_an_embedder(tmp_path: Path):
    for mode in ("hybrid", "semantic"):
        with pytest.raises(SetupError, match="`look` is searched by meaning"):
            maker(tmp_path)(handbook(tmp_path, search_mode=mode))
    assert maker(tmp_path)(handbook(tmp_path, search_mode="keyword"))


def test_a_model_is_told_what_the_config_says(tmp_path: Path):
    config = handbook(tmp_path, search_mode="keyword", description="the house rules")
    offer = maker(tmp_path)(config).offer
    assert (offer.name, offer.description) == ("look", "the house rules")
    assert offer.parameters["required"] == ["query"]
