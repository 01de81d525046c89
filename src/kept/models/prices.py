"""Token prices from the bundled `genai-prices` data, and the maximum cost of a request.

Nothing is downloaded. A model that is neither listed nor has a declared price has no price; none is
invented.
"""

import logging
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Protocol, cast, runtime_checkable

from kept.core.llm import ModelRequest
from kept.core.ports import Model
from kept.models.protocol import Taken
from kept.models.providers import PROVIDERS, ModelConfig, Price, address, is_ours

MILLION = 1_000_000


@dataclass(frozen=True, slots=True)
class Rate:
    """US dollars per token; longer requests may have another rate."""

    usd: float
    tiers: tuple[tuple[int, float], ...] = ()
    """Start and rate of each tier, ascending; a rate applies to all tokens of a longer request."""

    def at(self, tokens_in: int) -> float:
        """Rate for a request of this length."""
        found = self.usd
        for start, usd in self.tiers:
            if tokens_in > start:
                found = usd
        return found

    @property
    def most(self) -> float:
        """Highest rate at any length."""
        return max(self.usd, *(usd for _, usd in self.tiers)) if self.tiers else self.usd


@dataclass(frozen=True, slots=True)
class Rates:
    """Rates of one model's tokens."""

    input: Rate
    output: Rate
    cached: Rate
    written: Rate

    def usd(self, taken: Taken) -> float:
        """Cost of a reply."""
        if self is FREE_OF_CHARGE:
            return 0.0
        size = taken.tokens_in
        # `tokens_in` includes cached and written tokens, which have their own rates
        fresh = size - taken.cached - taken.written
        return (
            fresh * self.input.at(size)
            + taken.cached * self.cached.at(size)
            + taken.written * self.written.at(size)
            + taken.tokens_out * self.output.at(size)
        )

    def worst(self, tokens_in: int, tokens_out: int) -> float:
        """Maximum cost of a request and a reply of at most these lengths."""
        if self is FREE_OF_CHARGE:
            return 0.0
        # any input token may turn out to be cached or written: use the highest rate
        dearest = max(self.input.most, self.cached.most, self.written.most)
        return tokens_in * dearest + tokens_out * self.output.most


_NOTHING = Rate(0.0)
FREE_OF_CHARGE = Rates(_NOTHING, _NOTHING, _NOTHING, _NOTHING)


def rates_of(config: ModelConfig) -> Rates | None:
    """Rates of a model, declared or listed, zero on this machine; None if unknown."""
    if config.price is not None:
        return declared(config.price)
    return _found(config, says_something=True)


def embedding_rates_of(config: ModelConfig) -> Rates | None:
    """Rates of an embedding model, which has no price for output."""
    if config.price is not None:
        return declared(config.price)
    return _found(config, says_something=False)


def _found(config: ModelConfig, *, says_something: bool) -> Rates | None:
    listed = PROVIDERS[config.provider].prices
    if listed:
        return _listed(listed, config.model, says_something)
    return FREE_OF_CHARGE if is_ours(address(config)) else None


def declared(price: Price) -> Rates:
    """Rates of a price that the user declared."""
    cached = price.input if price.cached is None else price.cached
    given = Rate(price.input / MILLION), Rate(price.output / MILLION)
    # a config has no price of cache writes, so they cost as much as other input
    return Rates(*given, Rate(cached / MILLION), given[0])


@lru_cache(maxsize=256)
def _listed(provider: str, model: str, says_something: bool) -> Rates | None:
    # imported here because it takes 0.4 s
    from genai_prices import Usage, calc_price

    try:
        found = calc_price(Usage(input_tokens=1, output_tokens=1), model, provider_id=provider)
    except LookupError:
        return None
    price = found.model_price
    said = _rate(price.output_mtok) if says_something else _NOTHING
    plain = _rate(price.input_mtok), said
    if plain[0] is None or plain[1] is None:
        return None
    cached, written = _rate(price.cache_read_mtok), _rate(price.cache_write_mtok)
    return Rates(plain[0], plain[1], cached or plain[0], written or plain[0])


def _rate(price: Any) -> Rate | None:  # noqa: ANN401 # a Decimal or its TieredPrices
    if price is None:
        return None
    tiers: list[Any] = list(getattr(price, "tiers", ()))
    base = float(getattr(price, "base", price)) / MILLION
    return Rate(base, tuple((tier.start, float(tier.price) / MILLION) for tier in tiers))


BYTES = 4
"""Bytes of a request per token, as in English text."""

REPLY = 200
"""Tokens of a reply of typical length."""

log = logging.getLogger("kept")


@runtime_checkable
class Pricing(Protocol):
    """Model that knows the maximum cost of a request."""

    def worst_usd(self, request: ModelRequest) -> float | None:
        """Maximum cost of a reply; None if unknown."""
        ...


def worst_usd(model: Model, request: ModelRequest) -> float | None:
    """Maximum cost of a reply; None if unknown."""
    if not hasattr(model, "worst_usd"):
        return None
    # `isinstance` with a protocol takes as long as the call itself
    return cast("Pricing", model).worst_usd(request)


@runtime_checkable
class Usual(Protocol):
    """Model that can estimate the cost of a typical request."""

    def usual_usd(self, request: ModelRequest) -> float | None:
        """Estimated cost with a reply of `REPLY` tokens; None if the price is unknown."""
        ...


def usual_usd(model: Model, request: ModelRequest) -> float | None:
    """Estimated cost of a request with a reply of `REPLY` tokens; None if unknown."""
    return model.usual_usd(request) if isinstance(model, Usual) else None


@lru_cache(maxsize=1024)
def warn_of_usage(name: str, where: str) -> None:
    """Warn of impossible token counts, once for each model and address."""
    log.warning(
        "`%s` at %s reports token counts that cannot be true; such replies are charged at their "
        "worst case",
        name,
        where,
    )
