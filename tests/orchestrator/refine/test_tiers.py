"""Pairs of models, and how flags spell them."""

import pytest

from kept.errors import SetupError
from kept.orchestrator.refine.proposer import ModelPair, Tiers, parse_pair


@pytest.mark.parametrize(
    ("text", "pair"),
    [
        ("openai/gpt-5-mini:deepseek/chat-v3.1", ("openai/gpt-5-mini", "deepseek/chat-v3.1")),
        (":worker", ("", "worker")),
        ("manager:", ("manager", "")),
        (":", ("", "")),
        ("manager=ollama/llama3:8b,worker=ollama/qwen:7b", ("ollama/llama3:8b", "ollama/qwen:7b")),
        ("worker=ollama/qwen:7b", ("", "ollama/qwen:7b")),
        ("manager=a,worker=", ("a", "")),
    ],
)
def test_a_pair_is_read_as_it_is_spelled(text: str, pair: tuple[str, str]):
    assert parse_pair(text, "--tier-low") == pair


@pytest.mark.parametrize("text", ["ollama/llama3:8b:ollama/qwen:7b", "a:b:c", "llama3:8b:x"])
def test_a_pair_that_can_be_read_in_two_ways_is_refused_with_the_way_out(text: str):
    with pytest.raises(SetupError) as told:
        parse_pair(text, "--tier-low")
    assert "several ways" in told.value.message
    assert "manager=...,worker=..." in (told.value.hint or "")


@pytest.mark.parametrize("text", ["just-one", "manager=a,boss=b", "manager=a,manager=b"])
def test_what_is_no_pair_is_refused(text: str):
    with pytest.raises(SetupError):
        parse_pair(text, "--tier-mid")


def test_an_empty_side_is_the_seeds():
    seed = ModelPair("m", "w")
    assert ModelPair("", "").over(seed) == seed
    assert ModelPair("x", "").over(seed) == ("x", "w")
    assert ModelPair("", "y").over(seed) == ("m", "y")


def test_tiers_without_any_model_are_trivial():
    assert Tiers().trivial
    assert not Tiers(mid=ModelPair("", "w")).trivial
    assert Tiers(mid=ModelPair("", "w")).of("mid") == ("", "w")
