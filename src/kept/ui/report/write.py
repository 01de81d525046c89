"""`report.md` in the folder of a run."""

import os

from kept.core.text import encoded
from kept.store.files import write_file
from kept.store.reader import Run
from kept.ui.report.page import markdown


def is_report_of(run: Run) -> bool:
    """True if `report.md` says what the journal says, or if there is none."""
    path = run.folder / "report.md"
    return not path.exists() or path.read_bytes() == encoded(markdown(run))


def write_report(run: Run) -> str:
    """Write the page beside the journal, whole or not at all; the text of it.

    A process killed here leaves the old page, and the next report writes a new one.
    """
    text = markdown(run)
    path = run.folder / "report.md"
    fresh = path.with_name(f".report.md.{os.getpid()}")
    try:
        # diffs hold what the artifacts hold: bytes that are no UTF-8, and any line ending
        write_file(fresh, encoded(text))
        fresh.replace(path)
    finally:
        fresh.unlink(missing_ok=True)
    return text
