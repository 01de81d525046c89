"""Summary of a run for all views: scoring in words, tie-breakers, shares of proposers.

Scoring is read from what the settings of a run have of its scorer; an unknown format gives no
text.
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
    """A criterion."""

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
    """How candidates are run or scored, as far as it is told in words."""

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
    """The runner or scorer of the settings of a run, or of a plan."""
    return decoded(document, Scoring, "settings.spec")


def scorer_words(told: Scoring) -> str:
    """One line about a scorer or a runner; empty where nothing is known of it."""
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
    """Whether models take part as judges."""
    return told.get("type") == "judge" or any(judges(part["scorer"]) for part in _parts(told))


def scoring_functions(told: Scoring) -> Iterator[str]:
    """The Python functions of the user that take part."""
    match told:
        case {"type": "python", "function": str(function)}:
            yield function
        case _:
            for part in _parts(told):
                yield from scoring_functions(part["scorer"])


def _parts(told: Scoring) -> list[Part]:
    return told.get("parts", [])


_BEST_KNOWN: tuple[Purpose, ...] = ("test", "promote", "decide", "screen")
"""Whose draws are shown: the first of these that both have met."""


class Tie(NamedTuple):
    """A tie-breaker, and its means."""

    metric: str
    was: float | None
    """Of the seed; None where no rollout emitted it."""
    now: float | None
    """Of the best."""


def ties_of(state: State) -> tuple[Tie, ...]:
    """Every tie-breaker of a run, in order; nothing while nothing was measured."""
    names = [one.partition(" ")[2] for one in state.settings.tie_breakers]
    seed = {e.purpose: e for e in state.evaluations.get(state.seed, ())}
    best = {e.purpose: e for e in state.evaluations.get(state.best, ())}
    both = next((purpose for purpose in _BEST_KNOWN if purpose in seed and purpose in best), None)
    if both is None:
        return ()
    return tuple(Tie(name, seed[both].metric(name), best[both].metric(name)) for name in names)


@dataclass(frozen=True, slots=True)
class Turns:
    """Of one proposer."""

    proposer: str
    turns: int
    """Steps that it opened."""
    near: int
    keeps: int
    """Steps that were kept, by themselves or together with others."""
    gain: float
    """That it is credited with, near misses that wait at half of what they promise."""
    rollouts: int
    """Of its candidates, for their verdicts."""
    usd: float
    """What these cost, and its own calls."""
    share: float | None
    """Of the turns that are drawn, when one last was; None where it has its turns as they come."""

    @property
    def share_words(self) -> str:
        """In percent; empty where there is none."""
        return "" if self.share is None else _percent(self.share)


def turns_of(state: State) -> tuple[Turns, ...]:
    """What each had, the most turns first; nothing where one proposer has them all."""
    names = sorted(set(state.turns) - {*OF_THE_RUN}, key=lambda name: (-state.turns[name], name))
    if len(names) < 2:
        return ()
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
    """All of it in a line: `edit 12 (3 in what was kept, share 62 %), reflect 5 (none)`.

    Several of them may be in one step that was kept, so these are not the counts of verdicts.
    """
    words: list[str] = []
    for row in rows:
        share = f", share {row.share_words}" if row.share_words else ""
        kept = f"{row.keeps or 'none'} in what was kept"
        words.append(f"{row.proposer} {row.turns} ({kept}{share})")
    return ", ".join(words)


def share_words(shares: Mapping[str, float]) -> str:
    """What shares a turn was drawn by: `edit 62 %, reflect 38 %`."""
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
    """What the proposer said of it."""
    value: float | None
    """The metric of its candidate on the deciding cases; None when it was not measured there, and
    for a crash, which is no measurement."""
    numbers: Mapping[str, float]
    incumbent: str
    candidate: str | None
    best: bool

    @property
    def word(self) -> str:
        """What a person calls the outcome."""
        return word_for(self.outcome, self.code)

    @property
    def kept(self) -> bool:
        """Whether its candidate became the incumbent."""
        return self.outcome == "keep"

    @property
    def proposed(self) -> bool:
        """True if there was something to keep."""
        return self.kept or self.refused

    @property
    def refused(self) -> bool:
        """Whether there was something to keep, and it was not."""
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
    """Seconds at work, over all sittings."""
    metric: str
    direction: str
    gate: str
    proposers: tuple[str, ...]
    cases: Mapping[str, int]
    """Number of cases by split; empty for a run without cases."""
    budget: Mapping[str, int | float]
    """The limits that were set."""
    seed: str
    best: str
    best_step: int | None
    seed_value: float | None
    best_value: float | None
    steps: tuple[StepLine, ...]
    open: tuple[int, ...]
    """Numbers of the steps without a verdict."""
    spend: Spend
    """Of closed and open steps."""
    not_enforced: tuple[str, ...] = ()
    """What nothing held the commands to."""
    functions: tuple[str, ...] = ()
    """Python functions of the user that score, which no walls are round."""
    leading: int | None = None
    """The step that made the incumbent, where that is kept and not yet proven to be the best."""
    claim: str = ""
    """What the sealed test said of the best, where it was asked."""
    claim_gain: float | None = None
    """The gain that it measured."""
    claim_low: float | None = None
    """The lower end of its interval."""
    claim_high: float | None = None
    """The upper end of its interval."""
    measured: str = ""
    """Cases that the values of seed and best are from: `12 test cases`; empty without cases."""
    ties: tuple[Tie, ...] = ()
    """What breaks ties, of the seed and of the best."""
    decided_seed: float | None = None
    """The seed's value by the draws that what was kept is told by: a race's, else a proof's."""
    unmeasured: tuple[Unmeasured, ...] = ()
    """Cases that failed for the seed and for every candidate."""
    lost: int = 0
    """Turns that an outage kept from their answer, and that have had none since."""
    comparison: "Comparison | None" = None
    """What came of it, where it is one."""
    turns: tuple[Turns, ...] = ()
    """Of each proposer, where there are several."""

    @property
    def improved(self) -> bool:
        """Whether the best is not the seed."""
        return self.best != self.seed

    @property
    def gained(self) -> bool:
        """Whether anything is better than the seed."""
        return self.improved or (self.comparison is not None and self.comparison.better)

    @property
    def outcomes(self) -> Mapping[str, int]:
        """Steps by verdict."""
        return Counter(step.outcome for step in self.steps)

    @property
    def proposals(self) -> int:
        """Steps in which a proposer proposed something; merges are counted apart."""
        return sum(step.proposed and step.proposer not in OF_THE_RUN for step in self.steps)

    @property
    def merges(self) -> int:
        """Candidates that the run put together from proposals by itself."""
        return sum(step.proposed and step.proposer == MERGE for step in self.steps)

    @property
    def empty_turns(self) -> int:
        """Turns in which a proposer proposed nothing."""
        return sum(not s.proposed and s.proposer not in OF_THE_RUN for s in self.steps)

    @property
    def never_judged(self) -> str:
        """Why no candidate was ever rolled out, most often; empty where one was."""
        reasons = Counter(step.reason for step in self.steps)
        if not reasons or any(step.code not in UNMEASURED for step in self.steps):
            return ""
        return reasons.most_common(1)[0][0]

    @property
    def keeps(self) -> int:
        """Steps that were kept."""
        return sum(step.kept and step.code != FOLLOWED for step in self.steps)

    @property
    def resumable(self) -> bool:
        """Whether it was cut short: stopped on request, by an error, or killed."""
        return self.status in ("interrupted", "stopped by an error", "killed")


def summary(run: Run) -> Summary:
    """A run at a glance."""
    state = run.state
    started = state.started
    assert started is not None, "a run that can be read has started"
    seed_value, best_value = values(state)
    claim = claim_of(state)
    since = max(0.0, state.sitting[1] - state.sitting[0]) if state.sitting else 0.0
    settings, objective = started.settings, objective_of(state)
    # the reasons of the index, which say what failed; those of the state are what proposers see
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
    # at use: few runs are comparisons
    from kept.results.compare import comparison_of

    return comparison_of(state, reasons, folder)


def _leading(state: State) -> int | None:
    if state.incumbent == state.best or state.settings.gate != "race":
        return None
    made = (step for step in reversed(state.history) if step.verdict.outcome == "keep")
    return next((step.step for step in made if step.candidate == state.incumbent), None)


def _decided_seed(state: State, otherwise: float | None) -> float | None:
    """A pool that is proven at once is never raced, and what is only screened not even proven."""
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
    """One closed step, from its row of the index and what was proposed."""
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
    """What the run improves, as far as its facts tell."""
    return objective_from(state.started)


def objective_from(started: RunStarted | None) -> Objective:
    """What a run improves, as far as the record of its start tells."""
    settings = started.settings if started else RunSettings()
    return Objective(settings.metric, settings.direction, constraints=settings.constraints)


def not_enforced(settings: RunSettings) -> tuple[str, ...]:
    """What the sandbox of a run did not enforce."""
    told = settings.spec.sandbox.get("not_enforced")
    return decoded(told or (), tuple[str, ...], "settings.spec.sandbox.not_enforced")


def values(state: State) -> tuple[float | None, float | None]:
    """The metric of seed and best on the test cases, else on others that both were measured on."""
    first, second, _ = measured_values(state)
    return first, second


def measured_on(state: State) -> str:
    """Cases that `values` are from, as in `12 test cases`; empty for a run without cases."""
    sizes, purpose = state.settings.cases, measured_values(state)[2]
    if not sizes or purpose is None or not state.settings.sampled:
        return ""
    known = state.evaluations.get(state.best, ())
    cases = max((len(e.cases) for e in known if e.purpose == purpose), default=0)
    split = {"test": "test", "screen": "train"}.get(purpose, "holdout")
    if split == "holdout" and cases > sizes.get("holdout", 0):
        split = "train and holdout"  # a final of variants, from which nobody learnt
    return count(cases, f"{split} case") if cases else ""


def measured_values(state: State) -> tuple[float | None, float | None, Purpose | None]:
    """The values of seed and best, and what the rollouts they are from were for."""
    objective = Objective(direction=state.settings.direction)
    # where every rollout failed, the loss is the worst there is, and nothing was measured
    losses: list[dict[Purpose, float | None]] = [
        {e.purpose: e.loss for e in state.evaluations.get(id_, ()) if e.failed < e.asked}
        for id_ in (state.seed, state.best)
    ]
    seed, best = losses
    # draws of one purpose for both; those that nothing was selected by first
    orders: tuple[Purpose, ...] = ("test", "promote", "decide", "screen", "measure")
    both: list[Purpose] = [p for p in orders if p in seed and p in best]
    # where a failure has no value there is no score, but what was proven has one all the same
    scored = [p for p in both if seed[p] is not None and best[p] is not None]
    common = scored or both or [*orders[2:]]
    pair = (next((known[p] for p in common if p in known), None) for known in (seed, best))
    found = [None if loss is None else objective.value(loss) for loss in pair]
    if found == [None, None] and state.best == state.seed:
        found = [state.settings.seed_value] * 2
    return found[0], found[1], next((p for p in common if p in best), None)


def claim_of(state: State) -> Verdict | None:
    """The last claim, if it is about what is the best now."""
    claims = (step for step in reversed(state.history) if step.verdict.code == "claim")
    last = next(claims, None)
    return last.verdict if last and last.candidate == state.best else None
