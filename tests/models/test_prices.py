"""What calls cost: as listed, as declared, and the most they can."""

import asyncio

import pytest
from genai_prices import Usage as Listed
from genai_prices import calc_price

from kept.core.llm import Image, Message, ModelReply, ModelRequest
from kept.core.rollout import Usage
from kept.models.client import HttpModel
from kept.models.prices import FREE_OF_CHARGE, rates_of
from kept.models.protocol import Taken
from kept.models.providers import ModelConfig, Price
from kept.testing.server import ModelServer
from tests.models.worlds import ASK, model


@pytest.mark.parametrize(
    ("provider", "listed", "name"),
    [
        ("openai", "openai", "gpt-4o-mini"),
        ("openai", "openai", "gpt-5-mini"),
        ("azure_openai", "azure", "gpt-4o"),
        ("anthropic", "anthropic", "claude-3-5-haiku-latest"),
        ("anthropic", "anthropic", "claude-sonnet-4-5"),
    ],
)
@pytest.mark.parametrize("tokens", [1_000, 150_000, 250_000])
def test_a_reply_costs_what_the_list_says(provider: str, listed: str, name: str, tokens: int):
    rates = rates_of(ModelConfig(provider=provider, model=name))
    assert rates is not None
    taken = Taken(tokens, 777, cached=tokens // 3)
    usage = Listed(input_tokens=tokens, output_tokens=777, cache_read_tokens=tokens // 3)
    theirs = calc_price(usage, name, provider_id=listed)
    assert rates.usd(taken) == pytest.approx(float(theirs.total_price))


def test_what_is_written_to_a_cache_costs_more():
    rates = rates_of(ModelConfig(provider="anthropic", model="claude-sonnet-4-5"))
    assert rates is not None
    usage = Listed(input_tokens=9_000, output_tokens=5, cache_write_tokens=8_000)
    theirs = calc_price(usage, "claude-sonnet-4-5", provider_id="anthropic")
    assert rates.usd(Taken(9_000, 5, written=8_000)) == pytest.approx(float(theirs.total_price))


def test_a_model_that_nobody_lists_has_no_price():
    assert rates_of(ModelConfig(provider="openai", model="gpt-of-our-own")) is None
    far = "https://models.example.com/v1"
    assert rates_of(ModelConfig(provider="openai_compatible", model="x", base_url=far)) is None


def test_a_model_on_this_machine_costs_nothing_unless_it_is_a_way_to_one_that_does():
    near = "http://127.0.0.1:8000/v1"
    ours = ModelConfig(provider="openai_compatible", model="x", base_url=near)
    assert rates_of(ours) is FREE_OF_CHARGE
    gateway = rates_of(ModelConfig(provider="openai", model="gpt-4o", base_url=near))
    assert gateway is not None
    assert gateway.output.usd > 0


def test_a_declared_price_goes_before_the_list():
    price = Price(input=10, output=20)
    rates = rates_of(ModelConfig(provider="openai", model="gpt-4o-mini", price=price))
    assert rates is not None
    assert rates.usd(Taken(1_000_000, 1_000_000)) == pytest.approx(30)


@pytest.mark.parametrize("provider", ["openai", "anthropic", "openai_compatible"])
def test_a_reply_is_priced_and_never_above_its_worst_case(provider: str):
    with ModelServer([ModelReply("yes", Usage(1, 9, 50, tokens_cached=4))]) as server:
        made = model(provider, server, price=Price(input=1, output=10, cached=0.1))
        worst = made.worst_usd(ASK)
        reply = asyncio.run(made.complete(ASK))
    assert isinstance(reply, ModelReply)
    assert reply.usage.usd == pytest.approx((5 * 1 + 4 * 0.1 + 50 * 10) / 1e6)
    assert worst is not None
    assert reply.usage.usd <= worst < 0.001


def test_a_reply_of_a_server_that_counts_nothing_costs_the_most_that_it_can():
    with ModelServer([ModelReply("yes", Usage(calls=1))]) as server:
        made = model("openai_compatible", server, price=Price(input=1, output=10))
        reply = asyncio.run(made.complete(ASK))
    assert isinstance(reply, ModelReply)
    assert reply.usage.usd == made.worst_usd(ASK)
    assert reply.usage.usd > 0.0005


def test_a_picture_counts_in_the_worst_case_whatever_its_size():
    made = HttpModel(ModelConfig(provider="openai", model="m", price=Price(input=1, output=1)))
    plain = made.worst_usd(ModelRequest((Message("user", "x"),)))
    small = Message("user", "x", images=(Image("image/png", b"tiny"),))
    pictured = made.worst_usd(ModelRequest((small,)))
    assert plain is not None and pictured is not None
    assert pictured > plain + 0.04
    large = Message("user", "x", images=(Image("image/png", b"pixel" * 400_000),))
    assert made.worst_usd(ModelRequest((large,))) == pytest.approx(pictured, rel=1e-3)
    usual = [made.usual_usd(ModelRequest((one,))) or 0.0 for one in (small, large)]
    assert usual[0] == pytest.approx(usual[1], rel=1e-3)
    coarse = Message("user", "x", images=(Image("image/png", b"tiny", "low"),))
    assert 0 < (made.usual_usd(ModelRequest((coarse,))) or 0.0) < usual[0]


def test_without_a_price_or_an_end_there_is_no_worst_case():
    unknown = HttpModel(ModelConfig(provider="openai", model="gpt-of-our-own"))
    assert unknown.worst_usd(ASK) is None
    price = Price(input=1, output=1)
    far = ModelConfig(provider="openai_compatible", model="x", base_url="http://h/v1", price=price)
    assert HttpModel(far).worst_usd(ModelRequest((Message("user", "x"),))) is None
    assert HttpModel(far).worst_usd(ASK) is not None
