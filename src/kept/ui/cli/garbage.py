"""When garbage is looked for: not while a command imports what it needs, nor among that later.

Modules are no garbage, and to look through them takes a twelfth of the time that a command needs to
start, and 30 ms or more each time in a run, during which no reply is read and no request is sent.
"""

import gc
from collections.abc import Generator
from contextlib import contextmanager

_STARTING = 200_000
"""Objects more than before, for a first look; a command makes some 100,000 as it starts."""
_RUNNING = 7_000
"""Objects between two looks in a run: most go away without one."""

_FEW = 1_000
"""Objects that some Pythons put aside by themselves."""


def put_off() -> None:
    """Do not look yet."""
    gc.set_threshold(_STARTING)


@contextmanager
def settled() -> Generator[None]:
    """Look now and then, but not through what was made before."""
    before = gc.get_threshold()
    # what somebody else has put aside is not ours to bring back
    ours = gc.get_freeze_count() < _FEW
    if ours:
        gc.freeze()
    gc.set_threshold(_RUNNING)
    try:
        yield
    finally:
        gc.set_threshold(*before)
        if ours:
            gc.unfreeze()
