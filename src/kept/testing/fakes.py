"""Test doubles: clock, gate dialogue, embedder, gates, proposer, sink, tool, known truth.

The clock advances only when code sleeps. Sleepers wake in order of time, and it jumps to the next
only after everything else has run. So an hour takes no time, and the order is deterministic.

The gate dialogue asks a gate, answers from a table of outcomes, and asks again until its verdict.
It is the engine's own dialogue, without runner and journal.

The embedder gives texts with shared words nearby vectors. Fixed gates ignore the scores. In the
known truth, lines may be added to a text and each has a given effect; the proposer draws from a
pool of them.
"""

import asyncio
import heapq
import random
from array import array
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from kept.core.artifact import Candidate
from kept.core.case import Case
from kept.core.edit import Append
from kept.core.event import Event
from kept.core.llm import Embedded, Message, ModelReply, ModelRequest, ToolAnswer, ToolOffer
from kept.core.objective import Objective
from kept.core.ports import Gate, Model, Scope
from kept.core.proposal import Ask, Asked, Brief, Proposal, ProposerReply, Skip, note_asked
from kept.core.rollout import Failure, Job, Pair, Purpose, Usage
from kept.core.score import Evaluation, Outcome, losses_of, summarize, ties_of
from kept.core.state import State
from kept.core.verdict import Side, Verdict, View
from kept.gates._common import asks_for, measured
from kept.testing.server.embeddings import SIZE, vector

PATIENCE = 10
"""Turns of the event loop without a new sleeper before the clock jumps."""


class FakeClock:
    """Clock that advances only when code sleeps; implements `kept.core.ports.Clock`."""

    def __init__(self, start: float = 1_700_000_000.0) -> None:
        self._start = start
        self._now = 0.0
        self._sleepers: list[tuple[float, int, asyncio.Future[None]]] = []
        self._watching: asyncio.AbstractEventLoop | None = None
        self.naps: list[float] = []
        """Every requested sleep in seconds, in order."""

    def time(self) -> float:
        """Seconds since the epoch."""
        return self._start + self._now

    def monotonic(self) -> float:
        """Seconds since this clock was made."""
        return self._now

    def advance(self, seconds: float) -> None:
        """Let time pass, and wake all sleepers that are due."""
        self._now += seconds
        while self._sleepers and self._sleepers[0][0] <= self._now:
            _, _, sleeper = heapq.heappop(self._sleepers)
            if not sleeper.done():
                sleeper.set_result(None)

    async def sleep(self, seconds: float) -> None:
        """Wait for time to pass."""
        self.naps.append(seconds)
        if seconds <= 0:
            await asyncio.sleep(0)
            return
        loop = asyncio.get_running_loop()
        sleeper: asyncio.Future[None] = loop.create_future()
        heapq.heappush(self._sleepers, (self._now + seconds, len(self.naps), sleeper))
        if self._watching is not loop:
            self._watching = loop
            loop.call_soon(self._watch, loop, len(self.naps), 0)
        await sleeper

    def _watch(self, loop: asyncio.AbstractEventLoop, naps: int, turns: int) -> None:
        """Jump to the next sleeper's time once all other tasks are idle."""
        while self._sleepers and self._sleepers[0][2].done():
            heapq.heappop(self._sleepers)
        if not self._sleepers:
            self._watching = None
            return
        if naps != len(self.naps):
            turns = 0
        elif turns >= PATIENCE:
            self.advance(max(0.0, self._sleepers[0][0] - self._now))
            turns = 0
        loop.call_soon(self._watch, loop, len(self.naps), turns + 1)


CHALLENGER = "challenger"
INCUMBENT = "incumbent"
ROUNDS = 1000
"""Rounds of requests after which a gate counts as never reaching a verdict."""


class Draw(NamedTuple):
    """One rollout that a gate may request."""

    owner: str
    purpose: Purpose
    pair: Pair


def as_it_is(evaluation: Evaluation) -> Evaluation:
    """Return the evaluation unchanged."""
    return evaluation


@dataclass(frozen=True, slots=True, kw_only=True)
class Matter:
    """Scripted decision for a gate: candidates, cases, and the outcome of every rollout."""

    outcome: Callable[[Draw], Outcome]
    changed: Mapping[Draw, Outcome] = field(default_factory=dict[Draw, Outcome])
    """Outcomes that differ from those of the function."""
    best: str = INCUMBENT
    train: tuple[str, ...] = ("t0", "t1", "t2", "t3")
    holdout: tuple[str, ...] = ("h0", "h1", "h2", "h3")
    objective: Objective = field(default_factory=lambda: Objective(bounds=(0.0, 1.0)))
    shown: Callable[[Evaluation], Evaluation] = as_it_is
    """Transformation of evaluations before the gate sees them."""

    def view(self, asked: Mapping[tuple[str, Purpose], tuple[Pair, ...]]) -> View:
        """View of a gate after these requests have been answered."""
        known = {key: self._sum_up(*key, pairs) for key, pairs in asked.items()}

        def side(id_: str) -> Side:
            mine: list[Purpose] = [purpose for owner, purpose in asked if owner == id_]
            losses: dict[Purpose, Mapping[Pair, float]] = {
                p: self._losses(id_, p, asked[id_, p]) for p in mine
            }
            ties: dict[Purpose, tuple[Mapping[Pair, float], ...]] = {
                p: ties_of(self._outcomes(id_, p, asked[id_, p]), self.objective) for p in mine
            }
            return Side(id_, {p: known[id_, p] for p in mine}, losses, ties)

        return View(
            challenger=side(CHALLENGER),
            incumbent=side(INCUMBENT),
            best=side(self.best),
            train=self.train,
            holdout=self.holdout,
            objective=self.objective,
        )

    def _sum_up(self, owner: str, purpose: Purpose, pairs: tuple[Pair, ...]) -> Evaluation:
        outcomes = self._outcomes(owner, purpose, pairs)
        return self.shown(summarize(owner, purpose, outcomes, self.objective))

    def _losses(
        self, owner: str, purpose: Purpose, pairs: tuple[Pair, ...]
    ) -> Mapping[Pair, float]:
        return losses_of(self._outcomes(owner, purpose, pairs), self.objective)

    def _outcomes(
        self, owner: str, purpose: Purpose, pairs: tuple[Pair, ...]
    ) -> list[tuple[Pair, Outcome]]:
        draws = [Draw(owner, purpose, pair) for pair in pairs]
        return [(draw.pair, self.changed.get(draw) or self.outcome(draw)) for draw in draws]


@dataclass(frozen=True, slots=True)
class Heard:
    """Verdict of a gate, with its requests and the views that led to it."""

    verdict: Verdict
    asks: tuple[Ask, ...]
    views: tuple[View, ...]

    @property
    def draws(self) -> list[Draw]:
        """Every rollout that the gate requested."""
        return [Draw(ask.candidate, ask.purpose, pair) for ask in self.asks for pair in ask.pairs]


def hear(gate: Gate, matter: Matter) -> Heard:
    """Answer a gate until its verdict; raise an `AssertionError` if it never reaches one."""
    asked: Asked = {}
    asks: list[Ask] = []
    views: list[View] = []
    for _ in range(ROUNDS):
        views.append(matter.view(asked))
        answer = gate.decide(views[-1])
        if isinstance(answer, Verdict):
            return Heard(answer, tuple(asks), tuple(views))
        asks += answer
        assert note_asked(asked, answer), f"`{gate.name}` asked for nothing new: {answer}"
    raise AssertionError(f"`{gate.name}` asked {ROUNDS} times and came to no verdict")


class WordEmbedder:
    """Embedder with word-hash vectors, or given vectors for some texts; every list is one call.

    The server of `kept.testing.server` makes its vectors the same way.
    """

    def __init__(
        self,
        given: Mapping[str, Sequence[float]] | None = None,
        *,
        name: str = "words",
        size: int = SIZE,
    ) -> None:
        self.name = name
        self.known_by = f"{name} of {size} numbers"
        self.calls: list[tuple[str, ...]] = []
        """Every list of texts received, including failed calls."""
        self._given = given or {}
        self._size = size
        self._faults: list[Failure] = []

    def fail(self, failure: Failure, times: int = 1) -> None:
        """Make the next calls fail."""
        self._faults.extend([failure] * times)

    def worst_usd(self, texts: Sequence[str]) -> float | None:
        """Zero: this embedder is free."""
        return 0.0

    async def embed(self, texts: Sequence[str]) -> Embedded | Failure:
        """One vector per text."""
        self.calls.append(tuple(texts))
        # a real embedder never answers within the same turn of the event loop
        await asyncio.sleep(0)
        if self._faults:
            return self._faults.pop(0)
        vectors = tuple(array("f", self._vector(text)) for text in texts)
        return Embedded(vectors, Usage(1, sum(len(text) // 4 + 1 for text in texts)))

    def _vector(self, text: str) -> Sequence[float]:
        known = self._given.get(text)
        return vector(text, self._size) if known is None else known


@dataclass(frozen=True, slots=True)
class AcceptAll:
    """Gate that keeps every proposal once it has been measured."""

    name: str = "accept-all"

    def decide(self, view: View) -> Verdict | tuple[Ask, ...]:
        """Keep."""
        sides = (view.incumbent, view.challenger)
        return asks_for(sides, view.holdout, 1, "decide") or Verdict("keep", "kept", best=True)

    def most_asked(self, train: int, holdout: int) -> int:
        """Maximum number of rollouts that a step adds."""
        return holdout

    def measure(self, view: View) -> Verdict | tuple[Ask, ...]:
        """The seed on all cases, once."""
        return _measured(view)


@dataclass(frozen=True, slots=True)
class RejectAll:
    """Gate that discards every proposal once it has been measured."""

    name: str = "reject-all"

    def decide(self, view: View) -> Verdict | tuple[Ask, ...]:
        """Discard."""
        sides = (view.incumbent, view.challenger)
        return asks_for(sides, view.holdout, 1, "decide") or Verdict("discard", "discarded")

    def most_asked(self, train: int, holdout: int) -> int:
        """Maximum number of rollouts that a step adds."""
        return holdout

    def measure(self, view: View) -> Verdict | tuple[Ask, ...]:
        """The seed on all cases, once."""
        return _measured(view)


def _measured(view: View) -> Verdict | tuple[Ask, ...]:
    return asks_for((view.challenger,), view.holdout, 1, "decide") or measured(view)


_GOOD = ("say what is meant", "show one example", "name the units", "check the sums")
_USELESS = ("be excellent", "think very hard", "take a deep breath", "this is important")
_HARMFUL = (
    "answer in rhyme",
    "guess when in doubt",
    "leave out the units",
    "be brief at all costs",
)


@dataclass(frozen=True, slots=True)
class Pool:
    """Lines whose effect is known: a good one adds `effect`, a harmful one subtracts it."""

    good: tuple[str, ...] = _GOOD
    useless: tuple[str, ...] = _USELESS
    harmful: tuple[str, ...] = _HARMFUL
    base: float = 0.5
    """Quality of a text with none of the lines."""
    effect: float = 0.1

    @property
    def lines(self) -> tuple[str, ...]:
        """All lines of the pool."""
        return (*self.good, *self.useless, *self.harmful)

    def quality(self, candidate: Candidate, case: Case) -> float:
        """The true quality of a candidate, the same on every case."""
        present = {line for text in candidate.texts.values() for line in text.splitlines()}
        # count before weighing: equal texts must not differ by a rounding error
        balance = len(present.intersection(self.good)) - len(present.intersection(self.harmful))
        return min(1.0, max(0.0, self.base + self.effect * balance))


@dataclass(frozen=True, slots=True, kw_only=True)
class ScriptedProposer:
    """Proposer of lines, a function of its brief; implements `kept.core.ports.Proposer`."""

    lines: tuple[str, ...]
    """Lines to propose, one per proposal, as long as the incumbent lacks them."""
    path: str = "text"
    name: str = "scripted"
    serial: bool = False
    model: Model | None = None
    """Model that is asked once per proposal, through the scope."""
    feedback: int = 0
    """Repeats of the train cases that are requested as feedback first."""

    async def propose(self, brief: Brief, scope: Scope) -> ProposerReply:
        """Append one more line, drawn by the brief's seed."""
        why = "drawn from the pool"
        if self.model is not None:
            reply = await self._consult(self.model, brief, scope)
            if isinstance(reply, Failure):
                return reply
            why = reply.text
        if self.feedback and not brief.answers:
            return self._ask(brief)
        present = set(brief.incumbent.texts.get(self.path, "").splitlines())
        left = [line for line in self.lines if line not in present]
        if not left:
            return Skip("every line of the pool is in the text", exhausted=True)
        line = random.Random(brief.seed).choice(left)
        return Proposal((Append(self.path, line + "\n"),), why=why)

    def most_asked(self, train: tuple[Case, ...]) -> int:
        """Number of rollouts requested first in each step."""
        return self.feedback * len(train)

    def _ask(self, brief: Brief) -> Ask:
        pairs = (Pair(case.id, n) for n in range(self.feedback) for case in brief.train)
        return Ask(brief.incumbent.id, tuple(pairs), "feedback")

    async def _consult(self, model: Model, brief: Brief, scope: Scope) -> ModelReply | Failure:
        text = f"step {brief.step}: what would you add to\n{brief.incumbent.texts[self.path]}"
        request = ModelRequest((Message("user", text),), seed=brief.seed)
        return await scope.call(request, ModelReply, lambda: model.complete(request))


class RecordingSink:
    """Recorder of events, states and rollouts; implements `kept.core.ports.Sink`."""

    def __init__(self) -> None:
        self.events: list[Event] = []
        self.states: list[State] = []
        """State after each event."""
        self.rollouts: list[tuple[Job, Outcome]] = []

    def on_event(self, event: Event, state: State) -> None:
        """Record the event."""
        self.events.append(event)
        self.states.append(state)

    def on_rollout(self, job: Job, outcome: Outcome) -> None:
        """Record the rollout."""
        self.rollouts.append((job, outcome))


Answer = Callable[[Mapping[str, object]], Awaitable[ToolAnswer | Failure]]

_ANYTHING: Mapping[str, object] = {"type": "object", "properties": {}}


@dataclass(frozen=True, slots=True)
class ScriptedTool:
    """Tool with scripted answers and recorded uses; implements `kept.core.ports.Tool`."""

    name: str
    answer: str | Answer
    """Answer text, or a function that returns the answer."""
    description: str = ""
    parameters: Mapping[str, object] = field(default_factory=lambda: dict(_ANYTHING))
    used: list[Mapping[str, object]] = field(default_factory=list[Mapping[str, object]])
    """Arguments of every use that was not served from the journal."""

    @property
    def offer(self) -> ToolOffer:
        """Name, description and parameters as offered to a model."""
        return ToolOffer(self.name, self.description, self.parameters)

    async def use(self, arguments: Mapping[str, object], scope: Scope) -> ToolAnswer | Failure:
        """Answer through the scope, so that the journal records it."""

        async def do() -> ToolAnswer | Failure:
            self.used.append(dict(arguments))
            if isinstance(self.answer, str):
                return ToolAnswer(self.answer)
            return await self.answer(arguments)

        request = {"tool": self.name, "arguments": dict(arguments)}
        return await scope.call(request, ToolAnswer, do, 0.0)
