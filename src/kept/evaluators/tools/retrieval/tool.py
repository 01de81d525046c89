"""Retrieval tool: numbered passages with their location, and checks of its config.

Checks run before the run and report what an index lacks or does not support.
"""

import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from importlib.util import find_spec
from pathlib import Path

from kept.core.llm import ToolAnswer, ToolOffer
from kept.core.ports import Embedder, Scope
from kept.core.rollout import Failure
from kept.errors import SetupError
from kept.evaluators.tools.retrieval.config import (
    IN_MEMORY,
    QDRANT,
    Database,
    HierarchicalDocument,
    IndexConfig,
    Ingestion,
    VectorStore,
    ingestion_of,
    looking_of,
)
from kept.evaluators.tools.retrieval.index import Found, Index, IndexCache, Passage
from kept.evaluators.tools.retrieval.ranking import OPTIONS, Qdrant
from kept.settings import cache_home, install_command

CLOSE = 1e-6
"""Tolerance of the sum of weights around 1."""


def needs_embedder(config: IndexConfig) -> bool:
    """True if the search is semantic, alone or as part of a hybrid."""
    return isinstance(config, VectorStore) or config.search_mode in ("semantic", "hybrid")


def without_embedder(config: IndexConfig) -> str | None:
    """Warning about an index without the embedder that it needs; None if it cannot run.

    A vectorstore names no search mode, so it falls back to words. A document that says `semantic`
    or `hybrid` cannot: it would be searched in another way than it says.
    """
    if not isinstance(config, VectorStore):
        return None
    limited = config.min_similarity_score is not None
    left_out = ", and `min_similarity_score` is not used" if limited else ""
    return "searched by words (BM25), not by meaning, for want of an embedding provider" + left_out


def unsupported(config: IndexConfig) -> list[str]:
    """Warnings about settings that are not supported; the run goes on without them."""
    if isinstance(config, VectorStore):
        return []
    told: list[str] = []
    if config.contextual_embeddings:
        told.append(
            "`contextual_embeddings` is not run: passages are embedded below their headings, and "
            "no model writes a context for them"
        )
    if config.enable_reranking:
        told.append("`enable_reranking` is not run: passages stay in the order of their scores")
    if config.extract_definitions:
        told.append("`extract_definitions` is not run: definitions are found as any other passage")
    if config.extract_cross_references:
        told.append("`extract_cross_references` is not run: references are not followed")
    if config.document_domain not in (None, "none"):
        told.append(
            f"`document_domain: {config.document_domain}` is not looked at: passages are cut by "
            "Markdown headings"
        )
    return told


def problems(config: IndexConfig) -> list[str]:
    """All reasons why an index cannot run; the source itself is not checked."""
    how = ingestion_of(config)
    found = _database("database", config.database, (QDRANT,))
    size = "max_chunk_tokens" if isinstance(config, HierarchicalDocument) else "chunk_size"
    if how.size < 1:
        found.append(f"`{size}` is {how.size}, and must be 1 at least")
    elif not 0 <= how.overlap < how.size:
        found.append(f"`chunk_overlap` is {how.overlap}, and must be below `{size}`, {how.size}")
    if config.top_k < 1:
        found.append(f"`top_k` is {config.top_k}, and must be 1 at least")
    if isinstance(config, HierarchicalDocument):
        found += _database("keyword_index", config.keyword_index, ())
        found += _weights(config)
        if config.rrf_k < 1:
            found.append(f"`rrf_k` is {config.rrf_k}, and must be 1 at least")
        if config.max_subsection_depth is not None and config.max_subsection_depth < 1:
            found.append("`max_subsection_depth` must be 1 at least")
    elif config.delimiter is not None and len(config.delimiter) != 1:
        found.append(f"`delimiter` is one character, not {config.delimiter!r}")
    by_words = not isinstance(config, HierarchicalDocument) or config.search_mode != "semantic"
    if by_words and find_spec("bm25s") is None:
        found.append(f"a search by words needs bm25s: {install_command('retrieval')}")
    return found


def _weights(config: HierarchicalDocument) -> list[str]:
    names = ("semantic_weight", "keyword_weight", "exact_weight")
    weights: dict[str, float] = {name: getattr(config, name) for name in names}
    found = [f"`{n}` is {w:g}, and must be 0 at least" for n, w in weights.items() if w < 0]
    total = sum(weights.values())
    if config.search_mode == "hybrid" and abs(total - 1) > CLOSE:
        found.append(f"the weights of `search_mode: hybrid` come to {total:g}, not to 1")
    return found


def _database(name: str, database: Database | None, known: tuple[str, ...]) -> list[str]:
    if database is None or database.provider == IN_MEMORY:
        return []
    provider = database.provider
    if provider not in known:
        there = " and ".join(f"`{one}`" for one in (IN_MEMORY, *known))
        return [f"`{name}.provider: {provider}` is not supported; there is {there}"]
    strange = [option for option in database.options if option not in OPTIONS]
    if strange:
        there = ", ".join(("connection_string", *OPTIONS))
        return [f"`{name}.{strange[0]}` is not known of {provider}; there is {there}"]
    if find_spec("qdrant_client") is None:
        return [f"`{name}.provider: {provider}` needs it: {install_command('retrieval')}"]
    return []


PARAMETERS: Mapping[str, object] = {
    "type": "object",
    "properties": {
        "query": {"type": "string", "description": "what to look for, in words"},
    },
    "required": ["query"],
    "additionalProperties": False,
}


class RetrievalTool:
    """Tool that searches an index, with its name, description and query settings."""

    def __init__(self, config: IndexConfig, index: Index, *, embeds: bool) -> None:
        self._index = index
        self._looking = looking_of(config, embeds=embeds)
        self.offer = ToolOffer(config.name, config.description, PARAMETERS)

    async def use(self, arguments: Mapping[str, object], scope: Scope) -> ToolAnswer | Failure:
        """Search the index; an invalid query returns an answer for the model."""
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
        """Search without the journal and return passages with scores."""
        return await self._index.search(query, self._looking)

    async def _answer(self, query: str) -> ToolAnswer | Failure:
        began = time.monotonic()
        found = await self.search(query)
        seconds = round(time.monotonic() - began, 4)
        if isinstance(found, Failure):
            if found.blame == "infrastructure":
                return found
            # the provider refused the query, as too long for example: the model may try another
            return ToolAnswer(found.message, wrong=True, usage=found.usage, seconds=seconds)
        context = tuple(passage.chunk.whole for passage in found.passages)
        return ToolAnswer(told(found.passages), False, context, found.usage, seconds)


class Indexes:
    """Indexes of one run: each is built once and shared by all tools on it."""

    def __init__(self, folder: Path | None = None, *, force: bool = False) -> None:
        """Use a folder of the user's cache by default; `force` builds every index again, once."""
        self._folder = folder or cache_home() / "indexes"
        self._force = force
        self._indexes: dict[tuple[str, str], Index] = {}
        self._databases: dict[str, Qdrant] = {}

    def tool(self, config: IndexConfig, embedder: Embedder | None = None) -> RetrievalTool:
        """Tool of a config; raises `SetupError` if it cannot run. Reads and embeds nothing."""
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
        """Close the databases."""
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
        """Client of a database, one per place: a folder allows no second one."""
        if how.database.provider == IN_MEMORY:
            return None
        made = Qdrant(how.database, self._folder / "qdrant")
        return self._databases.setdefault(made.where, made)


def told(passages: Sequence[Passage]) -> str:
    """Text of passages for the model."""
    if not passages:
        return "nothing was found"
    texts: list[str] = []
    for number, passage in enumerate(passages, 1):
        chunk = passage.chunk
        place = " > ".join((chunk.source, *chunk.path))
        meta = "".join(f"\n{name}: {value}" for name, value in chunk.meta.items())
        texts.append(f"[{number}] {place}{meta}\n{chunk.text}")
    return "\n\n".join(texts)


def _wrong(arguments: Mapping[str, object]) -> str:
    """Text that says what is wrong with arguments; empty if nothing is."""
    query = arguments.get("query")
    strange = [name for name in arguments if name != "query"]
    if strange:
        return f"there is no argument `{strange[0]}`; there is `query`, a text"
    if not isinstance(query, str):
        return "give `query`, a text that says what to look for"
    return "" if query.strip() else "`query` is empty: say what to look for"
