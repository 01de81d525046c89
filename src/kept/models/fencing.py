"""Texts of others inside a message to a model, so marked that the model can tell where they end.

Whoever wrote such a text may want it read as a message of ours. The mark is made of the texts, so
none of them can hold it, and the same texts have the same one in every sitting.
"""

from collections.abc import Sequence
from hashlib import sha256

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
