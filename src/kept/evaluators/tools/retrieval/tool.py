"""Indexes as tools: a model asks, and is told numbered passages with where they stand."""

import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path

from kept.core.model import ToolOffer
from kept.core.ports import Embedder, Scope
from kept.core.rollout import Failure
from kept.core.tool import ToolAnswer
from kept.errors import SetupError
from kept.evaluators.tools.retrieval.cache import IndexCache
from kept.evaluators.tools.retrieval.check import needs_embedder, problems, without_embedder
from kept.evaluators.tools.retrieval.config import (
    IN_MEMORY,
    IndexConfig,
    Ingestion,
    ingestion_of,
    looking_of,
)
from kept.evaluators.tools.retrieval.index import Found, Index, Passage
from kept.evaluators.tools.retrieval.qdrant import Qdrant
from kept.settings import cache_home

PARAMETERS: Mapping[str, object] = {
    "type": "object",
    "properties": {
        "query": {"type": "string", "description": "what to look for, in words"},
    },
    "required": ["query"],
    "additionalProperties": False,
}


class RetrievalTool:
    """One look at an index: its name, its description and its query-time settings."""

    def __init__(self, config: IndexConfig, index: Index, *, embeds: bool) -> None:
        self._index = index
        self._looking = looking_of(config, embeds=embeds)
        self.offer = ToolOffer(config.name, config.description, PARAMETERS)

    async def use(self, arguments: Mapping[str, object], scope: Scope) -> ToolAnswer | Failure:
        """The passages that answer a query; what is wrong with the query is an answer."""
        query = arguments.get("query")
        known_by: dict[str, object] = {"tool": self.offer.name, "arguments": dict(arguments)}
        wrong = _wrong(arguments)
        if wrong or not isinstance(query, str):

            async def refuse() -> ToolAnswer:
                return ToolAnswer(wrong, wrong=True)

            return await scope.call(known_by, ToolAnswer, refuse, 0.0)
        failure = await self._index.read()
        if failure is not None:
            return failure
        known_by |= {"index": self._index.key, "looking": asdict(self._looking)}
        worst = self._index.worst_usd(query, self._looking)
        return await scope.call(known_by, ToolAnswer, lambda: self._answer(query), worst)

    async def search(self, query: str) -> Found | Failure:
        """The same without a record: what is found, and how well it answers."""
        return await self._index.search(query, self._looking)

    async def _answer(self, query: str) -> ToolAnswer | Failure:
        began = time.monotonic()
        found = await self.search(query)
        seconds = round(time.monotonic() - began, 4)
        if isinstance(found, Failure):
            if found.blame == "infrastructure":
                return found
            # its own words were too many, or not wanted: it may find others
            return ToolAnswer(found.message, wrong=True, usage=found.usage, seconds=seconds)
        context = tuple(passage.chunk.whole for passage in found.passages)
        return ToolAnswer(told(found.passages), False, context, found.usage, seconds)


class Indexes:
    """The indexes of one run: each is taken in once, and shared by all who look at it."""

    def __init__(self, folder: Path | None = None, *, force: bool = False) -> None:
        """Kept in a folder of the user's cache by default; `force` takes all in anew, once."""
        self._folder = folder or cache_home() / "indexes"
        self._force = force
        self._indexes: dict[tuple[str, str], Index] = {}
        self._databases: dict[str, Qdrant] = {}

    def tool(self, config: IndexConfig, embedder: Embedder | None = None) -> RetrievalTool:
        """A tool of a config; a `SetupError` where it cannot be. Reads and embeds nothing."""
        wrong = problems(config)
        if wrong:
            raise SetupError(f"tool `{config.name}`: {'; '.join(wrong)}")
        embedder = embedder if needs_embedder(config) else None
        if embedder is None and needs_embedder(config) and without_embedder(config) is None:
            raise SetupError(
                f"tool `{config.name}` is searched by meaning, which needs an embedding provider",
                hint="name an `embedding_provider`, or set `search_mode: keyword`",
            )
        index = self._index(ingestion_of(config), embedder)
        return RetrievalTool(config, index, embeds=embedder is not None)

    async def close(self) -> None:
        """Let go of what was opened."""
        databases = list(self._databases.values())
        self._indexes.clear()
        self._databases.clear()
        for database in databases:
            await database.close()

    def _index(self, how: Ingestion, embedder: Embedder | None) -> Index:
        known = (repr(how), embedder.known_by if embedder else "")
        if known not in self._indexes:
            cache = IndexCache(self._folder)
            base = self._base(how) if embedder else None
            self._indexes[known] = Index(how, embedder, cache, base, force=self._force)
        return self._indexes[known]

    def _base(self, how: Ingestion) -> Qdrant | None:
        """One client for a place: a folder lets in no second one."""
        if how.database.provider == IN_MEMORY:
            return None
        made = Qdrant(how.database, self._folder / "qdrant")
        return self._databases.setdefault(made.where, made)


def told(passages: Sequence[Passage]) -> str:
    """What a model is told of passages."""
    if not passages:
        return "nothing was found"
    return "\n\n".join(_numbered(n, passage) for n, passage in enumerate(passages, 1))


def _numbered(number: int, passage: Passage) -> str:
    chunk = passage.chunk
    place = " > ".join((chunk.source, *chunk.path))
    meta = "".join(f"\n{name}: {value}" for name, value in chunk.meta.items())
    return f"[{number}] {place}{meta}\n{chunk.text}"


def _wrong(arguments: Mapping[str, object]) -> str:
    """What is wrong with arguments; empty when nothing is."""
    query = arguments.get("query")
    strange = [name for name in arguments if name != "query"]
    if strange:
        return f"there is no argument `{strange[0]}`; there is `query`, a text"
    if not isinstance(query, str):
        return "give `query`, a text that says what to look for"
    return "" if query.strip() else "`query` is empty: say what to look for"
