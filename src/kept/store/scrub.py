"""Secrets of our environment, kept out of what is written.

Only words are scrubbed: what failed, what was seen, what was said. Numbers, names by which things
are found again, and the edits of a proposal stay as they are, because a run that is resumed must
work on what the first sitting worked on.
"""

import json
from collections.abc import Sequence
from typing import cast

from kept.store import wire

AS_IT_IS = frozenset(
    ("kind", "candidate", "incumbent", "case", "purpose", "trace", "edits", "scope", "key", "seed")
)
"""Fields that are found again by what they hold, or that candidates are made of."""

MARK = "[secret]"


class Scrub:
    """Takes secrets out of lines of JSON."""

    def __init__(self, secrets: Sequence[str]) -> None:
        # also as they stand in a text that is itself JSON
        forms = {form for value in secrets for form in (value, *_escaped(value))}
        self._forms = sorted(forms, key=len, reverse=True)
        needles = {wire.encode(form)[1:-1] for form in forms}
        needles |= {json.dumps(form)[1:-1].encode() for form in forms}
        self._needles = tuple(needles)

    def clean(self, data: bytes) -> bytes:
        """A line without the secrets."""
        if not any(needle in data for needle in self._needles):
            return data
        before: object = json.loads(data)
        after = self._plain(before)
        if after == before:
            return data  # digits of a number, say
        return json.dumps(after, separators=(",", ":"), ensure_ascii=True).encode()

    def clean_lines(self, data: bytes) -> bytes:
        """Lines without the secrets."""
        if not any(needle in data for needle in self._needles):
            return data
        return b"".join([self.clean(line) + b"\n" for line in data.splitlines()])

    def _plain(self, value: object) -> object:
        if isinstance(value, str):
            for form in self._forms:
                value = value.replace(form, MARK)
            return value
        if isinstance(value, list):
            return [self._plain(one) for one in cast("list[object]", value)]
        if isinstance(value, dict):
            rows = cast("dict[str, object]", value).items()
            return {key: one if key in AS_IT_IS else self._plain(one) for key, one in rows}
        return value


def _escaped(value: str) -> tuple[str, str]:
    return json.dumps(value)[1:-1], json.dumps(value, ensure_ascii=False)[1:-1]
