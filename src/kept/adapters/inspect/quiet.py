"""What Inspect does to the terminal and the logs of a process, kept off both during a run."""

import logging
from collections.abc import Callable, Generator
from contextlib import contextmanager
from importlib import import_module
from typing import Any


@contextmanager
def unseen() -> Generator[Callable[[], None]]:
    """Have Inspect show nothing, and leave its display and the logging as they were before.

    A display that was made for an eval before would be used for this one too, and take the
    terminal. Inspect sets up the logging of the whole process when an eval begins; what is yielded
    is to be called after that, and gives it back.
    """
    shown: Any = import_module("inspect_ai._display.core.active")
    kind: Any = import_module("inspect_ai.util._display")
    display, chosen = shown._active_display, kind._display_type
    shown._active_display = None
    root, theirs = logging.getLogger(), logging.getLogger("inspect_ai")
    level, handlers = root.level, list(root.handlers)
    added: list[logging.Handler] = []
    loud = theirs.level

    def hush() -> None:
        nonlocal loud
        root.setLevel(level)
        added.extend(handler for handler in root.handlers if handler not in handlers)
        for handler in added:
            root.removeHandler(handler)
        loud = theirs.level
        theirs.setLevel(logging.ERROR)

    try:
        yield hush
    finally:
        root.setLevel(level)
        theirs.setLevel(loud)
        for handler in added:
            root.addHandler(handler)
        shown._active_display, kind._display_type = display, chosen
