"""Run page: common parts of every kind of run, and the type of the entries of `kinds`.

Each entry describes the view of one recipe's runs.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple, Protocol
from weakref import WeakKeyDictionary

from kept.core.schedules.round_robin import OF_THE_RUN
from kept.core.text import count, no_better, one_line
from kept.core.verdict import FOLLOWED, gain_in
from kept.results.race import Outcome
from kept.results.summary import line_of, objective_from
from kept.store.overview import Glance
from kept.store.reader import Run
from kept.store.run_index import RunRow, nearest_limit
from kept.store.step_index import StepRow
from kept.ui.report.format import duration
from kept.ui.report.race import conclusion, deciding_cases
from kept.ui.web.charts import meter, spend_chart, trajectory
from kept.ui.web.templates import Links, figure, gained, money, share, signed, span, thousands

PAGE = 50
"""Steps per page of the table."""

WORDS = {"keep": "kept", "discard": "discarded", "crash": "crashed", "skip": "skipped"}
SIGNS = {"keep": "✓", "discard": "✗", "crash": "!", "skip": "·"}
STATES = {
    "running": "running",
    "finished": "finished",
    "failed": "failed",
    "interrupted": "interrupted",
    "stopped by an error": "crashed",
    "killed": "crashed",
    "unreadable": "unreadable",
}
FILTERS = ("all", "kept", "refused", "measured", "idle")


class Fact(NamedTuple):
    """A label and its value."""

    name: str
    words: str


def state_of(status: str) -> str:
    """Status of a run as one of the words used by filters."""
    return STATES.get(status, status)


def headline(told: Glance) -> str:
    """Outcome in one line."""
    first, last = told.values
    if told.best != told.seed:
        gain = told.gain
        ends = (gain.low, gain.high) if gain else (None, None)
        return f"{told.metric} {figure(first, *ends)} → {figure(last, *ends)}"
    if not told.rows:
        return f"nothing was judged{'' if told.status == 'finished' else ' yet'}"
    if first is None:
        return "nothing was kept, and the seed has no score"
    seed, leading = f"{told.metric} {figure(first)}", _leading(told)
    if leading is not None and told.status != "finished":
        return f"nothing is proven yet: step {leading} leads, and the seed has {seed}"
    return f"{no_better(told.status)}: {seed}"


class Named(Protocol):
    """Kind of a run, as far as the head of a page shows it."""

    @property
    def word(self) -> str:
        """Name of the kind."""
        ...

    @property
    def refinable(self) -> bool:
        """True if runs of this kind have a refinement page."""
        ...


def top(told: Glance, kind: Named) -> dict[str, object]:
    """Template values for the head of every page of a run."""
    stopped = told.stopped
    return {
        "run": told.id,
        "kind": kind.word,
        "refinable": kind.refinable,
        "status": told.status,
        "state": state_of(told.status),
        "why": stopped.message if stopped else "",
        "started": told.begun.t,
        "spec": told.settings.spec.path,
        "metric": told.metric,
        "direction": told.direction,
    }


def overview(told: Glance, links: Links) -> dict[str, object]:
    """Template values for charts and figures."""
    first, last = told.values
    gain = told.gain
    # error risk left for later tests; absent for gates without such a budget
    risks = (r.numbers["alpha_left"] for r in reversed(told.rows) if "alpha_left" in r.numbers)
    return {
        "headline": headline(told),
        "seed_value": first,
        "best_value": last,
        "best_step": told.best_step,
        "made_by": made_by(told),
        "improved": told.best != told.seed,
        "gain": gain,
        "gain_words": gained(gain.mean, gain.low, gain.high) if gain else "",
        "measured": told.measured_on,
        "leading": _leading(told),
        "claim": claim.reason if (claim := _claim_row(told)) else "",
        **pictures(told, links),
        "limits": limits(told),
        "alpha": next(risks, None),
        "facts": facts(told),
        "open": told.open,
    }


_drawn: WeakKeyDictionary[Glance, tuple[object, dict[str, object]]] = WeakKeyDictionary()


def pictures(told: Glance, links: Links) -> dict[str, object]:
    """Charts of a run, cached until its files change: a long run has many points."""
    mark = (told.size, len(told.open), links.live)
    known = _drawn.get(told)
    if known is None or known[0] != mark:
        outcome = outcome_of(told)
        charts: dict[str, object] = {
            "trajectory": trajectory(told, lambda step: links.step(told.id, step)),
            "spend_chart": spend_chart(told),
            "counts": verdicts(told),
            "conclusion": conclusion(outcome),
            "deciding": deciding_cases(outcome) if outcome.cases.get("holdout") else "",
        }
        known = _drawn[told] = (mark, charts)
    return known[1]


def outcome_of(told: Glance) -> Outcome:
    """Facts for the conclusion, from the index of a run's steps."""
    claim = _claim_row(told)
    numbers = claim.numbers if claim else {}
    return Outcome(
        recipe=told.begun.recipe,
        gate=told.settings.gate,
        status=told.status,
        cases=told.settings.cases or {},
        seed_value=told.values[0],
        improved=told.best != told.seed,
        steps=tuple(line_of(row, objective_from(told.started), None) for row in told.rows),
        claim_gain=numbers.get("gain"),
        claim_low=numbers.get("low"),
        claim_high=numbers.get("high"),
    )


def _leading(told: Glance) -> int | None:
    """Step that made the incumbent, if the incumbent is not proven yet."""
    if told.incumbent == told.best or told.settings.gate != "race":
        return None
    made = (row.step for row in reversed(told.rows) if row.kept and row.candidate == told.incumbent)
    return next(made, None)


def made_by(told: Glance) -> list[int]:
    """Steps whose changes are in the best, in order; steps that only proved it are left out."""
    steps: list[int] = []
    wanted = told.best
    for row in reversed(told.rows):
        if wanted == told.seed:
            break
        if row.kept and row.candidate == wanted:
            steps.append(row.step)
            wanted = row.incumbent
    return steps[::-1]


def _claim_row(told: Glance) -> StepRow | None:
    """Last test on the sealed cases, if it concerns the current best."""
    last = next((row for row in reversed(told.rows) if row.code == "claim"), None)
    return last if last is not None and last.candidate == told.best else None


def limits(told: Glance) -> list[Mapping[str, object]]:
    """Each limit of the budget with its used share."""
    budget, spend = told.settings.budget, told.spend
    most = budget.max_iterations
    # merges and the final test may exceed the limit; they do not count against it
    steps = len(told.rows) if most is None else min(len(told.rows), most)
    used: dict[str, tuple[float, str, Callable[[float], str]]] = {
        "max_iterations": (steps, "iterations", thousands),
        "max_minutes": (told.elapsed / 60, "minutes", _minutes),
        "max_usd": (spend.usd, "", money),
        "max_rollouts": (spend.rollouts, "rollouts", thousands),
    }
    found: list[Mapping[str, object]] = []
    for name, (value, unit, words) in used.items():
        limit: float | None = getattr(budget, name)
        if limit is not None and limit > 0:
            text = f"{words(value)} of {words(limit)} {unit}".strip()
            found.append({"words": text, "bar": meter(value / limit, f"{text} used")})
    return found


def _minutes(value: float) -> str:
    return f"{value:.3g}"


def facts(told: Glance) -> list[Fact]:
    """Settings and spend of a run."""
    begun, spend = told.begun, told.spend
    settings = begun.settings
    rows = [
        ("gate", settings.gate),
        ("proposers", ", ".join(settings.proposers)),
        ("cases", _cases(settings.cases)),
        ("at work", duration(told.elapsed)),
        ("rollouts", thousands(spend.rollouts)),
        ("model calls", thousands(spend.calls) if spend.calls else ""),
        (
            "tokens",
            f"{thousands(spend.tokens_in)} in, {thousands(spend.tokens_out)} out"
            if spend.calls
            else "",
        ),
        ("cost", money(spend.usd) if spend.usd or spend.calls else ""),
        ("sittings", thousands(len(told.sittings)) if len(told.sittings) > 1 else ""),
        ("kept", begun.version),
    ]
    return [Fact(name, words) for name, words in rows if words]


def _cases(counts: Mapping[str, int] | None) -> str:
    if counts is None:
        return "none: the whole evaluator is one case"
    names = {"train": "train", "holdout": "that decide", "test": "sealed"}
    return ", ".join(
        f"{counts[split]} {word}" for split, word in names.items() if counts.get(split)
    )


def verdicts(told: Glance) -> str:
    """Verdict counts, as in `2 kept, 3 discarded; 4 turns proposed nothing`."""
    judged: dict[str, int] = {}
    idle = 0
    for row in told.rows:
        if row.judged:
            word = FOLLOWED if row.code == FOLLOWED else WORDS[row.outcome]
            judged[word] = judged.get(word, 0) + 1
        elif row.proposer not in OF_THE_RUN:
            idle += 1
    words = ", ".join(f"{judged[w]} {w}" for w in (*WORDS.values(), FOLLOWED) if w in judged)
    rest = [f"{count(idle, 'turn')} proposed nothing"] if idle else []
    rest += [f"{count(len(told.open), 'step')} open"] if told.open else []
    return "; ".join(part for part in (words, *rest) if part)


def step_table(told: Glance, show: str, page: int) -> dict[str, object]:
    """One page of the steps, newest first."""
    wanted = [row for row in reversed(told.rows) if is_shown(row, show)]
    pages = max(1, -(-len(wanted) // PAGE))
    page = min(max(1, page), pages)
    rows = wanted[(page - 1) * PAGE : page * PAGE]
    return {
        "rows": [step_line(row, told) for row in rows],
        "page": page,
        "pages": pages,
        "total": len(wanted),
        "show": show,
        "filters": FILTERS,
        "phases": len({row.phase for row in told.rows}) > 1,
        "paid": told.spend.usd > 0,
    }


def is_shown(row: StepRow, show: str) -> bool:
    """True if a step passes the filter."""
    match show:
        case "kept":
            return row.kept and row.code != FOLLOWED
        case "refused":
            return row.judged and not row.kept
        case "measured":
            return row.measured is not None
        case "idle":
            return not row.judged
        case _:
            return True


def step_line(row: StepRow, told: Glance) -> dict[str, object]:
    """One step as a row of the table."""
    numbers = row.numbers
    gain = gain_in(numbers)
    loss = None if row.outcome == "crash" else row.measured
    return {
        "step": row.step,
        "phase": row.phase,
        "proposer": row.proposer,
        "outcome": row.outcome,
        "word": _word(row),
        "sign": "◆" if row.best else SIGNS.get(row.outcome, "·"),
        "best": row.best,
        "value": told.value(loss),
        "gain": signed(gain, numbers.get("low"), numbers.get("high")) if gain is not None else "",
        "span": span(numbers.get("low"), numbers.get("high")),
        "rollouts": row.rollouts,
        "usd": row.spend.usd,
        "reason": one_line(row.reason, 200),
        # a turn without a proposal has its reason in both fields; show it once
        "why": "" if row.reason.startswith(row.why[:80]) else row.why,
    }


def _word(row: StepRow) -> str:
    if row.code in ("promoted", "not promoted", "claim", "near miss", "measured", "note", FOLLOWED):
        return row.code
    if row.code in ("better", "not better", "worse", "cannot tell"):
        return row.code
    if not row.judged:
        return "nothing proposed"
    return WORDS.get(row.outcome, row.outcome)


def progress(told: Glance) -> str:
    """Used share of the nearest limit, in words; empty without a limit."""
    name, part = nearest_limit(told)
    return f"{share(min(1.0, part))} of {name}" if name else ""


View = dict[str, object]


@dataclass(frozen=True, slots=True)
class Asked:
    """Filter and page number of a long body."""

    show: str = "all"
    page: int = 1


def no_body(run: Run, told: Glance, asked: Asked) -> View:
    """Body without additional template values."""
    return {}


def steps_result(row: RunRow, folder: Path) -> str:
    """Result of a run with steps, for the list."""
    if not row.steps and row.status != "running":
        return row.reason
    if row.seed_value is None:
        return "no score yet" if row.status == "running" else "no score"
    if row.keeps and row.best_value != row.seed_value:
        return f"{row.metric} {figure(row.seed_value)} → {figure(row.best_value)}"
    return f"{row.metric} {figure(row.seed_value)}"


@dataclass(frozen=True, slots=True)
class Kind:
    """Display of a recipe's runs."""

    word: str
    template: str = "run_steps.html"
    body: Callable[[Run, Glance, Asked], View] = no_body
    result: Callable[[RunRow, Path], str] = steps_result
    headline: Callable[[Run, Glance], str] = field(default=lambda run, told: headline(told))
    steps: bool = True
    """True if it has steps to list."""
    refinable: bool = False
    """True if runs of this kind have a refinement page."""
    step: Callable[[Run, int, View], View] = field(default=lambda run, step, view: view)
    """Adds template values to those that every step has."""
