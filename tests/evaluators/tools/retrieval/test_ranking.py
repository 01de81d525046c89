"""Which passages answer a query, and in which order: numbers that can be worked out by hand."""

from pathlib import Path

import pytest

from kept.evaluators.tools.retrieval.config import HierarchicalDocument, Looking, VectorStore
from kept.evaluators.tools.retrieval.ranking import (
    Words,
    chosen,
    cosines,
    exact_terms,
    fused,
    ordered,
    ranks,
    shares,
    unit,
)
from kept.models.embeddings import HttpEmbedder
from kept.models.providers import ModelConfig
from kept.testing import WordEmbedder
from kept.testing.server import ModelServer
from tests.evaluators.tools.retrieval.worlds import found, handbook, maker, store

TEXTS = {
    "a.txt": "refund deadline",
    "b.txt": "money goes home, one refund of many",
    "c.txt": "tea",
}
"""By words `refund deadline?` finds a, then b; by the vectors below c, then b, then a."""

VECTORS = {
    "refund deadline": (1.0, 0.0),
    "money goes home, one refund of many": (0.8, 0.6),
    "tea": (0.6, 0.8),
    "refund deadline?": (0.6, 0.8),
}


def hybrid(folder: Path, semantic: float, keyword: float, exact: float = 0.0) -> list[str]:
    store(folder, TEXTS)
    config = HierarchicalDocument(
        name="look",
        source="texts",
        folder=folder,
        semantic_weight=semantic,
        keyword_weight=keyword,
        exact_weight=exact,
    )
    tool = maker(folder)(config, WordEmbedder(VECTORS))
    return [text.split()[0] for text, _ in found(tool, "refund deadline?")]


def test_words_or_meaning_come_first_as_their_weights_say(tmp_path: Path):
    # 0.2 x 61/63 + 0.8 = 0.994 for a, 61/62 = 0.984 for b, 0.2 for c
    assert hybrid(tmp_path, 0.2, 0.8) == ["refund", "money", "tea"]
    # 0.8 x 61/63 + 0.2 = 0.975 for a, 61/62 = 0.984 for b, 0.8 for c
    assert hybrid(tmp_path, 0.8, 0.2) == ["money", "refund", "tea"]


def test_ranks_are_fused_as_the_formula_says():
    meaning = {0: 0.6, 1: 0.96, 2: 1.0}  # ranks 3, 2, 1
    words = {0: 2.5, 1: 0.5}  # ranks 1, 2
    scores = fused(((0.25, meaning), (0.75, words)), 60)
    assert scores[0] == pytest.approx(0.25 * 61 / 63 + 0.75 * 61 / 61, abs=1e-6)
    assert scores[1] == pytest.approx(0.25 * 61 / 62 + 0.75 * 61 / 62, abs=1e-6)
    assert scores[2] == pytest.approx(0.25, abs=1e-6)
    assert fused(((1.0, words), (3.0, words)), 1)[0] == 1.0, "first in all of them"


def test_a_small_k_lets_the_first_places_count_more():
    # 0 is first in the weightier one only; 1 is second in both
    parts = ((0.7, {0: 1.0, 1: 0.9}), (0.3, {2: 1.0, 1: 0.9}))
    assert ordered(fused(parts, 1))[0] == (0, 0.7)
    assert ordered(fused(parts, 60))[0] == (1, pytest.approx(61 / 62, abs=1e-6))


def test_a_weight_of_nothing_has_no_say():
    assert fused(((1.0, {0: 1.0}), (0.0, {5: 1.0})), 60) == {0: 1.0}


def test_what_is_equally_good_has_the_same_rank_and_the_order_of_the_source():
    scores = {3: 0.5, 1: 0.5, 2: 0.9, 0: 0.1}
    assert ranks(scores) == {2: 1, 1: 2, 3: 2, 0: 4}
    assert [n for n, _ in ordered(scores)] == [2, 1, 3, 0]


def test_only_the_nearest_have_a_cosine_and_equal_ones_the_order_of_the_source():
    matrix = unit([(0.0, 2.0), (3.0, 0.0), (0.0, 0.0), (0.0, 5.0), (1.0, 1.0)])
    assert list(cosines(matrix, (0.0, 7.0), 3).items()) == [(0, 1.0), (3, 1.0), (4, 0.707107)]
    assert cosines(matrix, (0.0, 0.0), 2) == {0: 0.0, 1: 0.0}


def test_only_the_best_are_told_and_only_those_that_are_good_enough():
    scores = {0: 0.2, 1: 0.9, 2: 0.5}
    assert chosen(scores, Looking(mode="semantic", top_k=2)) == [(1, 0.9), (2, 0.5)]
    assert chosen(scores, Looking(mode="semantic", top_k=9, min_score=0.5)) == [(1, 0.9), (2, 0.5)]
    assert chosen({0: 0.0}, Looking(mode="semantic", top_k=1, min_score=0.0)) == [(0, 0.0)]


def test_words_are_found_in_any_case_and_only_whole():
    words = Words(["The Parcel left", "parcels", "...", "other"])
    assert list(words.keyword("PARCEL?")) == [0]
    assert words.keyword("...") == {}
    assert words.keyword("unknown") == {}


def test_a_word_that_few_passages_have_weighs_more():
    words = Words(["the tea", "the ink", "the pen"])
    scores = words.keyword("the ink")
    assert ordered(scores)[0][0] == 1
    assert scores[0] == scores[2]
    assert shares(scores)[1] == 1.0


@pytest.mark.parametrize(
    ("query", "terms"),
    [
        ("return a parcel?", ["return a parcel"]),
        (
            'what does "card expired" mean for E-1042',
            ['what does "card expired" mean for e-1042', "card expired", "e-1042"],
        ),
        ("max_tokens", ["max_tokens"]),
        ("Section 4.2, please.", ["section 4.2, please", "4.2"]),
        ("   ", []),
    ],
)
def test_names_and_quotes_are_looked_for_to_the_letter(query: str, terms: list[str]):
    assert exact_terms(query) == terms


def test_a_name_is_found_only_as_a_whole():
    words = Words(["Error E-1042 here", "Error E-10421 here", "XE-1042"])
    assert words.exact("what is e-1042") == {0: 1.0}


def test_a_name_brings_up_its_passage(tmp_path: Path):
    config = handbook(tmp_path, semantic_weight=0.0, keyword_weight=0.0, exact_weight=1.0)
    tool = maker(tmp_path)(config, WordEmbedder())
    assert [text.split()[0] for text, _ in found(tool, "and E-1042?")] == ["Money"]


def test_a_search_to_the_letter_embeds_nothing(tmp_path: Path):
    embedder = WordEmbedder()
    tool = maker(tmp_path)(handbook(tmp_path, search_mode="exact"), embedder)
    assert found(tool, "the card has expired") == found(tool, "E-1042")
    assert [score for _, score in found(tool, "E-1042")] == [1.0]
    assert found(tool, "expired card") == []
    assert embedder.calls == []


def test_a_provider_of_vectors_finds_what_shares_words(tmp_path: Path):
    with ModelServer() as server:
        config = ModelConfig(provider="openai_compatible", model="m", base_url=server.v1)
        tool = maker(tmp_path)(handbook(tmp_path, search_mode="semantic"), HttpEmbedder(config))
        scores = found(tool, "a parcel may be returned")
    assert scores[0][0].startswith("A parcel may be returned")
    assert len(scores) == 4
    assert scores == sorted(scores, key=lambda item: -item[1])


def test_a_search_by_words_tells_shares_of_the_best(tmp_path: Path):
    config = handbook(tmp_path, search_mode="keyword")
    scores = [score for _, score in found(maker(tmp_path)(config), "parcel within days")]
    assert scores[0] == 1.0
    assert 0 < scores[-1] < 1
    half = handbook(tmp_path, search_mode="keyword", min_score=0.99)
    assert len(found(maker(tmp_path)(half), "parcel within days")) == 1


def test_headings_are_searched_with_what_stands_below_them(tmp_path: Path):
    config = handbook(tmp_path, search_mode="keyword", top_k=1)
    assert found(maker(tmp_path)(config), "shipping")[0][0].startswith("Parcels leave")


def test_a_vectorstore_is_searched_by_cosine(tmp_path: Path):
    config: VectorStore = store(tmp_path, TEXTS, min_similarity_score=0.7)
    assert found(maker(tmp_path)(config, WordEmbedder(VECTORS)), "refund deadline?") == [
        ("tea", 1.0),
        ("money goes home, one refund of many", 0.96),
    ]


def test_without_an_embedder_a_vectorstore_is_searched_by_words(tmp_path: Path):
    config = store(tmp_path, TEXTS, min_similarity_score=0.999, top_k=2)
    assert [text for text, _ in found(maker(tmp_path)(config), "refund deadline?")] == [
        TEXTS["a.txt"],
        TEXTS["b.txt"],
    ]
