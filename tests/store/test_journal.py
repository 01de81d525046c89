"""Both journals, the one on disk and the one in memory, pass the same suite."""

from collections.abc import Sequence
from pathlib import Path

import pytest

from kept.core.event import Event
from kept.core.ports import Journal
from kept.store.journal import RunJournal, read_events
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
