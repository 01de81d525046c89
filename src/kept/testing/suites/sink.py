"""What every sink must do, wherever it tells things."""

import asyncio
from dataclasses import replace

from kept.core.budget import Budget
from kept.core.ports import Journal, Sink
from kept.core.state import State
from kept.testing.evaluator import Faults, ScriptedEvaluator
from kept.testing.journal import MemoryJournal
from kept.testing.pool import Pool
from kept.testing.proposer import ScriptedProposer
from kept.testing.sink import RecordingSink
from kept.testing.sitting import sit, small_plan


class SinkSuite:
    """Subclass it and make a sink."""

    def make_sink(self, journal: Journal) -> Sink:
        """A sink for the run that this journal records."""
        raise NotImplementedError

    def test_it_follows_a_run_from_start_to_stop(self) -> None:
        """Keeps, discards, crashes and outages: it never raises."""
        journal = MemoryJournal()
        state = self._run(journal, self.make_sink(journal))
        assert state.stopped is not None

    def test_it_takes_up_a_run_that_was_cut(self) -> None:
        """A resumed run tells it only what happens from then on."""
        first = MemoryJournal()
        self._run(first, self.make_sink(first))
        for records in range(2, len(first.records), 7):
            cut = first.reopened(records)
            self._run(cut, self.make_sink(cut))

    def test_it_changes_nothing_of_what_it_is_told(self) -> None:
        """A run ends the same with and without it."""
        alone, watched = MemoryJournal(), MemoryJournal()
        without = self._run(alone, RecordingSink())
        assert self._run(watched, self.make_sink(watched)) == without
        assert watched.records == alone.records

    def test_hearing_it_all_again_is_no_error(self) -> None:
        """A page that reloads replays what it has seen."""
        journal, recorded = MemoryJournal(), RecordingSink()
        self._run(journal, recorded)
        sink = self.make_sink(journal)
        for _ in range(2):
            for event, state in zip(recorded.events, recorded.states, strict=True):
                sink.on_event(event, state)
            hear = getattr(sink, "on_rollout", None)
            if hear is not None:
                for job, outcome in recorded.rollouts:
                    hear(job, outcome)

    def _run(self, journal: MemoryJournal, sink: Sink) -> State:
        pool = Pool()
        evaluator = ScriptedEvaluator(
            quality=pool.quality, faults=Faults(outages=0.1, tries=9, crashes=0.05)
        )
        plan = small_plan(evaluator, ScriptedProposer(lines=pool.lines))
        plan = replace(plan, width=2, budget=Budget(max_iterations=12))
        return asyncio.run(sit(plan, journal, evaluator.clock, [sink]))
