"""What a model is shown, fitted to what it can read: by whole parts, the least important first."""

from collections.abc import Sequence
from dataclasses import dataclass

from kept.core.words import count
from kept.models.window import tokens_of

ROOM = 60_000
"""Tokens that are shown where nobody knows how much a model can read."""


@dataclass(frozen=True, slots=True)
class Part:
    """One thing to be shown, in its place."""

    what: str
    """In a word or two, for who reads what was left out."""
    text: str
    rank: int = 0
    """The higher, the sooner it goes; 0 stays."""


def fitted(parts: Sequence[Part], room: int | None) -> str:
    """The parts that there is room for, in their order, and what is missing in words."""
    most = ROOM if room is None else min(room, ROOM)
    used = sum(tokens_of(part.text) for part in parts)
    gone: set[int] = set()
    # of equals the earliest goes first: what happened last matters most
    for at in sorted(range(len(parts)), key=lambda n: (-parts[n].rank, n)):
        if used <= most or not parts[at].rank:
            break
        used -= tokens_of(parts[at].text)
        gone.add(at)
    kept = [part.text for at, part in enumerate(parts) if at not in gone and part.text]
    left = [parts[at].what for at in sorted(gone)]
    if left:
        kinds = dict.fromkeys(left)
        words = ", ".join(count(left.count(kind), kind) for kind in kinds)
        kept.append(f"[left out, for there is no room: {words}]")
    return "\n\n".join(kept)
