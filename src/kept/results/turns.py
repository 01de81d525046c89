"""What each of several proposers had of the turns, and what it made of them."""

from collections.abc import Mapping
from dataclasses import dataclass

from kept.core.proposer_stats import NOTHING
from kept.core.schedules.schedule import OF_THE_RUN
from kept.core.state import State


@dataclass(frozen=True, slots=True)
class Turns:
    """Of one proposer."""

    proposer: str
    turns: int
    """Steps that it opened."""
    near: int
    keeps: int
    """Steps that were kept, by themselves or together with others."""
    gain: float
    """That it is credited with, near misses that wait at half of what they promise."""
    rollouts: int
    """Of its candidates, for their verdicts."""
    usd: float
    """What these cost, and its own calls."""
    share: float | None
    """Of the turns that are drawn, when one last was; None where it has its turns as they come."""

    @property
    def share_words(self) -> str:
        """In percent; empty where there is none."""
        return "" if self.share is None else _percent(self.share)


def turns_of(state: State) -> tuple[Turns, ...]:
    """What each had, the most turns first; nothing where one proposer has them all."""
    names = sorted(set(state.turns) - {*OF_THE_RUN}, key=lambda name: (-state.turns[name], name))
    if len(names) < 2:
        return ()
    drawn = (step.turn.shares for step in (*reversed(state.open), *reversed(state.closed)))
    last = next((given for given in drawn if given), dict[str, float]())
    rows = ((name, state.brought.get(name, NOTHING)) for name in names)
    return tuple(
        Turns(
            name,
            state.turns[name],
            mine.near,
            mine.keeps,
            mine.gain,
            mine.rollouts,
            mine.usd,
            last.get(name),
        )
        for name, mine in rows
    )


def turns_words(rows: tuple[Turns, ...]) -> str:
    """All of it in a line: `edit 12 (3 in what was kept, share 62 %), reflect 5 (none)`.

    Several of them may be in one step that was kept, so these are not the counts of verdicts.
    """
    return ", ".join(f"{row.proposer} {row.turns} ({_words(row)})" for row in rows)


def _words(row: Turns) -> str:
    kept = f"{row.keeps or 'none'} in what was kept"
    return f"{kept}, share {row.share_words}" if row.share_words else kept


def share_words(shares: Mapping[str, float]) -> str:
    """What shares a turn was drawn by: `edit 62 %, reflect 38 %`."""
    return ", ".join(f"{name} {_percent(share)}" for name, share in shares.items())


def _percent(share: float) -> str:
    return f"{100 * share:.0f} %"
