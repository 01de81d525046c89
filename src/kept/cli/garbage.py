"""When garbage is looked for: not while a command imports what it needs, nor among that later.

Modules are no garbage, and to look through them takes a twelfth of the time that a command needs to
start, and 30 ms or more each time in a run, during which no reply is read and no request is sent.
"""

import gc
from collections.abc import Generator
from contextlib import contextmanager

_USUAL = gc.get_threshold()
_STARTING = 200_000
"""Objects more than before, for a first look; a command makes some 100,000 as it starts."""


def put_off() -> None:
    """Do not look yet."""
    gc.set_threshold(_STARTING, *_USUAL[1:])


@contextmanager
def settled() -> Generator[None]:
    """Look as usual, but not through what was made before."""
    gc.freeze()
    gc.set_threshold(*_USUAL)
    try:
        yield
    finally:
        gc.unfreeze()
