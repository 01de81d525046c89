"""Vectors kept by Qdrant are found as those in memory, and are embedded once."""

import asyncio
import gc
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from kept.core.ports import Embedder
from kept.core.rollout import Failure
from kept.evaluators.tools.retrieval.config import Database, HierarchicalDocument, VectorStore
from kept.evaluators.tools.retrieval.index import Found
from kept.evaluators.tools.retrieval.ranking import unanswered
from kept.evaluators.tools.retrieval.tool import Indexes
from kept.testing import WordEmbedder
from tests.evaluators.tools.retrieval.qdrant_server import QdrantServer, serving
from tests.evaluators.tools.retrieval.worlds import handbook, store

# the client takes seconds to import
pytestmark = pytest.mark.slow

TEXTS = {"a.txt": "a late parcel", "b.txt": "a card", "c.txt": "tea and a parcel"}


async def run(
    folder: Path,
    config: VectorStore | HierarchicalDocument,
    embedder: Embedder,
    *,
    force: bool = False,
    queries: Sequence[str] = ("late parcel",),
) -> list[Found | Failure]:
    """A run of its own, which ends."""
    indexes = Indexes(folder / "cache", force=force)
    try:
        tool = indexes.tool(config, embedder)
        return [await tool.search(query) for query in queries]
    finally:
        await indexes.close()


def shown(brought: Found | Failure) -> list[tuple[str, float]]:
    assert isinstance(brought, Found), brought
    return [(passage.chunk.source, round(passage.score, 4)) for passage in brought.passages]


def ingests(embedder: WordEmbedder) -> int:
    return sum(len(texts) > 1 for texts in embedder.calls)


@pytest.mark.parametrize("given", [{}, {"connection_string": "db"}, {"options": {"path": "db"}}])
def test_a_folder_of_qdrant_finds_what_memory_finds(tmp_path: Path, given: dict[str, Any]):
    embedder = WordEmbedder()
    config = store(tmp_path, TEXTS, database=Database(provider="qdrant", **given))
    plain = store(tmp_path, TEXTS)
    [one] = asyncio.run(run(tmp_path, config, embedder))
    [other] = asyncio.run(run(tmp_path, plain, WordEmbedder()))
    assert shown(one) == shown(other)
    assert shown(one)[0][0] == "a.txt"
    [again] = asyncio.run(run(tmp_path, config, embedder))
    assert shown(again) == shown(one)
    assert ingests(embedder) == 1, "the second run found it there"
    where = "db" if given else "cache/qdrant"
    assert (tmp_path / where / "collection").is_dir()


def test_two_tools_of_a_run_share_a_folder_of_qdrant(tmp_path: Path):
    async def both() -> None:
        indexes = Indexes(tmp_path / "cache")
        base = Database(provider="qdrant")
        tools = [
            indexes.tool(store(tmp_path, TEXTS, database=base), WordEmbedder()),
            indexes.tool(handbook(tmp_path, database=base), WordEmbedder()),
        ]
        for tool in tools:
            assert shown(await tool.search("parcel"))
        await indexes.close()

    asyncio.run(both())


# the client, refused, leaves its file of the lock to the garbage
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_a_folder_that_another_run_has_open_is_an_outage_in_words(tmp_path: Path):
    config = store(tmp_path, TEXTS, database=Database(provider="qdrant"))

    async def both() -> Found | Failure:
        first = Indexes(tmp_path / "cache")
        assert shown(await first.tool(config, WordEmbedder()).search("parcel"))
        [second] = await run(tmp_path, config, WordEmbedder())
        await first.close()
        return second

    brought = asyncio.run(both())
    gc.collect()
    assert isinstance(brought, Failure)
    assert brought.blame == "infrastructure"
    assert "cannot be used: " in brought.message
    assert "already accessed" in brought.message


def test_a_server_of_qdrant_is_filled_once_and_asked_with_its_key(tmp_path: Path):
    embedder = WordEmbedder()

    async def whole() -> tuple[QdrantServer, list[Found | Failure]]:
        async with serving(QdrantServer()) as server:
            base = Database(provider="qdrant", options={"url": server.url, "api_key": "its-key"})
            config = store(tmp_path, TEXTS, database=base)
            first = await run(tmp_path, config, embedder)
            # as on another machine, whose cache is empty
            (tmp_path / "elsewhere").mkdir()
            return server, first + await run(tmp_path / "elsewhere", config, embedder)

    server, (here, elsewhere) = asyncio.run(whole())
    assert shown(here) == shown(elsewhere)
    assert shown(here)[0][0] == "a.txt"
    assert ingests(embedder) == 1
    assert {key for _, _, key in server.log} == {"its-key"}
    [(name, points)] = server.points.items()
    assert name.startswith("kept-")
    assert len(points) == 3


def test_a_collection_that_is_not_whole_is_made_again(tmp_path: Path):
    embedder = WordEmbedder()

    async def whole() -> list[list[tuple[str, float]]]:
        async with serving(QdrantServer()) as server:
            base = Database(provider="qdrant", connection_string=server.url)
            config = store(tmp_path, TEXTS, database=base)
            [first] = await run(tmp_path, config, embedder)
            for points in server.points.values():
                del points[0]
            [second] = await run(tmp_path, config, embedder)
            [third] = await run(tmp_path, config, embedder, force=True)
            return [shown(first), shown(second), shown(third)]

    first, second, third = asyncio.run(whole())
    assert first == second == third
    assert ingests(embedder) == 3


def test_a_hybrid_search_ranks_what_qdrant_finds(tmp_path: Path):
    base = Database(provider="qdrant", connection_string=":memory:")
    by_base = handbook(tmp_path, database=base)
    [one] = asyncio.run(run(tmp_path, by_base, WordEmbedder(), queries=["parcel refunds"]))
    [other] = asyncio.run(
        run(tmp_path, handbook(tmp_path), WordEmbedder(), queries=["parcel refunds"])
    )
    assert shown(one) == shown(other)


def test_a_server_that_breaks_or_is_away_is_an_outage(tmp_path: Path):
    async def whole() -> list[Found | Failure]:
        async with serving(QdrantServer(broken=True)) as server:
            place = server.url.replace("://", "://me:secret@")
            base = Database(provider="qdrant", connection_string=place)
            config = store(tmp_path, TEXTS, database=base)
            broken = await run(tmp_path, config, WordEmbedder())
        return broken + await run(tmp_path, config, WordEmbedder())

    for brought in asyncio.run(whole()):
        assert isinstance(brought, Failure)
        assert "secret" not in brought.message
        assert (brought.kind, brought.blame) == ("server", "infrastructure")
        assert "Qdrant at http://127.0.0.1:" in brought.message


def test_a_server_that_does_not_answer_is_named_without_its_key():
    database = Database(
        provider="qdrant",
        connection_string="http://user:pass@127.0.0.1:9",
        options={"api_key": "a-key-of-mine"},
    )
    told = unanswered(database)
    assert told is not None
    assert told.startswith("Qdrant at http://127.0.0.1:9 cannot be used: ")
    assert "a-key-of-mine" not in told and "pass" not in told


@pytest.mark.parametrize("address", ["{}?api_key=a-key-of-mine", "{}/?api_key=a-key-of-mine"])
def test_the_key_in_the_address_of_a_server_is_sent_and_never_shown(address: str):
    async def ask() -> tuple[str | None, list[tuple[str, str, str]]]:
        async with serving(QdrantServer()) as server:
            place = address.format(server.url)
            database = Database(provider="qdrant", connection_string=place)
            return await asyncio.to_thread(unanswered, database), server.log

    told, log = asyncio.run(ask())
    assert told is None
    assert log == [("GET", "/collections/kept/exists", "a-key-of-mine")]
    place = address.format("http://127.0.0.1:9")
    away = unanswered(Database(provider="qdrant", connection_string=place))
    assert away is not None and away.startswith("Qdrant at http://127.0.0.1:9")
    assert "a-key-of-mine" not in away


def test_an_address_that_is_none_is_named_without_its_key():
    place = "http://[::1?api_key=a-key-of-mine"
    told = unanswered(Database(provider="qdrant", connection_string=place))
    assert told is not None and told.startswith("Qdrant at http://[::1 cannot be used: ")
    assert "a-key-of-mine" not in told


def test_a_key_before_the_host_of_an_address_is_sent():
    async def ask() -> tuple[str | None, list[tuple[str, str, str]]]:
        async with serving(QdrantServer()) as server:
            place = server.url.replace("http://", "qdrant://a%2Fkey@")
            database = Database(provider="qdrant", connection_string=place)
            return await asyncio.to_thread(unanswered, database), server.log

    told, log = asyncio.run(ask())
    assert told is None
    assert log == [("GET", "/collections/kept/exists", "a/key")]


def test_a_folder_and_a_server_that_answers_are_in_order(tmp_path: Path):
    assert unanswered(Database(provider="qdrant", connection_string=str(tmp_path / "db"))) is None

    async def ask() -> tuple[str | None, list[tuple[str, str, str]]]:
        async with serving(QdrantServer()) as server:
            database = Database(
                provider="qdrant", connection_string=server.url, options={"api_key": "k"}
            )
            return await asyncio.to_thread(unanswered, database), server.log

    told, log = asyncio.run(ask())
    assert told is None
    assert log == [("GET", "/collections/kept/exists", "k")]
