"""OpenAI embeddings: texts that share words lie near each other."""

import base64
import hashlib
import math
import struct
from typing import Any

from kept.testing.server.script import Seen

SIZE = 64
"""Dimensions of a vector, unless the request sets another number."""


def whole(seen: Seen) -> dict[str, Any]:
    """One vector per text."""
    size = int(seen.body.get("dimensions") or SIZE)
    packed = seen.body.get("encoding_format") == "base64"
    texts = [line.text for line in seen.lines]
    tokens = sum(len(text) // 4 + 1 for text in texts)
    vectors: list[list[float]] | list[str] = [vector(text, size) for text in texts]
    if packed:
        bits = (struct.pack(f"<{len(numbers)}f", *numbers) for numbers in vectors)
        vectors = [base64.b64encode(one).decode() for one in bits]
    return {
        "object": "list",
        "model": seen.model,
        "data": [
            {"object": "embedding", "index": n, "embedding": numbers}
            for n, numbers in enumerate(vectors)
        ],
        "usage": {"prompt_tokens": tokens, "total_tokens": tokens},
    }


def vector(text: str, size: int = SIZE) -> list[float]:
    """Unit vector of hashed words: each word adds or subtracts 1 in one dimension."""
    found = [0.0] * size
    for word in text.lower().split():
        digest = hashlib.sha256(word.encode()).digest()
        found[int.from_bytes(digest[:4], "big") % size] += 1.0 if digest[4] % 2 else -1.0
    length = math.sqrt(sum(x * x for x in found))
    return [x / length for x in found] if length else found
