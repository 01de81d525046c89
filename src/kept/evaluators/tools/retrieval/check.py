"""What can be said of an index before a run: what it lacks, what it will not do."""

from importlib.util import find_spec

from kept.evaluators.tools.retrieval.config import (
    IN_MEMORY,
    QDRANT,
    Database,
    HierarchicalDocument,
    IndexConfig,
    VectorStore,
    ingestion_of,
)
from kept.evaluators.tools.retrieval.qdrant import OPTIONS
from kept.settings import install_command

CLOSE = 1e-6
"""How far weights may be from 1 in all."""


def needs_embedder(config: IndexConfig) -> bool:
    """Whether it is searched by meaning, alone or with other ways."""
    return isinstance(config, VectorStore) or config.search_mode in ("semantic", "hybrid")


def without_embedder(config: IndexConfig) -> str | None:
    """What becomes of an index that needs an embedder and has none; None where it cannot be run.

    A vectorstore names no way to be searched, so that words will do; a document that says
    `semantic` or `hybrid` would be searched in another way than it says.
    """
    if not isinstance(config, VectorStore):
        return None
    limited = config.min_similarity_score is not None
    left_out = ", and `min_similarity_score` is not used" if limited else ""
    return "searched by words (BM25), not by meaning, for want of an embedding provider" + left_out


def unsupported(config: IndexConfig) -> list[str]:
    """What the config asks for and is not done, each by its name; the run goes on without."""
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
    """Why an index cannot be run, all reasons at once; whether its source is there is not asked."""
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
