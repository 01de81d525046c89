"""What a gate has asked for in one dialogue: whoever answers it adds to this, Ask by Ask."""

from collections.abc import Iterable

from kept.core.proposal import Ask
from kept.core.rollout import Pair, Purpose

Asked = dict[tuple[str, Purpose], tuple[Pair, ...]]
"""Pairs by candidate and purpose, in the order in which they were asked for."""


def note_asked(asked: Asked, asks: Iterable[Ask]) -> Asked:
    """Add Asks to what was asked before; the pairs among them that are new."""
    fresh: Asked = {}
    for ask in asks:
        key = (ask.candidate, ask.purpose)
        before = asked.get(key, ())
        more = tuple(dict.fromkeys(ask.pairs))
        if before:
            seen = set(before)
            more = tuple(pair for pair in more if pair not in seen)
        if more:
            asked[key] = before + more
            fresh[key] = fresh.get(key, ()) + more
    return fresh
