"""A free look at an endpoint before a run begins: can it be reached, does it answer at all.

It asks for the list of models, which no provider charges for. Any answer will do but that of a
gateway with nobody behind it: a key may lack the right to list, and small servers have no list.
"""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field

from kept.errors import SetupError
from kept.models.config import ModelConfig
from kept.models.line import Line
from kept.models.providers import located
from kept.models.trouble import Trouble, bare

AWAY = (502, 503, 504)
"""Statuses of a gateway whose server does not answer."""

TRIES = 4
"""Before an endpoint counts as dead: one that answers now and then is alive."""

WAITS = 2
"""Tries that may end without any answer in time."""

PAUSE = 0.5
"""Seconds between two tries."""

PATIENCE = 5.0
"""Seconds for one try."""


@dataclass(frozen=True, slots=True)
class Probe:
    """Implements `kept.core.ports.Probe` for one endpoint."""

    config: ModelConfig
    proposes: bool = False
    """True where only proposers ask it: a run that measures does without."""
    spared: tuple[Callable[[], bool], ...] = field(default=(), compare=False)
    """If each of these is true, cached replies may do, and the endpoint is not looked at."""

    async def unreachable(self) -> str | None:
        """Why the endpoint cannot be used; None where it answers."""
        if self.spared and all(spare() for spare in self.spared):
            return None
        try:
            line = Line(located(self.config), "models")
        except SetupError as error:
            return error.message
        last, tries = "", 0
        while tries < TRIES:
            await asyncio.sleep(PAUSE if tries else 0)
            tries += 1
            try:
                status = await line.probe(PATIENCE)
            except SetupError:
                return None  # no token: what is wrong with that is told by the first call
            except Trouble as trouble:
                if not trouble.again:
                    return trouble.failure.message
                last = trouble.failure.message
                if trouble.failure.kind == "timeout" and tries >= WAITS:
                    break
                continue
            if status not in AWAY:
                return None
            last = f"`{self.config.name}` answered {status}"
        return f"{last} ({tries} tries at {bare(line.endpoint.url)})"
