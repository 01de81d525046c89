"""What Inspect does for one rollout, watched from inside: how far it came, what was raised."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from functools import wraps
from importlib import import_module
from typing import Any, Literal

Phase = Literal["waiting", "solving", "solved", "scoring"]


@dataclass(slots=True, eq=False)
class Ask:
    """One sample, to be run once as a candidate has it."""

    sample: str
    """Its id."""
    epoch: int
    """By which Inspect, and its cache, tell one draw from another."""
    tell: Callable[[Any], None]
    """Takes Inspect's sample when it has ended, or whatever came instead."""
    phase: Phase = "waiting"
    error: BaseException | None = None
    """What was raised in a solver or a scorer."""
    left: bool = False
    """Nobody waits for it any more."""
    scopes: list[Any] = field(default_factory=list[Any])

    @property
    def key(self) -> tuple[str, int]:
        """What the running task knows it by."""
        return self.sample, self.epoch

    def leave(self) -> None:
        """Stop whatever is under way."""
        self.left = True
        for scope in self.scopes:
            scope.cancel()


class Left(Exception):
    """Raised inside a sample that nobody waits for any more."""


def watched(
    inner: Any,  # noqa: ANN401 # a solver or a scorer
    ask_of: Callable[[Any], Ask],
    during: Phase,
    after: Phase,
) -> Callable[[Any, Any], Awaitable[Any]]:
    """The same, with what is raised kept, and a way to stop it. It keeps its name in Inspect."""
    anyio: Any = import_module("anyio")

    @wraps(inner)
    async def call(state: Any, more: Any) -> Any:  # noqa: ANN401 # theirs
        ask = ask_of(state)
        ask.phase = during
        with anyio.CancelScope() as scope:
            ask.scopes.append(scope)
            try:
                if ask.left:
                    raise Left
                told = await inner(state, more)
            except Exception as error:
                ask.error = error
                raise
            finally:
                ask.scopes.remove(scope)
            ask.phase = after
            return told
        raise Left

    return call
