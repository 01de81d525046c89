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
"""What a text is, in one word, and the text."""


def fenced(texts: Sequence[Named]) -> str:
    """Texts one after another, each between tags that carry its name and the mark."""
    return "\n\n".join(fences(texts))


def fences(texts: Sequence[Named]) -> list[str]:
    """The same one by one, with one mark for all."""
    mark = mark_of(texts)
    return [f"<{name}-{mark}>\n{text}\n</{name}-{mark}>" for name, text in texts]


def mark_of(texts: Sequence[Named]) -> str:
    """Eight characters that stand in none of the texts."""
    whole = "\0".join(text for _, text in texts)
    mark = ""
    while not mark or mark in whole:
        mark = sha256(f"{mark}\0{whole}".encode("utf-8", "surrogatepass")).hexdigest()[:8]
    return mark


BYTES = 3
"""Of a text that make a token, rather too few than too many: English has four or five."""

REPLY = 4_096
"""Tokens left for a reply where nobody says how long it may be."""

PICTURE, COARSE_PICTURE = 2_000, 300
"""Tokens of a picture, and of one at low detail: what providers mostly count, or a few more."""


def window_of(config: ModelConfig) -> int | None:
    """Tokens of a request and its reply together: as declared, or listed; None if unknown."""
    if config.context_window is not None:
        return config.context_window
    if config.provider == "local":
        from kept.models.local.model import CONTEXT

        return CONTEXT
    listed = PROVIDERS[config.provider].prices
    return _listed(listed, config.model) if listed else None


def room_of(config: ModelConfig) -> int | None:
    """Tokens that a request may have so that its reply fits too; None if unknown."""
    window = window_of(config)
    if window is None:
        return None
    return window - min(config.max_tokens or REPLY, window // 2)


def tokens_of(text: str) -> int:
    """Tokens of a text, rather too many than too few."""
    return -(-len(text.encode("utf-8", "surrogatepass")) // BYTES)


def picture_tokens(image: Image) -> int:
    """Tokens of a picture, rather too many than too few."""
    return COARSE_PICTURE if image.detail == "low" else PICTURE


@lru_cache(maxsize=256)
def _listed(provider: str, model: str) -> int | None:
    # at use: it takes 0.4 s to import
    from genai_prices import Usage, calc_price

    try:
        found = calc_price(Usage(input_tokens=1, output_tokens=1), model, provider_id=provider)
    except LookupError:
        return None
    return found.model.context_window
