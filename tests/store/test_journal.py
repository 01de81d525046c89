"""Both journals, the one on disk and the one in memory, pass the same suite."""

from collections.abc import Sequence
from pathlib import Path

import pytest

from kept.core.budget import Spend
from kept.core.event import Event, StepClosed, StepOpened
from kept.core.ports import Journal
from kept.core.proposal import Turn
from kept.core.verdict import Verdict
from kept.errors import RunError
from kept.store.journal import RunJournal
from kept.store.jsonl import read_events
from kept.testing.journal import MemoryJournal
from kept.testing.suites.journal import JournalSuite


class TestRunJournal(JournalSuite):
    @pytest.fixture(autouse=True)
    def _folder(self, tmp_path: Path) -> None:
        self.folder = tmp_path / "run"

    def make_journal(self) -> Journal:
        return RunJournal(self.folder)

    def reopen(self, journal: Journal) -> Journal:
        self.release(journal)
        return RunJournal(self.folder)

    def events(self, journal: Journal) -> Sequence[Event]:
        return list(read_events(self.folder / "journal.jsonl"))

    def release(self, journal: Journal) -> None:
        assert isinstance(journal, RunJournal)
        journal.close()


class TestMemoryJournal(JournalSuite):
    def make_journal(self) -> Journal:
        return MemoryJournal()

    def reopen(self, journal: Journal) -> Journal:
        assert isinstance(journal, MemoryJournal)
        return journal.reopened()

    def events(self, journal: Journal) -> Sequence[Event]:
        assert isinstance(journal, MemoryJournal)
        return journal.events


@pytest.mark.parametrize("gain", [0.5, float("nan")])
def test_an_event_may_have_fields_that_are_none_but_no_number_that_cannot_be_read_back(
    tmp_path: Path, gain: float
):
    journal = RunJournal(tmp_path / "run")
    opened = StepOpened(step=0, turn=Turn("a"), incumbent="x", rollouts_at=0, t=0.0)
    verdict = Verdict("discard", "worse", numbers={"gain": gain})
    closed = StepClosed(
        step=0,
        candidate=None,
        incumbent="x",
        reports=(),
        verdict=verdict,
        evaluations=(),
        spend=Spend(),
        rollouts=(0, 0),
        t=0.0,
    )
    journal.append(opened)
    try:
        journal.append(closed)
        refused = False
    except RunError:
        refused = True
    journal.close()
    assert refused == (gain != gain)
    written = list(read_events(tmp_path / "run" / "journal.jsonl"))
    assert written == [opened, *(() if refused else (closed,))]
