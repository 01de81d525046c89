"""What the library logs, told as warnings."""

import logging

from kept.ui.cli._output import warn


class _Warnings(logging.Handler):
    def emit(self, record: logging.LogRecord) -> None:
        warn(record.getMessage())


def show_log() -> None:
    """Have what the library logs appear on stderr in the words of the command line."""
    log = logging.getLogger("kept")
    if not any(isinstance(handler, _Warnings) for handler in log.handlers):
        log.addHandler(_Warnings())
