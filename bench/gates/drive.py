"""Drives a real gate through one run, as `kept.engine.judge` does, with draws instead of rollouts.

Proposals come without end; a run is over when an Ask no longer fits into its budget. What one
purpose drew is never used for another, and a pair that was paid for is not paid for again.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol, runtime_checkable

from bench.gates.arms import Arm
from bench.gates.ground import Candidate, Ground
from bench.gates.tallies import OBJECTIVE, Drawn, evaluation, places
from kept.core.alpha import Ledger
from kept.core.ports import Gate
from kept.core.proposal import Ask, Asked, NearMiss, Pool, note_asked, raced, ripe
from kept.core.rollout import Pair, Purpose
from kept.core.schedules.round_robin import repeats_alike
from kept.core.score import Answers, Evaluation
from kept.core.verdict import Side, Verdict, View
from kept.errors import RunError
from kept.gates._common import passes
from kept.recipes.race_choice import LAST_PART, LAST_RACE

MOST = 20_000
"""Proposals of a run: a gate that decides without looking must end too."""

Decide = Callable[[View], Verdict | tuple[Ask, ...]]


@runtime_checkable
class Chooses(Protocol):
    """A rule with a pool, which says whom the next proposal is made for."""

    def parent(self) -> str | None: ...


@runtime_checkable
class Proves(Protocol):
    """A gate that keeps what leads apart from what is proven."""

    def prove(self, view: View) -> Verdict | tuple[Ask, ...]: ...


@dataclass(frozen=True, slots=True)
class Run:
    """What became of one run; gains are true ones, on fresh cases."""

    final: float
    """Gain of the last incumbent over the seed."""
    best: float
    """Gain of what stands in `best/`."""
    promoted: bool
    """Whether that is another than the seed."""
    claimed: float
    """The gain that the run would report."""
    shown: float
    """The gain of the best that the evaluator would show on fresh cases when the run reports: where
    it drifts and is flaky, another than the true one."""
    effects: tuple[float, ...]
    """Of every keep, against the incumbent that it replaced."""
    proposals: int
    """That got a verdict."""
    rollouts: int
    looks: int
    """How often the gate was asked."""
    seconds: float = field(compare=False)
    """Of processor time that the gate took for them."""


@dataclass(slots=True)
class State:
    """Where a run stands; what `kept.core.state` folds out of a journal."""

    seed: Candidate
    incumbent: Candidate
    best: Candidate
    verdicts: list[Verdict] = field(default_factory=list[Verdict])
    effects: list[float] = field(default_factory=list[float])
    ledger: Ledger = field(default_factory=Ledger)
    pool: Pool = ()

    @property
    def keeps(self) -> int:
        return len(self.effects)


class Shown(NamedTuple):
    """What a gate sees of the rollouts of one candidate for one purpose."""

    evaluation: Evaluation
    losses: Answers


@dataclass(slots=True)
class Known:
    """All that was drawn of one candidate, and what was made of it."""

    drawn: dict[Purpose, Drawn] = field(default_factory=dict[Purpose, Drawn])
    shown: dict[tuple[Purpose, tuple[Pair, ...]], Shown] = field(
        default_factory=dict[tuple[Purpose, tuple[Pair, ...]], Shown]
    )
    """What is complete: it is the same whoever asks for it again."""
    unread: list[Evaluation] = field(default_factory=list[Evaluation])
    """Of these, those that `alike` does not take in yet."""
    _alike: bool | None = None

    def alike(self) -> bool | None:
        """Whether every repeat said the same; None where there was none."""
        for told in map(repeats_alike, self.unread):
            if told is not None:
                self._alike = told and self._alike is not False
        self.unread.clear()
        return self._alike


class OutOfBudget(Exception):
    """An Ask does not fit any more."""


class Drive:
    """One arm on one ground."""

    def __init__(self, arm: Arm, ground: Ground) -> None:
        self._arm, self._ground = arm, ground
        self._gate: Gate = arm.make(ground.first.key)
        self._pool = self._gate if isinstance(self._gate, Chooses) else None
        train, holdout, test = ground.split
        names = ground.names
        self._train, self._holdout = names[:train], names[train : train + holdout]
        self._test = passes(names[train + holdout :], arm.test_repeats) if test else ()
        self._limit = ground.budget - (2 * len(self._test) if arm.claim == "test" else 0)
        self._reserve = 2 * arm.reserve * len(self._holdout)
        self._limit -= self._reserve
        self._last_race = min(2 * LAST_RACE * len(self._holdout), int(ground.budget * LAST_PART))
        self._pools = arm.pool[1] > 0
        self._state = State(ground.first, ground.first, ground.first)
        self._alive = {ground.first.id: ground.first}
        self._known: dict[str, Known] = {}
        self._rollouts = self._looks = 0
        self._seconds = 0.0

    def run(self) -> Run:
        """From the seed until the budget is used up."""
        number = 0
        while number < MOST:
            parent = self._parent()
            members = self._ripe()
            challenger = self._ground.merged(parent, members or (number,))
            self._alive[challenger.id] = challenger
            try:
                verdict = self._judge(challenger, parent, number, members)
            except OutOfBudget:
                break
            self._close(challenger, parent, verdict)
            self._note(verdict, number, members)
            number += not members
        self._limit += self._reserve
        self._prove_pool()
        self._promote()
        return self._result()

    def _ripe(self) -> tuple[int, ...]:
        """What is to be raced as one; nothing while the pool grows."""
        pool = self._state.pool
        leads = self._state.incumbent is not self._state.best
        late = leads and self._rollouts >= self._limit - self._last_race
        if not pool or not (late or ripe(pool, *self._arm.pool)):
            return ()
        return self._best_first()

    def _best_first(self) -> tuple[int, ...]:
        pool = self._state.pool
        pool = [miss for miss in pool if miss.alone][:1] or pool
        return tuple(miss.step for miss in sorted(pool, key=lambda miss: -miss.estimate))

    def _prove_pool(self) -> None:
        """While nothing leads, the pool is proven at once, as `core.schedule` would have it."""
        state = self._state
        while state.pool and state.incumbent is state.best:
            parent, members = state.incumbent, self._best_first()
            challenger = self._ground.merged(parent, members)
            self._alive[challenger.id] = challenger
            try:
                extra = {"merged": len(members), "proves": True, "still": self._still()}
                verdict = self._dialogue(self._gate.decide, challenger, parent, **extra)
            except OutOfBudget:
                break
            self._close(challenger, parent, verdict)
            promotions = state.ledger.promotions + 1
            state.ledger = state.ledger._replace(promotions=promotions)
            kept, gain = verdict.outcome == "keep", verdict.numbers.get("gain", 0.0)
            state.pool = raced(state.pool, members, kept, gain)

    def _note(self, verdict: Verdict, number: int, members: tuple[int, ...]) -> None:
        """What the verdict does to the ledger and to the pool."""
        state, kept = self._state, verdict.outcome == "keep"
        if members or not self._pools:
            state.ledger = state.ledger.give()
            if kept:
                state.ledger = state.ledger.keep(state.ledger.tests)
        if "chosen" in verdict.numbers:
            state.ledger = state.ledger.chose()
        if members:
            gain = verdict.numbers.get("gain", 0.0)
            state.pool = raced(state.pool, members, kept, gain)
        elif verdict.code == "near miss":
            state.pool = (*state.pool, NearMiss(number, verdict.numbers["estimate"]))

    def _promote(self) -> None:
        """At the end, with what was set aside: is what leads better for new cases?"""
        state, gate = self._state, self._gate
        if not isinstance(gate, Proves) or state.incumbent is state.best:
            return
        verdict = self._dialogue(gate.prove, state.incumbent, state.best, still=self._still())
        if verdict.best:
            state.best = state.incumbent

    def _still(self) -> bool:
        """Whether repeats tell nothing new, as `core.schedule` sees it."""
        ours = (self._state.seed.id, self._state.incumbent.id)
        told = [self._known[id_].alike() for id_ in ours if id_ in self._known]
        return True in told and False not in told

    def _parent(self) -> Candidate:
        if self._pool is None:
            return self._state.incumbent
        name = self._pool.parent()
        return self._alive[name] if name else self._state.seed

    def _judge(
        self, challenger: Candidate, incumbent: Candidate, number: int, members: tuple[int, ...]
    ) -> Verdict:
        cites = () if members else self._ground.cites(number)
        pools = self._pools and not members
        extra = {"cites": cites, "merged": len(members), "pools": pools, "still": self._still()}
        return self._dialogue(self._gate.decide, challenger, incumbent, **extra)

    def _dialogue(
        self, ask: Decide, challenger: Candidate, incumbent: Candidate, **extra: object
    ) -> Verdict:
        """The dialogue with the gate, as in `kept.engine.judge`."""
        asked: Asked = {}
        sides = {id_: Side(id_) for id_ in (challenger.id, incumbent.id, self._state.best.id)}
        while True:
            view = View(
                challenger=sides[challenger.id],
                incumbent=sides[incumbent.id],
                best=sides[self._state.best.id],
                train=self._train,
                holdout=self._holdout,
                objective=OBJECTIVE,
                ledger=self._state.ledger,
                **extra,  # pyright: ignore[reportArgumentType] # by name
            )
            began = time.process_time()
            answer = ask(view)
            self._seconds += time.process_time() - began
            self._looks += 1
            if isinstance(answer, Verdict):
                return answer
            fresh = note_asked(asked, answer)
            if not fresh:
                raise RunError(f"the gate `{self._gate.name}` asked for nothing new")
            self._roll_out(fresh)
            for id_, purpose in fresh:
                sides[id_] = self._more(sides[id_], purpose, asked[id_, purpose])

    def _more(self, side: Side, purpose: Purpose, pairs: tuple[Pair, ...]) -> Side:
        """A side of which more is known than before."""
        shown = self._sum_up(side.id, purpose, pairs)
        known: dict[Purpose, Evaluation] = {**side.known, purpose: shown.evaluation}
        if not self._arm.pairs:
            return Side(side.id, known)
        return Side(side.id, known, {**side.losses, purpose: shown.losses})

    def _roll_out(self, asked: Asked) -> None:
        """All at once: what comes first among them makes no difference."""
        work = [
            (key, drawn := self._drawn_of(*key), drawn.open(pairs)) for key, pairs in asked.items()
        ]
        cost = sum(len(pairs) for _, _, pairs in work)
        if self._rollouts + cost > self._limit:
            raise OutOfBudget
        for (candidate, purpose), drawn, pairs in work:
            drawn.roll_out(self._ground, self._alive[candidate], purpose, pairs, self._rollouts)
        self._rollouts += cost

    def _known_of(self, candidate: str) -> Known:
        found = self._known.get(candidate)
        if found is None:
            found = self._known[candidate] = Known()
        return found

    def _drawn_of(self, candidate: str, purpose: Purpose) -> Drawn:
        return self._known_of(candidate).drawn.setdefault(purpose, Drawn())

    def _sum_up(self, candidate: str, purpose: Purpose, pairs: tuple[Pair, ...]) -> Shown:
        known = self._known_of(candidate)
        found = known.shown.get((purpose, pairs))
        if found is None:
            drawn = known.drawn[purpose]
            answers = drawn.answered(pairs)
            found = Shown(evaluation(candidate, purpose, pairs, answers, drawn.failed), answers)
            if not found.evaluation.missing:
                known.shown[purpose, pairs] = found
                known.unread.append(found.evaluation)
        return found

    def _close(self, challenger: Candidate, parent: Candidate, verdict: Verdict) -> None:
        """A keep moves the incumbent; `best` moves by the verdict's word."""
        state = self._state
        state.verdicts.append(verdict)
        if verdict.outcome == "keep":
            truth = self._ground.truth
            state.effects.append(truth(challenger) - truth(parent))
            state.incumbent = challenger
        if verdict.best:
            state.best = challenger
        if self._pool is None:
            self._forget()

    def _forget(self) -> None:
        """What is out of play is never asked for again."""
        state = self._state
        alive = {one.id: one for one in (state.seed, state.incumbent, state.best)}
        if len(self._alive) > len(alive):
            self._alive = alive
            self._known = {id_: known for id_, known in self._known.items() if id_ in alive}

    def _result(self) -> Run:
        state, truth = self._state, self._ground.truth
        if self._pool is not None:
            # the run returns its best; there is no incumbent beside it
            state.incumbent = state.best
        then = [self._ground.shown(one, self._rollouts) for one in (state.best, state.seed)]
        claimed = self._claim() if state.best is not state.seed else 0.0
        base = truth(state.seed)
        return Run(
            final=truth(state.incumbent) - base,
            best=truth(state.best) - base,
            promoted=state.best is not state.seed,
            claimed=claimed,
            shown=then[0] - then[1],
            effects=tuple(state.effects),
            proposals=len(state.verdicts),
            rollouts=self._rollouts,
            looks=self._looks,
            seconds=self._seconds,
        )

    def _claim(self) -> float:
        """The best against the seed, by the rollouts that the arm reports."""
        purpose = self._arm.claim
        sides = (self._state.seed.id, self._state.best.id)
        if purpose == "test":
            self._limit = self._ground.budget
            self._roll_out({(side, purpose): self._test for side in sides})
        was, now = (self._loss(side, purpose) for side in sides)
        return was - now

    def _loss(self, side: str, purpose: Purpose) -> float:
        """Over all that was drawn for a purpose: the mean over cases of each case's mean."""
        losses, place = self._drawn_of(side, purpose).losses, places(self._ground.names)
        pairs = tuple(sorted(losses, key=lambda pair: (pair.repeat, place[pair.case])))
        answers = Answers({pair: losses[pair] for pair in pairs})
        return evaluation(side, purpose, pairs, answers).loss or 0.0
