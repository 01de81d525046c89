"""Indexes of documents and records: taken in once, searched by words, by meaning, or by both.

`Indexes` holds what a run has open; `Indexes.tool` makes a cheap look at one of them. What a config
lacks, and what of it is not done, is said before a run by `problems`, `unsupported`,
`needs_embedder` and `without_embedder`.
"""

from kept.tools.retrieval.check import needs_embedder, problems, unsupported, without_embedder
from kept.tools.retrieval.config import (
    STORES,
    Database,
    HierarchicalDocument,
    IndexConfig,
    VectorStore,
)
from kept.tools.retrieval.qdrant import unanswered
from kept.tools.retrieval.tool import Indexes, RetrievalTool

__all__ = [
    "STORES",
    "Database",
    "HierarchicalDocument",
    "IndexConfig",
    "Indexes",
    "RetrievalTool",
    "VectorStore",
    "needs_embedder",
    "problems",
    "unanswered",
    "unsupported",
    "without_embedder",
]
