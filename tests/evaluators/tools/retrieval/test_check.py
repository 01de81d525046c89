"""What is said of an index before a run."""

from pathlib import Path
from typing import Any

import pytest

from kept.errors import SetupError
from kept.evaluators.tools.retrieval.config import (
    Database,
    HierarchicalDocument,
    VectorStore,
    ingestion_of,
)
from kept.evaluators.tools.retrieval.tool import (
    needs_embedder,
    problems,
    unsupported,
    without_embedder,
)
from kept.testing import WordEmbedder
from tests.evaluators.tools.retrieval.worlds import maker


def document(**given: Any) -> HierarchicalDocument:
    return HierarchicalDocument(name="rules", source="rules.md", **given)


def vectorstore(**given: Any) -> VectorStore:
    return VectorStore(name="faq", source="faq.json", **given)


def test_who_needs_an_embedder_and_what_becomes_of_it_without():
    assert needs_embedder(vectorstore())
    assert needs_embedder(document())
    assert needs_embedder(document(search_mode="semantic"))
    assert not needs_embedder(document(search_mode="keyword"))
    assert without_embedder(document()) is None
    said = without_embedder(vectorstore(min_similarity_score=0.3))
    assert said is not None
    assert "searched by words (BM25), not by meaning" in said
    assert "`min_similarity_score` is not used" in said


@pytest.mark.parametrize(
    ("given", "name"),
    [
        ({"contextual_embeddings": True}, "contextual_embeddings"),
        ({"enable_reranking": True, "reranker_model": "x"}, "enable_reranking"),
        ({"extract_definitions": True}, "extract_definitions"),
        ({"extract_cross_references": True}, "extract_cross_references"),
        ({"document_domain": "us_legislative"}, "document_domain: us_legislative"),
    ],
)
def test_what_is_not_run_is_named(given: dict[str, Any], name: str):
    [said] = unsupported(document(**given))
    assert said.startswith(f"`{name}` is not ")


def test_what_is_run_or_turned_off_is_not_named():
    off = {"contextual_embeddings": False, "enable_reranking": False, "document_domain": "none"}
    assert unsupported(document(**off)) == []
    assert unsupported(vectorstore()) == []


@pytest.mark.parametrize(
    ("config", "problem"),
    [
        (vectorstore(database=Database(provider="pinecone")), "`database.provider: pinecone`"),
        (document(database=Database(provider="postgres")), "`database.provider: postgres`"),
        (document(keyword_index=Database(provider="opensearch")), "provider: opensearch`"),
        (
            vectorstore(database=Database(provider="qdrant", options={"shard": 1})),
            "`database.shard` is not known of qdrant; there is connection_string, url",
        ),
        (vectorstore(chunk_size=10, chunk_overlap=10), "must be below `chunk_size`, 10"),
        (document(max_chunk_tokens=50, chunk_overlap=50), "must be below `max_chunk_tokens`, 50"),
        (vectorstore(chunk_size=0), "`chunk_size` is 0"),
        (vectorstore(top_k=0), "`top_k` is 0"),
        (vectorstore(delimiter="||"), "`delimiter` is one character"),
        (document(rrf_k=0), "`rrf_k` is 0"),
        (document(max_subsection_depth=0), "`max_subsection_depth`"),
        (document(semantic_weight=0.9), "come to 1.4, not to 1"),
        (document(semantic_weight=-0.5, keyword_weight=1.3), "`semantic_weight` is -0.5"),
    ],
)
def test_what_cannot_be_run_is_said_in_words(
    tmp_path: Path, config: VectorStore | HierarchicalDocument, problem: str
):
    [said] = problems(config)
    assert problem in said
    with pytest.raises(SetupError, match=f"tool `{config.name}`: "):
        maker(tmp_path)(config, WordEmbedder())


def test_several_problems_are_told_at_once():
    config = document(top_k=0, rrf_k=0, database=Database(provider="chroma"))
    assert len(problems(config)) == 3


def test_what_a_file_leaves_out_or_says_nothing_of_has_its_usual_value():
    said = dict.fromkeys(("vector_field", "meta_fields", "chunk_size", "chunk_overlap", "database"))
    assert ingestion_of(vectorstore(**said)) == ingestion_of(vectorstore())
    usual = ingestion_of(vectorstore())
    assert (usual.size, usual.overlap, usual.strategy) == (512, 50, "token")
    assert ingestion_of(vectorstore(chunk_size=20)).overlap == 2, "a tenth, where 50 is too much"
    assert ingestion_of(document(chunking="token")).strategy == "token"


def test_weights_matter_to_a_hybrid_search_alone():
    assert problems(document(semantic_weight=0.9, search_mode="keyword")) == []
    assert problems(document(semantic_weight=0.1, keyword_weight=0.2, exact_weight=0.7)) == []
