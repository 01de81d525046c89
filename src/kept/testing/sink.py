"""A sink that remembers what it was told."""

from kept.core.event import Event
from kept.core.rollout import Job
from kept.core.score import Outcome
from kept.core.state import State


class RecordingSink:
    """Implements `kept.core.ports.Sink`, and is told of rollouts."""

    def __init__(self) -> None:
        self.events: list[Event] = []
        self.states: list[State] = []
        """After each of the events."""
        self.rollouts: list[tuple[Job, Outcome]] = []

    def on_event(self, event: Event, state: State) -> None:
        """Remember it."""
        self.events.append(event)
        self.states.append(state)

    def on_rollout(self, job: Job, outcome: Outcome) -> None:
        """Remember it."""
        self.rollouts.append((job, outcome))
