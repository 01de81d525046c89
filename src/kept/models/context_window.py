"""Context window sizes, room for a request, and delimiters for foreign text.

Foreign text may try to pass for our instructions. The delimiter is derived from the texts, so
none of them can contain it. The same texts have the same delimiter in every session.
"""

from collections.abc import Sequence
from functools import lru_cache
from hashlib import sha256

from kept.core.llm import Image
from kept.models.providers import PROVIDERS, ModelConfig

Named = tuple[str, str]
"""Name of a text, in one word, and the text."""


def fenced(texts: Sequence[Named]) -> str:
    """Join texts, each between tags that carry its name and the mark."""
    return "\n\n".join(fences(texts))


def fences(texts: Sequence[Named]) -> list[str]:
    """Return the texts between tags, one by one, with one mark for all."""
    mark = mark_of(texts)
    return [f"<{name}-{mark}>\n{text}\n</{name}-{mark}>" for name, text in texts]


def mark_of(texts: Sequence[Named]) -> str:
    """Eight characters that occur in none of the texts."""
    whole = "\0".join(text for _, text in texts)
    mark = ""
    while not mark or mark in whole:
        mark = sha256(f"{mark}\0{whole}".encode("utf-8", "surrogatepass")).hexdigest()[:8]
    return mark


BYTES = 3
"""Bytes of text per token, a low estimate: English has four or five."""

REPLY = 4_096
"""Tokens reserved for a reply if no limit is set."""

PICTURE, COARSE_PICTURE = 2_000, 300
"""Tokens of a picture, and of one at low detail: as most providers count, or a few more."""


def window_of(config: ModelConfig) -> int | None:
    """Context window in tokens, as declared or listed; None if unknown."""
    if config.context_window is not None:
        return config.context_window
    if config.provider == "local":
        from kept.models.local.model import CONTEXT

        return CONTEXT
    listed = PROVIDERS[config.provider].prices
    return _listed(listed, config.model) if listed else None


def room_of(config: ModelConfig) -> int | None:
    """Maximum tokens of a request that leaves room for its reply; None if unknown."""
    window = window_of(config)
    if window is None:
        return None
    return window - min(config.max_tokens or REPLY, window // 2)


def tokens_of(text: str) -> int:
    """Estimated tokens of a text, rather too many than too few."""
    return -(-len(text.encode("utf-8", "surrogatepass")) // BYTES)


def picture_tokens(image: Image) -> int:
    """Estimated tokens of a picture, rather too many than too few."""
    return COARSE_PICTURE if image.detail == "low" else PICTURE


@lru_cache(maxsize=256)
def _listed(provider: str, model: str) -> int | None:
    # imported here because it takes 0.4 s
    from genai_prices import Usage, calc_price

    try:
        found = calc_price(Usage(input_tokens=1, output_tokens=1), model, provider_id=provider)
    except LookupError:
        return None
    return found.model.context_window
