"""The seams: what the engine asks of the outside, one question a Protocol.

Implementations live in the edges; fakes live in `kept.testing` and pass the same suites.
"""

from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from typing import Protocol, TypeVar, runtime_checkable

from kept.core.artifact import Candidate
from kept.core.budget import StopReason
from kept.core.case import Case
from kept.core.event import Event
from kept.core.llm import Embedded, ModelReply, ModelRequest, ToolAnswer, ToolOffer
from kept.core.proposal import Ask, Brief, ProposerReply, Turn
from kept.core.rollout import Failure, Job, Rollout, TraceItem, Usage
from kept.core.score import Outcome, Score
from kept.core.state import State
from kept.core.verdict import Verdict, View


class Priced(Protocol):
    """A reply that knows what it cost."""

    @property
    def usage(self) -> Usage:
        """Tokens and money that the reply cost."""
        ...


R = TypeVar("R", bound=Priced)
C = TypeVar("C", bound=Priced | Failure)


class Scope(Protocol):
    """Journal of the calls of one rollout or one proposal.

    A call is known by the scope's path, its request and how often the same request came before, so
    code that makes the same calls again is served the replies that arrived the first time. Parallel
    calls need a branch each, or their order would be a matter of timing.
    """

    async def call(
        self,
        request: object,
        reply: type[R],
        do: Callable[[], Awaitable[R | Failure]],
        worst_usd: float | None = None,
    ) -> R | Failure:
        """The reply to this request: the journalled one, or a new one, journalled on arrival.

        Where money is limited, a new one is asked for only when the most it can cost is left; where
        nobody can tell that, the dearest one so far stands for it. What a failure used is counted
        here, and no longer with the failure.
        """
        ...

    def branch(self, name: str) -> "Scope":
        """A scope of its own below this one."""
        ...


@runtime_checkable
class Runner(Protocol):
    """Executes one candidate on one case."""

    async def run(
        self, job: Job, candidate: Candidate, case: Case, scope: Scope
    ) -> Rollout | Failure:
        """Execute once. Cancelling this must leave nothing running."""
        ...

    async def close(self) -> None:
        """Let go of what was opened."""
        ...


@runtime_checkable
class Scorer(Protocol):
    """Turns what a rollout brought back into named measures."""

    async def score(
        self, job: Job, rollout: Rollout, candidate: Candidate, case: Case, scope: Scope
    ) -> Score | Failure:
        """Measure once; the same rollout gives the same score."""
        ...

    async def close(self) -> None:
        """Let go of what was opened."""
        ...


@runtime_checkable
class Proposer(Protocol):
    """Answers a brief; remembers nothing between calls."""

    @property
    def name(self) -> str:
        """Unique within a plan."""
        ...

    @property
    def serial(self) -> bool:
        """True if it must see the open proposals of earlier steps, and so waits for them."""
        ...

    async def propose(self, brief: Brief, scope: Scope) -> ProposerReply:
        """Edits, a note, nothing, or the rollouts needed first."""
        ...


@runtime_checkable
class Building(Proposer, Protocol):
    """A proposer that edits the text it is given, and may be given a near miss."""

    @property
    def builds(self) -> bool:
        """True if it may; then `brief.parent` says which promising proposal the text is."""
        ...


@runtime_checkable
class Schedule(Protocol):
    """Decides what the next step is about."""

    def next(self, state: State) -> Turn | StopReason:
        """The next turn, or why there is none. A function of the state."""
        ...

    def last(self, state: State) -> Turn | None:
        """Turn that is left to do before a run ends; None if there is none."""
        ...


@runtime_checkable
class Racing(Schedule, Protocol):
    """A schedule of proposals that a race may decide on."""

    @property
    def allows_pool(self) -> bool:
        """False if each step must be decided before the next, so that no near miss can wait."""
        ...


class Probe(Protocol):
    """A free look at something that a run needs."""

    @property
    def proposes(self) -> bool:
        """True where only proposers need it."""
        ...

    async def unreachable(self) -> str | None:
        """Reason why it cannot be used; None if it answers."""
        ...


@runtime_checkable
class Gate(Protocol):
    """Decides whether a challenger is better. Never calls a model, never sees a rollout."""

    @property
    def name(self) -> str:
        """As a spec spells it."""
        ...

    def decide(self, view: View) -> Verdict | tuple[Ask, ...]:
        """A verdict, or what must be known first. Every Ask must bring something new."""
        ...


@runtime_checkable
class Claiming(Gate, Protocol):
    """A gate that measures at the end what a run has gained, pair by pair."""

    def claim(self, view: View) -> Verdict | tuple[Ask, ...]:
        """By how much the best (the challenger) beats the seed, on the sealed test."""
        ...


@runtime_checkable
class Proving(Claiming, Protocol):
    """A gate that keeps what leads apart from what is proven, and compares pair by pair."""

    def prove(self, view: View) -> Verdict | tuple[Ask, ...]:
        """Test whether what leads (the challenger) beats the best on new cases."""
        ...


@runtime_checkable
class Measuring(Gate, Protocol):
    """A gate that changes nothing: it compares with the seed pair by pair, or measures that."""

    def measure(self, view: View) -> Verdict | tuple[Ask, ...]:
        """Measure how far answers of the seed (on both sides) differ."""
        ...


class Sink(Protocol):
    """Is told what happens: progress, logs, pages. Must not raise and must not block.

    One that has a method `on_rollout(job: Job, outcome: Outcome) -> None` as well is told of every
    rollout that is done and in the journal, with an outcome of its own.
    """

    def on_event(self, event: Event, state: State) -> None:
        """Something happened, and this is the state after it."""
        ...


class Clock(Protocol):
    """Time, as the engine knows it."""

    def time(self) -> float:
        """Seconds since the epoch, for records."""
        ...

    def monotonic(self) -> float:
        """Seconds that never run backwards, for durations."""
        ...

    async def sleep(self, seconds: float) -> None:
        """Wait."""
        ...


class Journal(Protocol):
    """The record of a run. Whatever was written survives the process."""

    @property
    def events(self) -> Iterable[Event]:
        """Every event that was written, oldest first."""
        ...

    @property
    def rollouts_size(self) -> int:
        """Bytes of the rollout file."""
        ...

    def append(self, event: Event) -> None:
        """Write one event."""
        ...

    def record(self, rows: Sequence[tuple[int, Job, Outcome]]) -> None:
        """Write finished pairs, each with the step that pays for it; all of them or none."""
        ...

    def tail(self, start: int) -> Sequence[tuple[int, Job, Outcome]]:
        """Step, job and outcome of every rollout behind an offset; calls are at hand again."""
        ...

    def recorded(self, start: int, end: int) -> Iterable[tuple[int, Job, Outcome]]:
        """Step, job and outcome of every rollout between two offsets, oldest first."""
        ...

    def record_cancelled(self, rows: Sequence[tuple[int, Job, Usage]]) -> None:
        """Write what rollouts used that were stopped in flight, each with the step that pays."""
        ...

    def cancelled(self, start: int) -> Sequence[tuple[int, Job, Usage]]:
        """Step, job and usage of every rollout that was stopped in flight, behind an offset."""
        ...

    def outcomes(self, candidates: Iterable[str]) -> Sequence[tuple[Job, Outcome]]:
        """Every recorded outcome of these candidates, oldest first."""
        ...

    def record_call(self, scope: str, key: str, reply: C, *, unpriced: bool = False) -> C:
        """Write one reply that arrived; the reply as it was written, and as a resume will hear it.

        Secrets are left out of what is written. A run that worked on them would go another way
        than its own resume. `unpriced` says that nobody could tell before what it costs at most,
        and that it was seen to cost what the reply says.
        """
        ...

    def calls(self, scope: str, key: str, reply: type[R]) -> Sequence[R | Failure]:
        """Replies recorded in this scope for this request, oldest first."""
        ...

    def heard(self, scope: str) -> bool:
        """True if any reply of this scope is in memory."""
        ...

    def paid(self) -> Mapping[str, Usage]:
        """Usage of the calls in memory, by scope."""
        ...

    def unpriced(self) -> Mapping[str, float]:
        """Dollars of the dearest call at hand that was unpriced, by scope; where there is one."""
        ...

    def forget_calls(self, scope: str) -> None:
        """The scope is done; its calls need not be kept at hand."""
        ...

    def save(self, candidate: Candidate) -> bool:
        """Store a candidate's content; whether it was new."""
        ...

    def load(self, candidate: str) -> Candidate:
        """A candidate that was stored."""
        ...

    def put(self, value: object) -> str:
        """Store a value; the address it can be had back by."""
        ...

    def trace(self, address: str) -> tuple[TraceItem, ...]:
        """A trace that was stored."""
        ...

    def sync(self) -> None:
        """Have the disk catch up; may return before it has."""
        ...


@runtime_checkable
class Model(Protocol):
    """A language model."""

    @property
    def name(self) -> str:
        """As a spec spells it."""
        ...

    async def complete(self, request: ModelRequest) -> ModelReply | Failure:
        """One reply, or why there is none."""
        ...


@runtime_checkable
class Embedder(Protocol):
    """Turns texts into vectors."""

    @property
    def name(self) -> str:
        """As a spec spells it."""
        ...

    @property
    def known_by(self) -> str:
        """Identity of its vector space: vectors of two embedders are not comparable."""
        ...

    def worst_usd(self, texts: Sequence[str]) -> float | None:
        """The most that these can cost; None where that is not known."""
        ...

    async def embed(self, texts: Sequence[str]) -> Embedded | Failure:
        """A vector for each, or why there is none; the same text has the same vector."""
        ...


@runtime_checkable
class Tool(Protocol):
    """Something that a model may use: one function, an index, or one of what a server offers.

    It is cheap, and may differ between candidates; what it has open (an index, a server, processes)
    is opened once for a run, and shared.
    """

    @property
    def offer(self) -> ToolOffer:
        """Name, description and parameters that a model sees."""
        ...

    async def use(self, arguments: Mapping[str, object], scope: Scope) -> ToolAnswer | Failure:
        """Use it once, journalled in the scope: a resume does not use it again.

        What is wrong with the arguments is an answer, which the model can go by; a `Failure` is
        what no other arguments would mend.
        """
        ...


@runtime_checkable
class Guard(Protocol):
    """A reason to refuse a candidate that costs no rollout to find."""

    @property
    def name(self) -> str:
        """As a spec spells it."""
        ...

    def check(self, seed: Candidate, incumbent: Candidate, candidate: Candidate) -> str | None:
        """Reason to refuse the candidate; None if it may run."""
        ...
