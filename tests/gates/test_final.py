"""The final: the best of a few alternatives, proven, and nothing else."""

import hashlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace

import pytest

from kept.core.alpha import Ledger
from kept.core.near_misses import AHEAD, ENTERED
from kept.core.objective import Constraint, Objective
from kept.core.proposal import Asked, note_asked
from kept.core.rollout import Failure, Pair, Purpose
from kept.core.score import Evaluation, Outcome, losses_of, summarize
from kept.core.verdict import Side, Verdict, View
from kept.gates.final import Final
from kept.gates.race import Race
from tests.sampling import some_or_all

TRAIN = tuple(f"t{n}" for n in range(15))
HOLDOUT = tuple(f"h{n}" for n in range(25))
SEED = "the seed"

Rate = Callable[[str, str], float]
"""How often a text passes a case."""


def chance(*what: object) -> float:
    return int(hashlib.sha256(repr(what).encode()).hexdigest()[:12], 16) / 16**12


def flat(rates: Mapping[str, float]) -> Rate:
    return lambda text, case: rates[text]


@dataclass
class Table:
    """Answers what a gate asks, and counts it."""

    rate: Rate
    number: int = 0
    objective: Objective = field(default_factory=lambda: Objective("score", "maximize", (0.0, 1.0)))
    broken: frozenset[str] = frozenset()
    """Texts that fail on every case."""
    answered: set[tuple[str, Pair]] = field(default_factory=set[tuple[str, Pair]])

    def outcome(self, text: str, pair: Pair) -> Outcome:
        if text in self.broken:
            return Outcome(failure=Failure("crash", "candidate", "it fell over"))
        passed = chance(self.number, text, pair) < self.rate(text, pair.case)
        cost = float(chance(self.number, text, pair, "cost") < 0.5)
        return Outcome(metrics={"score": float(passed), "length": float(len(text)), "cost": cost})

    def hear(self, race: Race, view: View) -> Verdict:
        """The end of a dialogue about the challenger of a view."""
        asked: Asked = {}
        for _ in range(99):
            answer = race.decide(self.filled(view, asked))
            if isinstance(answer, Verdict):
                return answer
            assert note_asked(asked, answer), "it asked for nothing new"
            self.answered |= {(ask.candidate, pair) for ask in answer for pair in ask.pairs}
        raise AssertionError("it never ended")

    def filled(self, view: View, asked: Asked) -> View:
        shown = {side.id: self.side(side.id, asked) for side in _sides(view)}
        return view._replace(
            challenger=shown[view.challenger.id],
            incumbent=shown[view.incumbent.id],
            best=shown[view.best.id],
            finalists=tuple(shown[side.id] for side in view.finalists),
        )

    def side(self, text: str, asked: Asked) -> Side:
        known: dict[Purpose, Evaluation] = {}
        losses: dict[Purpose, Mapping[Pair, float]] = {}
        for (owner, purpose), pairs in asked.items():
            if owner == text:
                rows = [(pair, self.outcome(text, pair)) for pair in pairs]
                known[purpose] = summarize(text, purpose, rows, self.objective)
                losses[purpose] = losses_of(rows, self.objective)
        return Side(text, known, losses)

    def view(self, text: str, finalists: tuple[str, ...] = (), entered: int = 1) -> View:
        seed = Side(SEED)
        return View(
            Side(text), seed, seed, TRAIN, HOLDOUT, self.objective,
            finalists=tuple(map(Side, finalists)), merged=len(finalists[:1]), pools=True,
            proves=bool(finalists), ledger=Ledger(chosen=entered),
        )  # fmt: skip


def _sides(view: View) -> tuple[Side, ...]:
    return (view.challenger, view.incumbent, view.best, *view.finalists)


def hold(table: Table, texts: tuple[str, ...], race: Race | None = None) -> tuple[str | None, Race]:
    """A whole final: who enters, and who is kept."""
    race = race or Race(final=Final(among=len(texts)))
    told = {text: table.hear(race, table.view(text)) for text in texts}
    assert all(verdict.outcome != "keep" for verdict in told.values())
    finalists = tuple(text for text in texts if told[text].code == "near miss")
    best_first = sorted(finalists, key=lambda text: -told[text].numbers["estimate"])
    if not finalists:
        return None, race
    settled = table.hear(race, table.view(best_first[0], finalists, len(texts)))
    if AHEAD not in settled.numbers:
        return (best_first[0] if settled.outcome == "keep" else None), race
    winner = finalists[int(settled.numbers[AHEAD])]
    again = table.hear(race, table.view(winner, finalists, len(texts)))
    assert (again.outcome, again.best) == ("keep", True), "both hear the same"
    return winner, race


UNLUCKY = 40
"""A run whose first pass is dearer than those after it."""

RATES = {SEED: 0.3, "worse": 0.1, "idle": 0.3, "good": 0.55, "better": 0.75}


@pytest.mark.parametrize("number", range(10))
def test_the_best_of_the_alternatives_is_kept_whatever_comes_first(number: int):
    texts = ("worse", "good", "idle", "better")
    assert hold(Table(flat(RATES), number), texts)[0] == "better"
    assert hold(Table(flat(RATES), number), texts[::-1])[0] == "better"


def test_train_cases_decide_too():
    table = Table(flat(RATES))
    hold(table, ("good", "better"))
    met = {pair.case for _, pair in table.answered}
    assert met == {*TRAIN, *HOLDOUT}


def kept_falsely(rate: Callable[[int], Rate], runs: int) -> int:
    texts = tuple(f"copy {n}" for n in range(6))
    return sum(hold(Table(rate(number), number), texts)[0] is not None for number in range(runs))


RUNS = (80, 4), (20, 2)
"""How many there are, nightly and else, and how many of them may keep something: about 5 %."""


@pytest.mark.slow
@some_or_all
def test_where_no_alternative_is_better_next_to_nothing_is_kept(everything: bool):
    runs, most = RUNS[not everything]
    assert kept_falsely(lambda number: lambda text, case: 0.5, runs) <= most


@pytest.mark.slow
@some_or_all
def test_a_text_that_is_better_on_these_cases_by_luck_is_not_proven_for_others(everything: bool):
    def by_case(number: int) -> Rate:
        # on each case another text is good; over all cases there ever are, none is better
        return lambda text, case: chance("effect", number, text, case)

    runs, most = RUNS[not everything]
    assert kept_falsely(by_case, runs) <= most


def test_what_would_be_proven_alone_is_not_as_one_of_many():
    table = Table(flat({**RATES, "good": 0.38}), 3)
    race = Race(final=Final(among=1, passes=(8,)))
    alone = table.hear(race, table.view("good", ("good",), 1))
    among = table.hear(race, table.view("good", ("good",), 16))
    assert alone.numbers["alpha_promote"] == pytest.approx(16 * among.numbers["alpha_promote"])
    assert (alone.outcome, among.outcome) == ("keep", "discard")
    assert alone.numbers["gain"] == among.numbers["gain"]


def test_all_looks_together_risk_no_more_than_the_level():
    race = Race(final=Final(among=1))
    table = Table(flat({**RATES, "good": 0.36}), 1)
    told = table.hear(race, table.view("good", ("good",), 1))
    passes = race.final.passes
    assert told.numbers["alpha_promote"] in [
        pytest.approx(race.promote_alpha * look / sum(passes)) for look in passes
    ]


def test_it_costs_no_more_than_it_says():
    for number in range(6):
        table = Table(lambda text, case: 0.5 + 0.02 * (text != SEED), number)
        texts = tuple(f"copy {n}" for n in range(9))
        _, race = hold(table, texts)
        most = race.final.first(40) + race.final.rest(40)
        assert len(table.answered) <= most


def test_who_is_far_behind_is_not_asked_again():
    table = Table(flat({**RATES, "good": 0.7}))
    hold(table, ("idle", "good", "better"))
    asked = {text: sum(who == text for who, _ in table.answered) for text in RATES}
    assert asked["idle"] == 40, "it entered, and that was all"
    assert asked["good"] == asked["better"] > 40


def test_without_noise_two_passes_are_enough_and_one_where_that_is_known():
    def fixed(text: str, case: str) -> float:
        return float(chance(text, case) < {**RATES, "good": 0.7}[text])

    table = Table(fixed)
    assert hold(table, ("good", "better"))[0] in ("good", "better")
    assert {pair.repeat for _, pair in table.answered} == {0, 1}
    still = Table(fixed)
    view = still.view("better", ("good", "better"), 2)._replace(still=True)
    told = still.hear(Race(final=Final(among=2)), view)
    assert told.outcome == "keep" or AHEAD in told.numbers
    assert {pair.repeat for _, pair in still.answered} == {0}


def test_a_text_that_breaks_a_constraint_is_not_kept_and_the_next_one_is():
    short = Objective(
        "score", "maximize", (0.0, 1.0), constraints=(Constraint("length", "<=", 4.0),)
    )
    table = Table(flat(RATES), objective=short)
    assert hold(table, ("good", "better"))[0] == "good"


def test_a_constraint_that_only_seems_broken_on_few_draws_is_held_to_the_last_look():
    cheap = Objective(
        "score", "maximize", (0.0, 1.0), constraints=(Constraint("cost", "<=", 0.55),)
    )
    table = Table(flat(RATES), UNLUCKY, cheap)
    first = [table.outcome("better", Pair(case, 0)) for case in (*TRAIN, *HOLDOUT)]
    assert sum(outcome.metrics["cost"] for outcome in first) > 0.55 * len(first)
    assert hold(table, ("better",))[0] == "better"
    never = replace(cheap, constraints=(Constraint("cost", "<=", 0.1),))
    race, strict = Race(final=Final(among=1)), Table(flat(RATES), UNLUCKY, never)
    told = strict.hear(race, strict.view("better", ("better",)))
    assert (told.outcome, told.code) == ("discard", "constraint")


def test_a_text_that_never_runs_crashes_and_one_that_runs_is_kept_of_a_seed_that_does_not():
    race = Race(final=Final(among=2))
    table = Table(flat(RATES), broken=frozenset({"good"}))
    assert table.hear(race, table.view("good")).outcome == "crash"
    broken = Table(flat(RATES), broken=frozenset({SEED}), objective=Objective("score", "maximize"))
    told = broken.hear(race, broken.view("good"))
    assert (told.outcome, told.best) == ("keep", True)


def test_what_enters_waits_and_what_is_worse_does_not():
    race, table = Race(final=Final(among=2)), Table(flat(RATES))
    good, worse = (table.hear(race, table.view(text)) for text in ("better", "worse"))
    assert (good.code, worse.code) == ("near miss", "judged")
    assert "chosen" in good.numbers.keys() & worse.numbers.keys(), "both were looked at"
    assert ENTERED in good.numbers
    assert "goes to the final" in good.reason


def test_a_budget_that_is_too_small_has_fewer_passes_or_no_final():
    final = Final()
    whole = final.fitted(8, 100, None)
    assert whole is not None
    assert whole == replace(final, among=8)
    most = whole.first(100) + whole.rest(100)
    assert final.fitted(8, 100, most) == whole
    less = final.fitted(8, 100, most - 1)
    assert less is not None
    assert max(less.passes) < 8
    assert less.first(100) + less.rest(100) < most
    assert final.fitted(8, 100, whole.first(100)) is None
    assert final.fitted(17, 100, None) is None
    assert final.fitted(0, 100, None) is None
