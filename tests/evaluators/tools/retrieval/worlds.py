"""Small sources, and tools that look at them."""

import asyncio
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from kept.core.llm import ToolAnswer
from kept.core.ports import Embedder
from kept.core.rollout import Failure
from kept.engine.replay import JournalScope
from kept.evaluators.tools.retrieval.config import HierarchicalDocument, VectorStore
from kept.evaluators.tools.retrieval.index import Found
from kept.evaluators.tools.retrieval.tool import Indexes, RetrievalTool
from kept.testing import MemoryJournal

HANDBOOK = """\
# Handbook

Words before all else.

## Returns

A parcel may be returned within thirty days.

### Refunds

Money comes back within a week. Error E-1042 means that the card has expired.

## Shipping

Parcels leave on the day of the order.
"""


def handbook(folder: Path, **given: Any) -> HierarchicalDocument:
    (folder / "handbook.md").write_text(HANDBOOK)
    return HierarchicalDocument(name="look", source="handbook.md", folder=folder, **given)


def store(folder: Path, texts: Mapping[str, str], **given: Any) -> VectorStore:
    """One file a text."""
    source = folder / "texts"
    source.mkdir(exist_ok=True)
    for name, text in texts.items():
        (source / name).write_text(text)
    return VectorStore(name="look", source="texts", folder=folder, **given)


def scope(journal: MemoryJournal | None = None) -> JournalScope:
    return JournalScope(journal or MemoryJournal(), "rollout/a/measure/b/0")


def use(tool: RetrievalTool, query: object, journal: MemoryJournal | None = None) -> ToolAnswer:
    answer = asyncio.run(tool.use({"query": query}, scope(journal)))
    assert isinstance(answer, ToolAnswer), answer
    return answer


def found(tool: RetrievalTool, query: str) -> list[tuple[str, float]]:
    """What a query brings: the first words of passages, and their scores."""
    brought = asyncio.run(tool.search(query))
    assert isinstance(brought, Found), brought
    return [(passage.chunk.text, passage.score) for passage in brought.passages]


def failure(tool: RetrievalTool, query: str = "parcel") -> Failure:
    brought = asyncio.run(tool.search(query))
    assert isinstance(brought, Failure), brought
    return brought


Make = Callable[..., RetrievalTool]


def maker(folder: Path) -> Make:
    """Tools whose indexes are kept in a folder, each as of a run of its own."""

    def make(
        config: VectorStore | HierarchicalDocument,
        embedder: Embedder | None = None,
        *,
        force: bool = False,
    ) -> RetrievalTool:
        return Indexes(folder / "cache", force=force).tool(config, embedder)

    return make
