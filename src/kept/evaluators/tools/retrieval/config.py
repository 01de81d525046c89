"""Config of a retrieval index, with the names of `agent.yaml`.

Settings of the ingestion are separate from settings of a query: the first make another index, the
second another search of the same one. None means that the file does not set a value.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

Mode = Literal["semantic", "keyword", "exact", "hybrid"]
Strategy = Literal["structure", "token"]

IN_MEMORY = "in-memory"
QDRANT = "qdrant"

STORES = (IN_MEMORY, QDRANT)
"""Stores that an index can be kept in."""

SIZE = 512
"""Default size of a passage of a vectorstore, in tokens."""
OVERLAP = 50


@dataclass(frozen=True, slots=True, kw_only=True)
class Database:
    """Store of vectors."""

    provider: str = IN_MEMORY
    connection_string: str | None = None
    options: Mapping[str, object] = field(default_factory=dict[str, object])
    """Other keys of the section."""


@dataclass(frozen=True, slots=True, kw_only=True)
class VectorStore:
    """Tool of `type: vectorstore`: semantic search of texts or records."""

    name: str
    description: str = ""
    source: str
    folder: Path = field(default_factory=Path.cwd)
    """Base folder of a relative source."""
    vector_field: str | Sequence[str] | None = None
    """Fields of a record to search; by default all."""
    meta_fields: Sequence[str] | None = None
    """Fields of a record to show with a passage."""
    chunk_size: int | None = None
    """Maximum tokens of a passage; 512 by default."""
    chunk_overlap: int | None = None
    """Tokens repeated from the passage before; by default 50, or a tenth of the size if less."""
    embedding_model: str | None = None
    embedding_dimensions: int | None = None
    database: Database | None = None
    top_k: int = 5
    min_similarity_score: float | None = None
    record_path: str | None = None
    """Path of the records in a JSON file, as `data.items`."""
    record_prefix: str | None = None
    meta_prefix: str | None = None
    id_field: str | None = None
    field_separator: str = "\n"
    delimiter: str | None = None
    """Delimiter of a CSV file; by default a comma, and a tab in `.tsv`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HierarchicalDocument:
    """Tool of `type: hierarchical_document`: passages by heading, searched in three ways."""

    name: str
    description: str = ""
    source: str
    folder: Path = field(default_factory=Path.cwd)
    """Base folder of a relative source."""
    chunking_strategy: Strategy = "structure"
    chunking: Strategy | None = None
    """Alias of `chunking_strategy`."""
    max_chunk_tokens: int = 800
    chunk_overlap: int = 50
    max_subsection_depth: int | None = None
    """Deepest level of headings that begin a passage of their own."""
    document_domain: str | None = None
    search_mode: Mode = "hybrid"
    top_k: int = 10
    min_score: float | None = None
    semantic_weight: float = 0.5
    keyword_weight: float = 0.3
    exact_weight: float = 0.2
    rrf_k: int = 60
    contextual_embeddings: bool | None = None
    context_max_tokens: int | None = None
    context_concurrency: int | None = None
    context_model: object = None
    extract_definitions: bool | None = None
    extract_cross_references: bool | None = None
    enable_reranking: bool | None = None
    reranker_model: object = None
    embedding_model: str | None = None
    embedding_dimensions: int | None = None
    database: Database | None = None
    keyword_index: Database | None = None


IndexConfig = VectorStore | HierarchicalDocument


@dataclass(frozen=True, slots=True, kw_only=True)
class Records:
    """Settings for reading records from JSON, JSON lines and CSV files."""

    fields: tuple[str, ...] = ()
    meta_fields: tuple[str, ...] = ()
    path: tuple[str, ...] = ()
    prefix: str = ""
    meta_prefix: str = ""
    id_field: str | None = None
    separator: str = "\n"
    delimiter: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Ingestion:
    """Settings that define an index, besides the content of its source."""

    source: Path
    strategy: Strategy
    size: int
    overlap: int
    depth: int = 6
    records: Records | None = None
    """None if such files are read as plain text."""
    database: Database = Database()


@dataclass(frozen=True, slots=True, kw_only=True)
class Looking:
    """Settings of one query; may differ between candidates."""

    mode: Mode
    top_k: int
    min_score: float | None = None
    semantic_weight: float = 0.0
    keyword_weight: float = 0.0
    exact_weight: float = 0.0
    rrf_k: int = 60


def ingestion_of(config: IndexConfig) -> Ingestion:
    """Ingestion settings of a config."""
    source = config.folder / Path(config.source).expanduser()
    if isinstance(config, HierarchicalDocument):
        return Ingestion(
            source=source,
            strategy=config.chunking or config.chunking_strategy,
            size=config.max_chunk_tokens,
            overlap=config.chunk_overlap,
            depth=config.max_subsection_depth or 6,
            database=_placed(config),
        )
    fields = config.vector_field or ()
    records = Records(
        fields=(fields,) if isinstance(fields, str) else tuple(fields),
        meta_fields=tuple(config.meta_fields or ()),
        path=tuple(filter(None, (config.record_path or "").split("."))),
        prefix=config.record_prefix or "",
        meta_prefix=config.meta_prefix or "",
        id_field=config.id_field,
        separator=config.field_separator,
        delimiter=config.delimiter,
    )
    size = SIZE if config.chunk_size is None else config.chunk_size
    overlap = config.chunk_overlap
    return Ingestion(
        source=source,
        strategy="token",
        size=size,
        overlap=min(OVERLAP, size // 10) if overlap is None else overlap,
        records=records,
        database=_placed(config),
    )


def _placed(config: IndexConfig) -> Database:
    """Database with a local path relative to the folder of the config."""
    database = config.database or Database()
    options = dict(database.options)
    place = database.connection_string
    if isinstance(options.get("path"), str):
        options["path"] = str(config.folder / str(options["path"]))
    if place is not None and "://" not in place and not place.startswith(":"):
        place = str(config.folder / place)
    return Database(provider=database.provider, connection_string=place, options=options)


def looking_of(config: IndexConfig, *, embeds: bool) -> Looking:
    """Query settings of a config; a vectorstore without embedder is searched by words."""
    if isinstance(config, VectorStore):
        if not embeds:
            # `min_similarity_score` does not apply to BM25; `without_embedder` reports it
            return Looking(mode="keyword", top_k=config.top_k)
        return Looking(mode="semantic", top_k=config.top_k, min_score=config.min_similarity_score)
    return Looking(
        mode=config.search_mode,
        top_k=config.top_k,
        min_score=config.min_score,
        semantic_weight=config.semantic_weight,
        keyword_weight=config.keyword_weight,
        exact_weight=config.exact_weight,
        rrf_k=config.rrf_k,
    )
