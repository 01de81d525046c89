"""A source is taken in once for what it says, whoever asks and however often."""

import asyncio
import logging
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from textwrap import dedent

import pytest

from kept.core.llm import Embedded
from kept.core.rollout import FREE, Failure
from kept.evaluators.tools.retrieval.index import Found
from kept.evaluators.tools.retrieval.tool import Indexes
from kept.testing import WordEmbedder
from kept.testing.server import ModelServer
from tests.evaluators.tools.retrieval.worlds import failure, found, handbook, maker, store

TEXTS = {"a.txt": "a parcel", "b.txt": "a card"}


def ingests(embedder: WordEmbedder) -> int:
    """Calls but those for a single query."""
    return sum(len(texts) > 1 for texts in embedder.calls)


def test_a_second_run_does_not_embed_again(tmp_path: Path):
    make, config = maker(tmp_path), store(tmp_path, TEXTS)
    first, second = WordEmbedder(), WordEmbedder()
    once, again = found(make(config, first), "parcel"), found(make(config, second), "parcel")
    assert once == again
    assert [ingests(first), ingests(second)] == [1, 0]
    assert second.calls == [("parcel",)]


def test_a_source_that_lies_elsewhere_is_the_same_source(tmp_path: Path):
    embedder = WordEmbedder()
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
        found(maker(tmp_path)(store(tmp_path / name, TEXTS), embedder), "parcel")
    assert ingests(embedder) == 1


def test_whatever_makes_another_index_is_taken_in_anew(tmp_path: Path):
    make, embedder = maker(tmp_path), WordEmbedder()
    found(make(store(tmp_path, TEXTS), embedder), "parcel")
    changed = [
        store(tmp_path, TEXTS, chunk_size=1, chunk_overlap=0),
        store(tmp_path, TEXTS, chunk_overlap=3),
        store(tmp_path, TEXTS, vector_field="x"),
        store(tmp_path, {**TEXTS, "b.txt": "a card, changed"}),
        store(tmp_path, {"c.txt": "another file"}),
    ]
    for n, config in enumerate(changed[:3], 2):
        found(make(config, embedder), "parcel")
        assert ingests(embedder) == n
    found(make(changed[3], embedder), "parcel")
    assert ingests(embedder) == 5, "files changed"
    other = WordEmbedder(name="other")
    found(make(changed[4], other), "parcel")
    assert ingests(other) == 1


def test_what_is_decided_for_a_query_makes_no_other_index(tmp_path: Path):
    embedder = WordEmbedder()
    indexes = Indexes(tmp_path / "cache")
    for weight in (0.2, 0.8):
        config = handbook(
            tmp_path,
            top_k=2,
            min_score=0.1,
            rrf_k=7,
            semantic_weight=weight,
            keyword_weight=1 - weight,
            exact_weight=0.0,
        )
        tool = indexes.tool(config, embedder)
        found(tool, "parcel")
    assert ingests(embedder) == 1


def test_force_takes_in_anew_once_a_run(tmp_path: Path):
    make, config = maker(tmp_path), store(tmp_path, TEXTS)
    found(make(config, WordEmbedder()), "parcel")
    embedder = WordEmbedder()
    tool = make(config, embedder, force=True)
    found(tool, "parcel")
    found(tool, "card")
    assert ingests(embedder) == 1


def test_a_search_by_words_embeds_nothing(tmp_path: Path):
    embedder = WordEmbedder()
    config = handbook(tmp_path, search_mode="keyword")
    assert found(maker(tmp_path)(config, embedder), "parcel")
    assert embedder.calls == []


def test_rollouts_side_by_side_take_a_source_in_once(tmp_path: Path):
    async def trial(n: int) -> int:
        folder = tmp_path / str(n)
        folder.mkdir()
        config, embedder = store(folder, TEXTS), WordEmbedder()
        indexes = Indexes(folder / "cache")
        tools = [indexes.tool(config, embedder) for _ in range(8)]
        brought = await asyncio.gather(
            *(tool.search(f"parcel {k}") for k, tool in enumerate(tools))
        )
        paid = [one.usage for one in brought if isinstance(one, Found)]
        assert len(paid) == 8
        assert sum(usage.calls for usage in paid) == 9, "one query each, and the source once"
        return ingests(embedder)

    async def trials() -> list[int]:
        return [await trial(n) for n in range(50)]

    assert asyncio.run(trials()) == [1] * 50


def test_two_runs_of_one_process_take_a_source_in_once(tmp_path: Path):
    embedder, config = WordEmbedder(), store(tmp_path, TEXTS)

    async def both() -> None:
        tools = [Indexes(tmp_path / "cache").tool(config, embedder) for _ in range(2)]
        await asyncio.gather(*(tool.search("parcel") for tool in tools))

    asyncio.run(both())
    assert ingests(embedder) == 1


PROGRAM = """
import asyncio, sys
from pathlib import Path
from kept.models.providers import ModelConfig
from kept.models.embeddings import make_embedder
from kept.evaluators.tools.retrieval.config import VectorStore
from kept.evaluators.tools.retrieval.tool import Indexes

folder, url = Path(sys.argv[1]), sys.argv[2]
embedder = make_embedder(ModelConfig(provider="openai_compatible", model="m", base_url=url))
config = VectorStore(name="look", source="texts", folder=folder)
print(asyncio.run(Indexes(folder / "cache").tool(config, embedder).search("parcel")))
"""


@pytest.mark.slow
def test_two_processes_take_a_source_in_once(tmp_path: Path):
    store(tmp_path, TEXTS)
    with ModelServer(latency=0.5) as server:
        command = (sys.executable, "-c", dedent(PROGRAM), str(tmp_path), server.v1)
        started = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True) for _ in range(2)]
        told = [process.communicate(timeout=60)[0] for process in started]
        sizes = sorted(len(seen.body["input"]) for seen in server.log)
    assert all("a parcel" in text for text in told)
    assert sizes == [1, 1, 2]


def test_a_torn_index_is_made_again(tmp_path: Path, caplog: pytest.LogCaptureFixture):
    make, config = maker(tmp_path), store(tmp_path, TEXTS)
    whole = found(make(config, WordEmbedder()), "parcel")
    [path] = (tmp_path / "cache").glob("*.index")
    assert path.stat().st_mode & 0o077 == 0
    raw = path.read_bytes()
    for torn in (raw[: len(raw) // 2], b"", raw[:-1] + bytes([raw[-1] ^ 1]), b"x" * 100):
        path.write_bytes(torn)
        embedder = WordEmbedder()
        with caplog.at_level(logging.WARNING, "kept"):
            assert found(make(config, embedder), "parcel") == whole
        assert ingests(embedder) == 1
        assert "torn" in caplog.text
        caplog.clear()
        assert path.read_bytes() == raw


def test_nothing_half_written_is_left_behind(tmp_path: Path):
    found(maker(tmp_path)(store(tmp_path, TEXTS), WordEmbedder()), "parcel")
    assert {path.suffix for path in (tmp_path / "cache").iterdir()} == {".index", ".lock"}


def test_a_cache_that_cannot_be_written_costs_no_answer(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
):
    (tmp_path / "cache").write_text("a file, where a folder should be")
    with caplog.at_level(logging.WARNING, "kept"):
        assert found(maker(tmp_path)(store(tmp_path, TEXTS), WordEmbedder()), "parcel")
    assert "cannot be kept" in caplog.text


def test_those_who_wait_share_a_failure_and_who_comes_later_tries_again(tmp_path: Path):
    embedder = WordEmbedder()
    embedder.fail(Failure("server", "infrastructure", "away"))
    tool = maker(tmp_path)(store(tmp_path, TEXTS), embedder)

    async def many() -> tuple[list[Found | Failure], Found | Failure]:
        together = await asyncio.gather(*(tool.search("parcel") for _ in range(5)))
        return together, await tool.search("parcel")

    together, later = asyncio.run(many())
    assert all(isinstance(one, Failure) for one in together)
    assert isinstance(later, Found)
    assert ingests(embedder) == 2


class Slow(WordEmbedder):
    async def embed(self, texts: Sequence[str]) -> Embedded | Failure:
        found = await super().embed(texts)
        await asyncio.sleep(0.05)
        return found


def test_one_who_is_cancelled_leaves_the_index_to_the_next(tmp_path: Path):
    embedder = Slow()
    tool = maker(tmp_path)(store(tmp_path, TEXTS), embedder)

    async def cut() -> Found | Failure:
        first = asyncio.create_task(tool.search("parcel"))
        while not embedder.calls:
            await asyncio.sleep(0)
        second = asyncio.create_task(tool.search("parcel"))
        await asyncio.sleep(0)
        first.cancel()
        brought = await second
        assert first.cancelled()
        return brought

    assert isinstance(asyncio.run(cut()), Found)
    assert ingests(embedder) == 2


def test_what_cannot_be_embedded_is_nobodys_fault_who_asked(tmp_path: Path):
    embedder = WordEmbedder()
    embedder.fail(Failure("context", "candidate", "too long"))
    brought = failure(maker(tmp_path)(store(tmp_path, TEXTS), embedder))
    assert (brought.blame, brought.message) == ("infrastructure", "too long")


def test_a_query_is_said_to_cost_what_the_source_costs_until_it_is_taken_in(tmp_path: Path):
    class Dear(WordEmbedder):
        def worst_usd(self, texts: object) -> float:
            return float(len(texts))  # pyright: ignore[reportArgumentType] # a list

    embedder = Dear()
    tool = maker(tmp_path)(store(tmp_path, TEXTS), embedder)
    index, looking = tool._index, tool._looking
    assert asyncio.run(index.read()) is None
    # also the second: the first may be cancelled, or may be served from the journal
    assert [index.worst_usd("parcel", looking) for _ in range(2)] == [3.0, 3.0]
    found(tool, "parcel")
    assert index.worst_usd("parcel", looking) == 1.0
    other = maker(tmp_path)(store(tmp_path, TEXTS), embedder)
    assert asyncio.run(other._index.read()) is None
    assert other._index.worst_usd("parcel", looking) == 1.0, "it is kept already"


def test_a_model_that_changed_behind_its_name_is_told(tmp_path: Path):
    make, config = maker(tmp_path), store(tmp_path, TEXTS)
    found(make(config, WordEmbedder()), "parcel")
    other = WordEmbedder(size=8)
    other.known_by = WordEmbedder().known_by
    brought = failure(make(config, other))
    assert "vectors of 64 numbers, and the query one of 8" in brought.message


def test_a_source_that_is_not_there_is_a_failure_of_nobody_and_free(tmp_path: Path):
    config = store(tmp_path, TEXTS)
    for path in (tmp_path / "texts").iterdir():
        path.unlink()
    brought = failure(maker(tmp_path)(config, WordEmbedder()))
    assert (brought.kind, brought.blame, brought.usage) == ("harness", "infrastructure", FREE)
    assert "there is no text in" in brought.message
