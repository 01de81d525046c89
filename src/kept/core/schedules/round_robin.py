"""Round-robin, fixed-turn and race schedules, and the choice of the text that a step edits.

A step edits the incumbent, or a near miss that does better on some cases. Edits that help only
together are never found from the incumbent alone. A near miss that has waited long is drawn by
the train cases on which it is the best. The incumbent is drawn at least three times in four:
where edits help independently, stacked edits cost more to judge.
"""

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import ClassVar

from kept.core.budget import Budget, EndMoney, Spend, StopReason, out_of_time
from kept.core.near_misses import handed_on
from kept.core.ports import Schedule
from kept.core.proposal import MERGE, Turn, derive_seed, ripe, strongest
from kept.core.score import Evaluation
from kept.core.state import State
from kept.core.text import count
from kept.core.turns import NOTHING, due

MOST = 0.25
"""Share of the turns in which near misses are built on, at most."""

WAITED = 24
"""Steps that one waits first: where much helps by itself, it is put together with others then."""


def choose_parent(state: State, seed: int, waited: int = WAITED) -> int | None:
    """The step of a near miss to build on; None for the incumbent."""
    shown = (e for e in state.evaluations.get(state.incumbent, ()) if e.purpose == "screen")
    mine = {case: tally.mean for one in shown for case, tally in one.cases.items()}
    # what was made for an earlier incumbent is another text by now
    ready = tuple(
        miss
        for miss in state.pool
        if state.history[miss.step].incumbent == state.incumbent
        and state.next_step - miss.step >= waited
    )
    wins = Counter(
        miss.step
        for case, miss in strongest(ready).items()
        if case in mine and dict(miss.losses)[case] < mine[case]
    )
    whole = max(len(mine), wins.total() / MOST)
    at = derive_seed(seed, "parent", state.next_step) / 2**48 * whole
    for step, won in sorted(wins.items()):
        at -= won
        if at < 0:
            return step
    return None


ALIKE = 1e-6
"""Less spread than this, against the mean, is rounding."""

MOST_PROOFS = 2
"""Of what was never raced, in a run."""

PROVE, CLAIM = "prove", "claim"
"""Proposers that have something measured at the end of a racing run."""

MEASURE = "measure"
"""The one that has the seed measured."""

OF_THE_RUN = (MERGE, PROVE, CLAIM, MEASURE)
"""Proposers that nobody named."""

LEAST_PASSES = 2
"""Over the deciding cases, for a proof."""

STUCK = 10
"""Duplicates in a row: proposers have nothing new to say of an incumbent while the pool waits."""


def able_of(proposers: Iterable[str], state: State) -> list[str]:
    """Those that have more to give; not who fails time and again, while there is anybody else."""
    able = [n for n in proposers if n not in state.exhausted or due(state.lost, n)]
    return [name for name in able if not state.brought.get(name, NOTHING).out] or able


def number_of(name: str, state: State) -> int:
    """Number of a proposer's next turn, which may be the retry of one after an outage."""
    again = due(state.lost, name)
    if again and (again[0].ready or name in state.exhausted):
        return again[0].number
    return state.turns.get(name, 0) - state.repeated.get(name, 0)


@dataclass(frozen=True, slots=True)
class RoundRobin:
    """Proposers take turns; one that has no more to give is left out."""

    proposers: tuple[str, ...]
    phase: str = "main"
    allows_pool: ClassVar[bool] = True

    def next(self, state: State) -> Turn | StopReason:
        """The proposer with the fewest turns, the earliest of equals."""
        able = able_of(self.proposers, state)
        if not able:
            return StopReason("nothing left to propose", "every proposer has run dry")
        name = min(able, key=lambda name: state.turns.get(name, 0))
        return Turn(proposer=name, phase=self.phase, number=number_of(name, state))

    def last(self, state: State) -> Turn | None:
        """Nothing more: what was kept is the best."""
        return None


@dataclass(frozen=True, slots=True)
class Turns:
    """So many turns of one proposer, each until it has its answer."""

    proposer: str
    count: int
    phase: str = "main"

    def next(self, state: State) -> Turn | StopReason:
        """The next one; what an outage kept from its answer is asked again."""
        told = {step.turn.number for step in state.history if step.verdict.code != "indecisive"}
        told |= {step.turn.number for step in state.open}
        for number in range(self.count):
            if number not in told and self.proposer not in state.exhausted:
                return Turn(self.proposer, self.phase, number)
        return StopReason("nothing left to propose", "all that was asked has its answer")

    def most_steps(self) -> int:
        """Most steps that measure anything new: a turn that is given again asks for the same."""
        return self.count

    def last(self, state: State) -> Turn | None:
        """Nothing more."""
        return None


@dataclass(frozen=True, slots=True)
class Pooling:
    """Has near misses put together when they are worth it, and what leads proven at the end."""

    inner: Schedule
    """Schedule of the proposers of the plan."""
    goal: float
    """Sum of estimates that the pool needs, in standard deviations of one rollout."""
    most: int
    late: int | None = None
    """Rollouts from which on the pool is raced as it is: soon there will be no money for it."""
    sealed: bool = False
    """True if there are test cases to claim by."""
    pools: bool = True
    """True if there are train cases to screen by; without, every proposal is raced at once."""
    climbs: bool = False
    """True if there are enough cases to race an unripe pool when proposers repeat themselves."""
    final: bool = False
    """True if all proposals wait for a final, so that none are merged."""
    builders: frozenset[str] = frozenset()
    """Proposers that may be given a near miss to build on."""
    waited: int = WAITED
    """Steps after which a near miss is built on."""
    seed: int = 0
    paid: "PaidByCall | None" = None
    """Set if money is limited and the cost of a rollout is not known before."""

    def next(self, state: State) -> Turn | StopReason:
        """The next turn of the inner schedule, unless the pool is ripe."""
        merging = any(step.turn.proposer == MERGE for step in state.open)
        # while nothing leads, the pool is not raced first and proven then, but proven at once
        late = _leads(state) and self._late(state)
        waits = merging or self.final or not state.pool
        if not waits and (late or ripe(state.pool, self.goal, self.most)):
            return _turn(MERGE, state)
        if not waits and self.climbs and _stuck(state) and _still(state):
            return _turn(MERGE, state)
        turn = self.inner.next(state)
        if isinstance(turn, StopReason) or turn.proposer in OF_THE_RUN:
            return turn
        builds = self.pools and turn.proposer in self.builders
        parent = choose_parent(state, self.seed, self.waited) if builds else None
        races = turn.races and not self.pools
        return replace(turn, races=races, still=_still(state), parent=parent)

    def last(self, state: State) -> Turn | None:
        """The rest of the pool, then the proof, then the claim.

        While nothing leads, the pool is proven; what fails may be tried by its better part, but not
        for ever: every further proof has less to risk, and costs as much.
        """
        passes = self._passes(state)
        provable = passes is None or passes >= LEAST_PASSES
        proofs = 1 if self.final else MOST_PROOFS
        if self.final and (before := handed_on(state.history, state.pool)) is not None:
            # what it was told to take up is known to the last draw: there is nothing to pay
            return replace(_turn(MERGE, state, proves=True), passes=before.turn.passes)
        if state.pool and (_leads(state) or state.ledger.promotions < proofs):
            turn = _turn(MERGE, state, proves=not _leads(state))
            if not turn.proves or provable:
                return replace(turn, passes=passes) if turn.proves else turn
        if _leads(state) and state.incumbent != state.tried and provable:
            return replace(_turn(PROVE, state), passes=passes)
        if self.sealed and state.best not in (state.seed, state.claimed):
            passes = self.paid.claim_passes(state.spend) if self.paid else None
            return replace(_turn(CLAIM, state), passes=passes)
        return None

    def _late(self, state: State) -> bool:
        if self.paid is not None and self.paid.late(state.spend):
            return True
        return self.late is not None and state.spend.rollouts >= self.late

    def _passes(self, state: State) -> int | None:
        return self.paid.proof_passes(state.spend) if self.paid else None


@dataclass(frozen=True, slots=True)
class PaidByCall:
    """Cost of the end of a race, where the price of a rollout is learnt on the way."""

    money: EndMoney
    last_race: int
    """Rollouts that a last race of the pool is left."""
    look: int
    """Rollouts by which several together are looked at first."""
    proof_pass: int
    claim_pass: int
    """Rollouts of both sides in one pass."""
    claims: int
    """Rollouts that are set aside for the claim."""
    final: tuple[tuple[int, int], ...] = ()
    """Rollouts of a final by its passes, if the proof is a final."""

    def late(self, spend: Spend) -> bool:
        """True if the pool must be raced now, because there soon will be no money for it."""
        for_end = self.money.aside(self.money.rollouts, spend.usd_a_rollout)
        left = self.money.left(spend, for_end)
        return left is not None and left < self.last_race

    def proof_passes(self, spend: Spend) -> int | None:
        """As many as leave the claim its money; None while nothing is known."""
        least = self.claim_pass if self.claims else 0
        aside = self.money.aside(self.claims, spend.usd_a_rollout, least) if self.claims else 0.0
        left = self.money.left(spend, aside)
        if left is not None and self.final:
            return max((passes for passes, needed in self.final if needed <= left), default=0)
        return None if left is None else max(0, (left - self.look) // self.proof_pass)

    def claim_passes(self, spend: Spend) -> int | None:
        """As many as can be paid; None while nothing is known."""
        left = self.money.left(spend)
        return None if left is None else max(1, left // self.claim_pass)


def _still(state: State) -> bool:
    """True if all known repeats of the incumbent and the seed agree."""
    found = False
    for id_ in dict.fromkeys((state.seed, state.incumbent)):
        for alike in map(repeats_alike, state.evaluations.get(id_, ())):
            if alike is False:
                return False
            found = found or alike is True
    return found


def repeats_alike(shown: Evaluation) -> bool | None:
    """True if cases gave the same answer each time; None if none was asked twice."""
    repeated = None
    for tally in shown.cases.values():
        if tally.n > 1:
            # one that differs is enough: an evaluator with noise shows it on the first cases
            if tally.std > ALIKE * max(1.0, abs(tally.mean)):
                return False
            repeated = True
    return repeated


def _leads(state: State) -> bool:
    """True if anything was kept that is not proven yet."""
    return state.incumbent != state.best


def _stuck(state: State) -> bool:
    """True if the last steps proposed only duplicates."""
    last = state.history.last(STUCK)
    return len(last) == STUCK and all(step.verdict.code == "duplicate" for step in last)


def _turn(name: str, state: State, *, proves: bool = False) -> Turn:
    races = name == MERGE and not proves
    number = state.turns.get(name, 0)
    return Turn(name, "race", number, races=races, proves=proves, still=_still(state))


def budget_stop(budget: Budget, state: State, elapsed: float) -> StopReason | None:
    """Limit that lets no further step open; None if one may."""
    if budget.max_iterations is not None and state.next_step >= budget.max_iterations:
        n = budget.max_iterations
        words = "the only iteration is used" if n == 1 else f"all {n} iterations are used"
        return StopReason("iterations", words)
    return too_many_failures(budget, state) or out_of_time(budget, elapsed)


def too_many_failures(budget: Budget, state: State) -> StopReason | None:
    """Reason to end a run that keeps crashing; None while it may go on."""
    if budget.max_failures is None or state.crashes < budget.max_failures:
        return None
    return StopReason("failures", f"{count(state.crashes, 'step')} crashed, the limit")
