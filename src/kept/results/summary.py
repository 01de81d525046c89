"""Summary of a run for all views: scoring in words, tie-breakers, shares of proposers.

Scoring is read from the run's recorded settings; an unknown format gives no text.
"""

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, TypedDict, cast

from kept.core.budget import Spend, StopReason
from kept.core.event import Document, RunSettings, RunStarted
from kept.core.objective import Objective
from kept.core.plan import COMPARE
from kept.core.proposal import MERGE, ClosedStep, Proposal, Reply
from kept.core.rollout import Purpose
from kept.core.schedules.round_robin import OF_THE_RUN
from kept.core.state import State
from kept.core.text import count
from kept.core.turns import NOTHING
from kept.core.verdict import (
    FOLLOWED,
    IDLE,
    UNMEASURED,
    Verdict,
    VerdictCode,
    VerdictKind,
    word_for,
)
from kept.store.jsonl import decoded
from kept.store.overview import journalled_spend
from kept.store.reader import Run, Unmeasured, unmeasured
from kept.store.step_index import StepRow

if TYPE_CHECKING:
    from kept.results.compare import Comparison


class Named(TypedDict):
    """A criterion of a judge."""

    name: str


class Rule(TypedDict):
    """A rule of a scorer."""

    kind: str


class Judge(TypedDict):
    """A model that judges."""

    provider: str
    model: str


class Pairwise(TypedDict, total=False):
    """A comparison in both orders."""

    prompt: str | None


class Part(TypedDict):
    """A part of a composite scorer."""

    name: str
    scorer: "Scoring"


class Scoring(TypedDict, total=False):
    """Recorded settings of a runner or scorer that its description in words uses."""

    type: str
    command: object
    agent: str
    model: object
    function: str
    rules: list[Rule]
    criteria: list[Named]
    judges: list[Judge] | None
    draws: int
    cap: float | None
    pairwise: Pairwise | None
    prompt: str | list[str] | None
    parts: list[Part]


def scoring_in(document: Document) -> Scoring:
    """Decode the runner or scorer in the settings of a run or plan."""
    return decoded(document, Scoring, "settings.spec")


def scorer_words(told: Scoring) -> str:
    """Describe a scorer or runner in one line; empty if its type is unknown."""
    match told:
        case {"command": str(command)}:
            return f"`{command}`"
        case {"type": "agent", "agent": str(agent), "model": str(model)}:
            return f"the agent `{agent}` with `{model}`"
        case {"type": "model", "model": str(model)}:
            return f"the model `{model}`"
        case {"type": "python", "function": str(function)}:
            return f"the Python function `{function}`"
        case {"type": "rules"}:
            kinds = dict.fromkeys(rule["kind"] for rule in told.get("rules", ()))
            return f"rules: {', '.join(kinds)}"
        case {"type": "judge"}:
            return _judge_words(told)
        case {"type": "assertions"}:
            return "what each case asserts"
        case {"type": "composite"}:
            parts = [f"{one['name']} ({scorer_words(one['scorer'])})" for one in _parts(told)]
            return f"a weighted mean of {', '.join(parts)}"
        case _:
            return ""


def _judge_words(told: Scoring) -> str:
    pairwise = told.get("pairwise")
    names = [criterion["name"] for criterion in told.get("criteria", ())]
    names += ["a comparison in both orders"] if pairwise else []
    judges = [f"{one['provider']}/{one['model']}" for one in told.get("judges") or ()]
    by = f" by {', '.join(judges)}" if judges else ""
    times = f", {told.get('draws')} draws each" if told.get("draws", 1) > 1 else ""
    floor = f"; rules cap it at {told.get('cap') or 0:g}" if told.get("rules") else ""
    prompts = (told.get("prompt"), (pairwise or Pairwise()).get("prompt"))
    own = [prompt for prompt in prompts if isinstance(prompt, str) and prompt]
    by_prompt = f"; told by your {' and '.join(own)}" if own else ""
    return f"judged{by}{times}: {', '.join(names)}{floor}{by_prompt}"


def judges(told: Scoring) -> bool:
    """True if models take part as judges."""
    return told.get("type") == "judge" or any(judges(part["scorer"]) for part in _parts(told))


def scoring_functions(told: Scoring) -> Iterator[str]:
    """Yield the user's Python functions that take part."""
    match told:
        case {"type": "python", "function": str(function)}:
            yield function
        case _:
            for part in _parts(told):
                yield from scoring_functions(part["scorer"])


def _parts(told: Scoring) -> list[Part]:
    return told.get("parts", [])


_BEST_KNOWN: tuple[Purpose, ...] = ("test", "promote", "decide", "screen")
"""Purposes of rollouts, in order of preference: the first that seed and best share is shown."""


class Tie(NamedTuple):
    """A tie-breaker and its means."""

    metric: str
    was: float | None
    """Mean of the seed; None if no rollout emitted it."""
    now: float | None
    """Mean of the best; None if no rollout emitted it."""


def ties_of(state: State) -> tuple[Tie, ...]:
    """All tie-breakers of a run in order; empty until seed and best share a measurement."""
    names = [one.partition(" ")[2] for one in state.settings.tie_breakers]
    seed = {e.purpose: e for e in state.evaluations.get(state.seed, ())}
    best = {e.purpose: e for e in state.evaluations.get(state.best, ())}
    both = next((purpose for purpose in _BEST_KNOWN if purpose in seed and purpose in best), None)
    if both is None:
        return ()
    return tuple(Tie(name, seed[both].metric(name), best[both].metric(name)) for name in names)


@dataclass(frozen=True, slots=True)
class Turns:
    """Statistics of one proposer."""

    proposer: str
    turns: int
    """Number of steps that it opened."""
    near: int
    keeps: int
    """Number of steps that were kept, alone or merged with others."""
    gain: float
    """Credited gain; promising proposals that wait count for half of their promise."""
    rollouts: int
    """Number of rollouts that the verdicts on its candidates took."""
    usd: float
    """Cost of these rollouts and of its own calls."""
    share: float | None
    """Probability of the next turn, as of the last random choice; None if turns are not random."""

    @property
    def share_words(self) -> str:
        """The share in percent; empty without one."""
        return "" if self.share is None else _percent(self.share)


def turns_of(state: State) -> tuple[Turns, ...]:
    """Statistics of the proposers, the most turns first; empty if there is only one."""
    names = sorted(set(state.turns) - {*OF_THE_RUN}, key=lambda name: (-state.turns[name], name))
    if len(names) < 2:
        return ()
    # the latest first: open steps are newer than most closed ones
    drawn = (step.turn.shares for step in (*reversed(state.open), *reversed(state.history)))
    last = next((given for given in drawn if given), dict[str, float]())
    rows = ((name, state.brought.get(name, NOTHING)) for name in names)
    return tuple(
        Turns(
            name,
            state.turns[name],
            mine.near,
            mine.keeps,
            mine.gain,
            mine.rollouts,
            mine.usd,
            last.get(name),
        )
        for name, mine in rows
    )


def turns_words(rows: tuple[Turns, ...]) -> str:
    """Describe the proposers in one line: `edit 12 (3 in what was kept, share 62 %)`.

    One kept step may merge the proposals of several, so these are not the counts of verdicts.
    """
    words: list[str] = []
    for row in rows:
        share = f", share {row.share_words}" if row.share_words else ""
        kept = f"{row.keeps or 'none'} in what was kept"
        words.append(f"{row.proposer} {row.turns} ({kept}{share})")
    return ", ".join(words)


def share_words(shares: Mapping[str, float]) -> str:
    """Probabilities that a proposer was chosen by: `edit 62 %, reflect 38 %`."""
    return ", ".join(f"{name} {_percent(share)}" for name, share in shares.items())


def _percent(share: float) -> str:
    return f"{100 * share:.0f} %"


@dataclass(frozen=True, slots=True, kw_only=True)
class StepLine:
    """One closed step, in a line."""

    step: int
    phase: str
    proposer: str
    outcome: VerdictKind
    code: VerdictCode
    reason: str
    why: str
    """The proposer's reason for it."""
    value: float | None
    """The metric of its candidate on the deciding cases; None if it was not measured there, or
    crashed."""
    numbers: Mapping[str, float]
    incumbent: str
    candidate: str | None
    best: bool

    @property
    def word(self) -> str:
        """The outcome's name for users."""
        return word_for(self.outcome, self.code)

    @property
    def kept(self) -> bool:
        """True if its candidate became the incumbent."""
        return self.outcome == "keep"

    @property
    def proposed(self) -> bool:
        """True if there was something to keep."""
        return self.kept or self.refused

    @property
    def refused(self) -> bool:
        """True if there was something to keep and it was not kept."""
        return not self.kept and self.code not in IDLE


@dataclass(frozen=True, slots=True, kw_only=True)
class Summary:
    """A run at a glance."""

    run: str
    folder: Path
    version: str
    recipe: str
    spec: str
    status: str
    stopped: StopReason | None
    """None while it runs, and after a kill."""
    started: float
    elapsed: float
    """Working time in seconds, over all sessions."""
    metric: str
    direction: str
    gate: str
    proposers: tuple[str, ...]
    cases: Mapping[str, int]
    """Number of cases by split; empty for a run without cases."""
    budget: Mapping[str, int | float]
    """Limits that were set, by name."""
    seed: str
    best: str
    best_step: int | None
    seed_value: float | None
    best_value: float | None
    steps: tuple[StepLine, ...]
    open: tuple[int, ...]
    """Numbers of the steps without a verdict."""
    spend: Spend
    """Spend of closed and open steps."""
    not_enforced: tuple[str, ...] = ()
    """Limits on commands that the sandbox did not enforce."""
    functions: tuple[str, ...] = ()
    """The user's Python functions that score, outside any sandbox."""
    leading: int | None = None
    """The step that made the incumbent, if it is kept but not yet proven to be the best."""
    claim: str = ""
    """Verdict of the sealed test on the best; empty if it was not tested."""
    claim_gain: float | None = None
    """The gain that the test measured."""
    claim_low: float | None = None
    """The lower end of its interval."""
    claim_high: float | None = None
    """The upper end of its interval."""
    measured: str = ""
    """Cases behind the values of seed and best: `12 test cases`; empty without cases."""
    ties: tuple[Tie, ...] = ()
    """Tie-breakers, with the means of seed and best."""
    decided_seed: float | None = None
    """The seed's value in the rollouts that the keeps rest on: a race's, else a proof's."""
    unmeasured: tuple[Unmeasured, ...] = ()
    """Cases that failed for the seed and for every candidate."""
    lost: int = 0
    """Number of turns that an outage left without an answer until now."""
    comparison: "Comparison | None" = None
    """Result of the comparison; None for other runs."""
    turns: tuple[Turns, ...] = ()
    """Statistics of each proposer; empty if there is only one."""

    @property
    def improved(self) -> bool:
        """True if the best is not the seed."""
        return self.best != self.seed

    @property
    def gained(self) -> bool:
        """True if anything is better than the seed, also a challenger of a comparison."""
        return self.improved or (self.comparison is not None and self.comparison.better)

    @property
    def outcomes(self) -> Mapping[str, int]:
        """Number of steps by verdict."""
        return Counter(step.outcome for step in self.steps)

    @property
    def proposals(self) -> int:
        """Number of steps in which a proposer proposed something; merges are counted apart."""
        return sum(step.proposed and step.proposer not in OF_THE_RUN for step in self.steps)

    @property
    def merges(self) -> int:
        """Number of candidates that the run itself merged from proposals."""
        return sum(step.proposed and step.proposer == MERGE for step in self.steps)

    @property
    def empty_turns(self) -> int:
        """Number of turns in which a proposer proposed nothing."""
        return sum(not s.proposed and s.proposer not in OF_THE_RUN for s in self.steps)

    @property
    def never_judged(self) -> str:
        """Most common reason why no candidate was measured; empty if one was."""
        reasons = Counter(step.reason for step in self.steps)
        if not reasons or any(step.code not in UNMEASURED for step in self.steps):
            return ""
        return reasons.most_common(1)[0][0]

    @property
    def keeps(self) -> int:
        """Number of kept steps, without those that were only followed."""
        return sum(step.kept and step.code != FOLLOWED for step in self.steps)

    @property
    def resumable(self) -> bool:
        """True if it was cut short: stopped on request, by an error, or killed."""
        return self.status in ("interrupted", "stopped by an error", "killed")


def summary(run: Run) -> Summary:
    """A run at a glance."""
    state = run.state
    started = state.started
    assert started is not None, "a run that can be read has started"
    seed_value, best_value = values(state)
    claim = claim_of(state)
    # `state.elapsed` lacks the present session
    since = max(0.0, state.sitting[1] - state.sitting[0]) if state.sitting else 0.0
    settings, objective = started.settings, objective_of(state)
    # reasons from the index say what failed; those in the state are the part for proposers
    reasons = {row.step: row.reason for row in run.steps}
    return Summary(
        run=run.id,
        folder=run.folder,
        version=started.version,
        recipe=started.recipe,
        spec=settings.spec.path,
        status=run.status,
        stopped=state.stopped,
        started=started.t,
        elapsed=state.elapsed + since,
        metric=settings.metric,
        direction=objective.direction,
        gate=settings.gate,
        proposers=settings.proposers,
        cases=settings.cases or {},
        budget={name: n for name, n in asdict(settings.budget).items() if n is not None},
        not_enforced=not_enforced(settings),
        functions=tuple(scoring_functions(scoring_in(settings.spec.scorer))),
        seed=state.seed,
        best=state.best,
        best_step=state.best_step,
        seed_value=seed_value,
        best_value=best_value,
        steps=tuple(_row(step, objective, reasons[step.step]) for step in state.history),
        open=tuple(step.step for step in state.open),
        leading=_leading(state),
        claim=claim.reason if claim else "",
        claim_gain=claim.numbers.get("gain") if claim else None,
        claim_low=claim.numbers.get("low") if claim else None,
        claim_high=claim.numbers.get("high") if claim else None,
        measured=measured_on(state),
        ties=ties_of(state),
        decided_seed=_decided_seed(state, seed_value),
        unmeasured=unmeasured(run, state),
        lost=len(state.lost),
        turns=turns_of(state),
        comparison=_comparison(state, reasons, run.folder),
        spend=journalled_spend(run.folder, state),
    )


_COMPARES = {COMPARE: True}


def _comparison(state: State, reasons: Mapping[int, str], folder: Path) -> "Comparison | None":
    if state.started is None or not _COMPARES.get(state.started.recipe):
        return None
    # imported at use: few runs are comparisons
    from kept.results.compare import comparison_of

    return comparison_of(state, reasons, folder)


def _leading(state: State) -> int | None:
    if state.incumbent == state.best or state.settings.gate != "race":
        return None
    made = (step for step in reversed(state.history) if step.verdict.outcome == "keep")
    return next((step.step for step in made if step.candidate == state.incumbent), None)


def _decided_seed(state: State, otherwise: float | None) -> float | None:
    """Seed's value in a race, else in a proof, else `otherwise`.

    A pool that is proven at once is never raced; a run that only screened has no proof either.
    """
    known = {e.purpose: e.loss for e in state.evaluations.get(state.seed, ()) if e.failed < e.asked}
    loss = known.get("decide", known.get("promote"))
    return otherwise if loss is None else objective_of(state).value(loss)


def _row(step: ClosedStep, objective: Objective, words: str) -> StepLine:
    verdict = step.verdict
    loss = None if verdict.outcome == "crash" else step.loss
    return StepLine(
        step=step.step,
        phase=step.turn.phase,
        proposer=step.turn.proposer,
        outcome=verdict.outcome,
        code=verdict.code,
        reason=words,
        why=step.proposal.why if step.proposal else "",
        value=None if loss is None else objective.value(loss),
        numbers=verdict.numbers,
        incumbent=step.incumbent,
        candidate=step.candidate,
        best=verdict.best,
    )


def line_of(row: StepRow, objective: Objective, reply: Reply | None) -> StepLine:
    """Build the line of a closed step from its index row and the proposal."""
    loss = None if row.outcome == "crash" else row.measured
    return StepLine(
        step=row.step,
        phase=row.phase,
        proposer=row.proposer,
        outcome=cast("VerdictKind", row.outcome),
        code=cast("VerdictCode", row.code),
        reason=row.reason,
        why=reply.why if isinstance(reply, Proposal) else "",
        value=None if loss is None else objective.value(loss),
        numbers=row.numbers,
        incumbent=row.incumbent,
        candidate=row.candidate,
        best=row.best,
    )


def objective_of(state: State) -> Objective:
    """The run's objective, as far as its record has it."""
    return objective_from(state.started)


def objective_from(started: RunStarted | None) -> Objective:
    """Objective from the record of a run's start, with defaults for what is missing."""
    settings = started.settings if started else RunSettings()
    return Objective(settings.metric, settings.direction, constraints=settings.constraints)


def not_enforced(settings: RunSettings) -> tuple[str, ...]:
    """Limits that the sandbox of a run did not enforce."""
    told = settings.spec.sandbox.get("not_enforced")
    return decoded(told or (), tuple[str, ...], "settings.spec.sandbox.not_enforced")


def values(state: State) -> tuple[float | None, float | None]:
    """The metric of seed and best on test cases, else on others that both were measured on."""
    first, second, _ = measured_values(state)
    return first, second


def measured_on(state: State) -> str:
    """Cases behind `values`, such as `12 test cases`; empty for a run without cases."""
    sizes, purpose = state.settings.cases, measured_values(state)[2]
    if not sizes or purpose is None or not state.settings.sampled:
        return ""
    known = state.evaluations.get(state.best, ())
    cases = max((len(e.cases) for e in known if e.purpose == purpose), default=0)
    split = {"test": "test", "screen": "train"}.get(purpose, "holdout")
    if split == "holdout" and cases > sizes.get("holdout", 0):
        split = "train and holdout"  # a final of variants: no proposer learnt
    return count(cases, f"{split} case") if cases else ""


def measured_values(state: State) -> tuple[float | None, float | None, Purpose | None]:
    """Values of seed and best, and the purpose of the rollouts behind them."""
    objective = Objective(direction=state.settings.direction)
    # if every rollout failed, the loss is the worst possible and measures nothing
    losses: list[dict[Purpose, float | None]] = [
        {e.purpose: e.loss for e in state.evaluations.get(id_, ()) if e.failed < e.asked}
        for id_ in (state.seed, state.best)
    ]
    seed, best = losses
    # the same purpose for both; first those whose rollouts selected nothing (unbiased)
    orders: tuple[Purpose, ...] = ("test", "promote", "decide", "screen", "measure")
    both: list[Purpose] = [p for p in orders if p in seed and p in best]
    # prefer purposes with scores on both sides: a failure without a value leaves no score
    scored = [p for p in both if seed[p] is not None and best[p] is not None]
    common = scored or both or [*orders[2:]]
    pair = (next((known[p] for p in common if p in known), None) for known in (seed, best))
    found = [None if loss is None else objective.value(loss) for loss in pair]
    if found == [None, None] and state.best == state.seed:
        found = [state.settings.seed_value] * 2
    return found[0], found[1], next((p for p in common if p in best), None)


def claim_of(state: State) -> Verdict | None:
    """Verdict of the last test, if it was about the current best."""
    claims = (step for step in reversed(state.history) if step.verdict.code == "claim")
    last = next(claims, None)
    return last.verdict if last and last.candidate == state.best else None
