"""Conformance suites for schedules and sinks."""

import asyncio
from dataclasses import replace

from kept.core.budget import Budget, Spend, StopReason
from kept.core.event import Proposed, RunStarted, StepClosed, StepOpened
from kept.core.ports import Journal, Schedule, Sink
from kept.core.proposal import Reply, Skip, Turn
from kept.core.state import State, advance, fold
from kept.core.verdict import Verdict, VerdictCode
from kept.testing.fakes import Pool, RecordingSink, ScriptedProposer
from kept.testing.journal import MemoryJournal
from kept.testing.run import Faults, ScriptedEvaluator, sit, small_plan


class ScheduleSuite:
    """Subclass it, make a schedule, and name the proposers of its plan."""

    steps = 12
    """Maximum number of turns per test."""

    def make_schedule(self) -> Schedule:
        """A schedule to test."""
        raise NotImplementedError

    def proposers(self) -> tuple[str, ...]:
        """Names of the proposers in the plan."""
        raise NotImplementedError

    def start(self) -> State:
        """State at the beginning of a run."""
        event = RunStarted(run_id="run", recipe="suite", seed="seed", inputs={}, version="0", t=0.0)
        return fold([event])

    def states(self) -> list[State]:
        """States of a run in which no proposal succeeds."""
        schedule, state = self.make_schedule(), self.start()
        states = [state]
        for _ in range(self.steps):
            turn = schedule.next(state)
            if isinstance(turn, StopReason):
                break
            state = take(state, turn)
            states.append(state)
        return states

    def test_it_is_a_function_of_the_state(self) -> None:
        """Used and fresh schedules give the same answer for the same state."""
        used = self.make_schedule()
        for state in self.states():
            turn = used.next(state)
            assert used.next(state) == turn, "two answers for one state"
            assert self.make_schedule().next(state) == turn, "a fresh schedule differs"

    def test_a_turn_is_for_a_proposer_of_the_plan(self) -> None:
        """A turn has a phase, and its number counts the proposer's earlier turns."""
        for state in self.states():
            turn = self.make_schedule().next(state)
            if isinstance(turn, Turn):
                assert turn.proposer in self.proposers(), f"nobody is called {turn.proposer}"
                assert turn.phase, "a turn has a phase"
                assert turn.number == state.turns.get(turn.proposer, 0), "wrongly numbered"

    def test_a_stop_has_its_reason(self) -> None:
        """A schedule stops once no proposer has further proposals."""
        dry = self.start()._replace(exhausted=frozenset(self.proposers()))
        stop = self.make_schedule().next(dry)
        assert isinstance(stop, StopReason), f"a turn, though nobody has more to give: {stop}"
        assert stop.message, "a stop says why"

    def test_who_has_run_dry_gets_no_turn(self) -> None:
        """Other proposers go on."""
        for name in self.proposers():
            dry = self.start()._replace(exhausted=frozenset({name}))
            turn = self.make_schedule().next(dry)
            assert isinstance(turn, StopReason) or turn.proposer != name


def take(state: State, turn: Turn, reply: Reply | None = None) -> State:
    """State after one turn without a proposal, or with the given failure."""
    step = state.next_step
    code: VerdictCode = "nothing proposed" if reply is None else "proposer failed"
    opened = StepOpened(step=step, turn=turn, incumbent=state.incumbent, rollouts_at=0, t=0.0)
    proposed = Proposed(step=step, reply=reply or Skip("nothing"), t=0.0)
    closed = StepClosed(
        step=step,
        candidate=None,
        incumbent=state.incumbent,
        reports=(),
        verdict=Verdict("skip", "nothing", code=code),
        evaluations=(),
        spend=Spend(),
        rollouts=(0, 0),
        t=0.0,
    )
    for event in (opened, proposed, closed):
        state = advance(state, event)
    return state


class SinkSuite:
    """Subclass it and make a sink."""

    def make_sink(self, journal: Journal) -> Sink:
        """A sink for the run that this journal records."""
        raise NotImplementedError

    def test_it_follows_a_run_from_start_to_stop(self) -> None:
        """A sink never raises on keeps, discards, crashes and outages."""
        journal = MemoryJournal()
        state = self._run(journal, self.make_sink(journal))
        assert state.stopped is not None

    def test_it_takes_up_a_run_that_was_cut(self) -> None:
        """A resumed run passes on only events from then on."""
        first = MemoryJournal()
        self._run(first, self.make_sink(first))
        for records in range(2, len(first.records), 7):
            cut = first.reopened(records)
            self._run(cut, self.make_sink(cut))

    def test_it_changes_nothing_of_what_it_is_told(self) -> None:
        """A run ends the same with and without the sink."""
        alone, watched = MemoryJournal(), MemoryJournal()
        without = self._run(alone, RecordingSink())
        assert self._run(watched, self.make_sink(watched)) == without
        assert watched.records == alone.records

    def test_hearing_it_all_again_is_no_error(self) -> None:
        """A page that reloads replays the events it has seen."""
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
