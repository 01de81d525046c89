"""How much a model can read: as declared, as listed, or not known."""

import pytest

from kept.models.context_window import room_of, tokens_of, window_of
from kept.models.providers import ModelConfig


def test_a_window_is_the_declared_one_else_the_listed_one():
    listed = window_of(ModelConfig(provider="anthropic", model="claude-sonnet-4-5"))
    assert listed is not None
    assert listed >= 200_000
    own = ModelConfig(provider="anthropic", model="claude-sonnet-4-5", context_window=9_000)
    assert window_of(own) == 9_000
    assert window_of(ModelConfig(provider="local", model="smollm2")) == 2048
    assert window_of(ModelConfig(provider="openai", model="nobody-knows")) is None
    assert window_of(ModelConfig(provider="openai_compatible", model="m")) is None


@pytest.mark.parametrize(
    ("window", "most", "room"),
    [(10_000, None, 5_904), (10_000, 1_000, 9_000), (4_000, None, 2_000)],
)
def test_a_reply_has_its_part_of_the_window(window: int, most: int | None, room: int):
    config = ModelConfig(
        provider="openai_compatible", model="m", context_window=window, max_tokens=most
    )
    assert room_of(config) == room
    assert room_of(ModelConfig(provider="openai_compatible", model="m")) is None


def test_tokens_are_rather_too_many_than_too_few():
    english = "The quick brown fox jumps over the lazy dog. " * 20
    assert tokens_of(english) >= len(english.split())
    assert tokens_of("漢字かな") >= 4
    assert tokens_of("") == 0
