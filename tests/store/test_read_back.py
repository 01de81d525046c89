"""What is written is read back only where it may not be readable."""

import sys
from pathlib import Path
from types import FrameType

from kept.core.budget import NOTHING
from kept.core.event import StepClosed
from kept.core.verdict import Verdict
from kept.store.journal import RunJournal, check_readable

VERDICT = StepClosed(
    step=0,
    candidate="c",
    incumbent="i",
    reports=(),
    verdict=Verdict("discard", "worse"),
    evaluations=(),
    spend=NOTHING,
    rollouts=(0, 0),
    t=0.0,
)


def test_an_ordinary_verdict_is_not_read_back(tmp_path: Path):
    looked = 0

    def count(frame: FrameType, event: str, _of: object) -> None:
        nonlocal looked
        looked += event == "call" and frame.f_code is check_readable.__code__

    journal = RunJournal(tmp_path)
    before = sys.getprofile()
    sys.setprofile(count)
    try:
        journal.append(VERDICT)
    finally:
        sys.setprofile(before)
        journal.close()
    assert looked == 0
