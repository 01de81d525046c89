"""Fills the candidate's prompt with notes of a meeting, as an application would before it asks."""

import os
from pathlib import Path

NOTES = """\
Mon 9:00, Ana, Boris, Chidi. Launch moves from May 4 to May 18: the payment provider is late.
Boris asks the provider for a test account by Friday. Ana tells the press. Budget not discussed.
"""

prompt = Path(os.environ["KEPT_CANDIDATE"], "prompt.md").read_text(encoding="utf-8")
Path(os.environ["KEPT_OUTPUT"], "filled.txt").write_text(
    prompt.replace("{notes}", NOTES), encoding="utf-8"
)
