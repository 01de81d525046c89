"""Simplifications: kept where they are no worse than by a margin, and not where they may be."""

import random
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import cache

import pytest

from kept.core.alpha import Ledger, level
from kept.core.objective import Constraint, Objective
from kept.core.proposal import Ask, Asked, note_asked
from kept.core.rollout import Failure, Pair
from kept.core.score import Outcome
from kept.core.verdict import Verdict, View
from kept.gates._statistics import chance_of
from kept.gates.race import Race
from kept.gates.simplify import Simplify
from kept.testing.fakes import CHALLENGER, INCUMBENT, Draw, Heard, Matter, hear
from tests.sampling import some_or_all

MARGIN = Simplify().margin
WIDER = Race(simplify=Simplify(margin=0.1))
"""A margin that few draws show."""

BEST = "best"
CRASHED = Outcome(failure=Failure("crash", "candidate", "it crashed"))
TRAIN = tuple(f"t{n}" for n in range(12))


@dataclass(frozen=True)
class Simpler:
    """The race, told that what it looks at is meant to be simpler."""

    race: Race = field(default_factory=Race)
    ledger: Ledger = field(default_factory=Ledger)
    still: bool = False
    leads: bool = False
    """Whether the incumbent was kept as better since the best moved."""
    name: str = "simpler"

    def decide(self, view: View) -> Verdict | tuple[Ask, ...]:
        bars = (view.best, view.incumbent) if self.leads else ()
        return self.race.decide(
            view._replace(simplifies=True, bars=bars, ledger=self.ledger, still=self.still)
        )


def world(
    seed: object,
    losses: dict[str, float],
    *,
    cases: int = 30,
    train: tuple[str, ...] = (),
    noise: bool = True,
    levels: tuple[float, float] = (0.9, 0.2),
) -> Matter:
    """Cases that mostly pass or mostly fail; each candidate loses as much on every one of them."""
    holdout = tuple(f"h{n}" for n in range(cases))

    @cache
    def score(owner: str, purpose: str, pair: Pair) -> float:
        chance = levels[int(pair.case[1:]) % 2]
        repeat = pair.repeat if noise else 0
        fell = random.Random(f"{seed} {owner} {purpose} {pair.case} {repeat}").random()
        return float(fell < chance - losses.get(owner, 0.0))

    def outcome(draw: Draw) -> Outcome:
        return Outcome({"score": score(draw.owner, draw.purpose, draw.pair)})

    return Matter(outcome=outcome, train=train, holdout=holdout, best=BEST)


def share(runs: int, verdict: Callable[[int], Verdict]) -> float:
    return sum(verdict(seed).outcome == "keep" for seed in range(runs)) / runs


RUNS = (200, 0.05), (40, 0.1)
"""How many there are, nightly and else, and how large a share of them may be kept."""


@pytest.mark.slow
@some_or_all
def test_a_loss_of_twice_the_margin_is_hardly_ever_kept(everything: bool):
    def verdict(seed: int) -> Verdict:
        # at the highest level that a run ever gives: one keep after the other
        ledger = Ledger(cuts=4, cuts_kept=(1, 2, 3, 4))
        return hear(Simpler(ledger=ledger), world(seed, {CHALLENGER: 2 * MARGIN})).verdict

    runs, most = RUNS[not everything]
    assert share(runs, verdict) <= most


@pytest.mark.slow
@some_or_all
def test_a_loss_of_the_margin_itself_is_kept_no_more_often_than_its_level(everything: bool):
    ledger = Ledger(cuts=4, cuts_kept=(1, 2, 3, 4))
    assert 0.01 < level(ledger.of_cuts, 0.05) <= 0.05

    def verdict(seed: int) -> Verdict:
        return hear(Simpler(ledger=ledger), world(seed, {CHALLENGER: MARGIN})).verdict

    runs, most = RUNS[not everything]
    assert share(runs, verdict) <= most


@pytest.mark.slow
@some_or_all
def test_an_equal_text_is_often_kept_and_a_worse_one_is_dropped_for_much_less(everything: bool):
    runs, few = 40 if everything else 12, (0.97, 0.05)

    def heard(loss: float) -> list[Heard]:
        worlds = (world(seed, {CHALLENGER: loss}, train=TRAIN, levels=few) for seed in range(runs))
        return [hear(Simpler(), one) for one in worlds]

    same, worse = heard(0.0), heard(0.2)
    kept = sum(one.verdict.outcome == "keep" for one in same) / runs
    assert kept >= 0.6
    assert not any(one.verdict.outcome == "keep" for one in worse)

    def cost(heard: list[int]) -> float:
        return sum(heard) / len(heard)

    mine = [len({d for d in one.draws if d.owner == CHALLENGER}) for one in same]
    theirs = [len({d for d in one.draws if d.owner == CHALLENGER}) for one in worse]
    assert cost(theirs) < cost(mine) / 4


WIDE, STEP = 0.15, 0.05
"""A margin that is seen quickly, and a loss well inside it."""


def chain(seed: int, *, against_best: bool) -> float:
    """What ten simplifications lose in all, each a third of the margin more than the last kept."""
    lost, ledger = 0.0, Ledger()
    for step in range(10):
        losses = {CHALLENGER: lost + STEP, INCUMBENT: lost, BEST: 0.0 if against_best else lost}
        race = Race(simplify=Simplify(margin=WIDE))
        matter = world((seed, step), losses, cases=20, levels=(0.95, 0.65))
        keeps = hear(Simpler(race, ledger), matter).verdict.outcome == "keep"
        ledger = ledger.cut(ledger.cuts + 1, kept=keeps)
        lost += STEP * keeps
    return lost


@pytest.mark.slow
@some_or_all
def test_ten_simplifications_inside_the_margin_do_not_add_up_to_more_than_it(everything: bool):
    runs = 10 if everything else 3
    depths = [chain(seed, against_best=True) for seed in range(runs)]
    assert max(depths) > 0, "some are kept"
    assert max(depths) <= WIDE + 1e-9
    # the same chain against the incumbent of each time does add up: this would be noticed
    assert max(chain(seed, against_best=False) for seed in range(3)) > 2 * WIDE


@pytest.mark.slow
@some_or_all
def test_ten_simplifications_at_the_very_edge_of_the_margin_stay_where_they_are(everything: bool):
    for seed in range(10 if everything else 2):
        losses = {CHALLENGER: MARGIN}
        ledger = Ledger()
        for step in range(10):
            told = hear(Simpler(ledger=ledger), world((seed, step), losses, cases=20)).verdict
            assert told.outcome == "discard"
            ledger = ledger.cut(ledger.cuts + 1, kept=False)


def test_what_leads_is_not_given_up_for_a_text_that_is_as_good_as_the_best():
    worse = {BEST: 0.4, INCUMBENT: 0.0, CHALLENGER: 0.3}
    assert hear(Simpler(), world(1, worse)).verdict.outcome == "keep"
    told = hear(Simpler(leads=True), world(1, worse)).verdict
    assert told.outcome == "discard"
    assert "against what leads" in told.reason


def test_what_is_as_good_as_all_that_it_must_not_fall_behind_is_kept():
    equal = {BEST: 0.4}
    told = hear(Simpler(WIDER, leads=True), world(2, equal, cases=40)).verdict
    assert told.outcome == "keep"
    assert told.reason.startswith("simpler, and not worse than by 0.1: gain ")


def test_the_verdict_tells_the_margin_the_evidence_and_what_it_cost():
    heard = hear(Simpler(WIDER), world(3, {}, cases=30))
    told = heard.verdict
    assert told.outcome == "keep"
    assert not told.best, "nothing is the best before it is proven"
    assert told.numbers["margin"] == 0.1
    assert told.numbers["alpha_simplify"] == level(Ledger(), 0.05)
    mine = {draw for draw in heard.draws if draw.owner == CHALLENGER}
    assert told.numbers["challenger_rollouts"] == len(mine)
    assert "odds" in told.reason


def test_only_whole_passes_can_win():
    heard = hear(Simpler(WIDER), world(4, {}, cases=40))
    assert heard.verdict.outcome == "keep"
    assert heard.verdict.numbers["challenger_rollouts"] % 40 == 0


def test_a_clear_loser_costs_a_screen():
    heard = hear(Simpler(), world(5, {CHALLENGER: 0.9}, train=TRAIN))
    assert "screened out" in heard.verdict.reason
    assert {draw.purpose for draw in heard.draws} == {"screen"}
    assert "margin" not in heard.verdict.numbers, "it used up no level"


def test_what_passes_the_screen_is_raced_at_once_and_never_waits_in_the_pool():
    matter = world(1, {}, train=TRAIN, cases=12)

    @dataclass(frozen=True)
    class Pooled(Simpler):
        def decide(self, view: View) -> Verdict | tuple[Ask, ...]:
            return super().decide(view._replace(pools=True))

    told = hear(Pooled(), matter).verdict
    assert told.code == "judged"
    assert "margin" in told.numbers


def test_where_noise_would_hide_an_equal_text_it_ends_early():
    def outcome(draw: Draw) -> Outcome:
        return Outcome({"score": float(random.Random(f"{draw}").random() < 0.5)})

    heard = hear(Simpler(), replace(world(0, {}, cases=12), outcome=outcome))
    assert heard.verdict.reason.startswith("cannot tell whether it loses more than 0.05")
    mine = {draw for draw in heard.draws if draw.owner == CHALLENGER}
    assert len(mine) <= 4 * 12


@pytest.mark.parametrize(("fails", "outcome"), [(0, "keep"), (1, "keep"), (2, "discard")])
def test_without_noise_the_loss_on_these_cases_is_a_fact(fails: int, outcome: str):
    matter = world(7, {}, cases=20, noise=False)

    def scored(draw: Draw) -> Outcome:
        at = int(draw.pair.case[1:])
        return Outcome({"score": float(not (draw.owner == CHALLENGER and at < fails))})

    for still in (True, False):
        heard = hear(Simpler(still=still), replace(matter, outcome=scored))
        assert heard.verdict.outcome == outcome
        assert "no noise" in heard.verdict.reason
        mine = {draw for draw in heard.draws if draw.owner == CHALLENGER}
        # what is kept is asked as often as a loss of the margin would show once
        assert len(mine) == (100 if outcome == "keep" else 20)
        assert (1 - MARGIN) ** 100 <= level(Ledger(), 0.05) < (1 - MARGIN) ** 80
        bar = {draw for draw in heard.draws if draw.owner == BEST}
        assert len(bar) == (20 if still else len(mine) if outcome == "keep" else 40)


def test_with_many_cases_what_is_kept_is_asked_twice():
    def scored(_: Draw) -> Outcome:
        return Outcome({"score": 1.0})

    heard = hear(Simpler(), replace(world(7, {}, cases=150), outcome=scored))
    assert heard.verdict.outcome == "keep"
    assert heard.verdict.numbers["challenger_rollouts"] == 300


def test_where_all_the_passes_there_may_be_are_too_few_it_cannot_tell():
    def scored(_: Draw) -> Outcome:
        return Outcome({"score": 1.0})

    race = Race(simplify=Simplify(most=4))
    told = hear(Simpler(race), replace(world(7, {}, cases=20), outcome=scored)).verdict
    assert told.outcome == "discard"
    assert told.reason.startswith("cannot tell whether it loses more than 0.05")


@pytest.mark.parametrize("still", [True, False])
def test_a_worse_text_that_rarely_shows_it_does_not_pass_for_one_without_noise(still: bool):
    """Two passes over eight cases that nearly always pass agree by luck in one run of four."""

    def verdict(seed: int) -> Verdict:
        rarely = world((seed, still), {CHALLENGER: 0.06}, cases=8, levels=(0.99, 0.99))
        return hear(Simpler(still=still), rarely).verdict

    assert share(60, verdict) <= 2 / 60


def test_noise_of_the_challenger_alone_is_noticed_before_it_is_kept():
    def scored(draw: Draw) -> Outcome:
        luck = draw.owner == CHALLENGER and draw.pair.repeat > 0
        return Outcome({"score": 0.0 if luck else 1.0})

    matter = replace(world(8, {}, cases=20), outcome=scored)
    assert hear(Simpler(still=True), matter).verdict.outcome == "discard"


def test_a_failed_rollout_never_helps():
    for seed in range(12):
        loss = random.Random(seed).choice((0.0, 0.03, MARGIN))
        matter = world(seed, {CHALLENGER: loss}, cases=20, train=TRAIN)
        heard = hear(Simpler(), matter)
        mine = [draw for draw in heard.draws if draw.owner == CHALLENGER]
        for gone in random.Random(seed).sample(mine, 4):
            worse = hear(Simpler(), replace(matter, changed={gone: CRASHED})).verdict
            assert heard.verdict.outcome == "keep" or worse.outcome != "keep"


def test_the_order_in_which_answers_came_does_not_matter():
    gate, matter = Simpler(WIDER), world(9, {}, cases=30)
    asked: Asked = {}
    while True:
        view = matter.view(asked)
        answer = gate.decide(view)
        sides = (view.challenger, view.incumbent, view.best)
        turned = [
            side._replace(
                losses={p: {k: row[k] for k in reversed([*row])} for p, row in side.losses.items()}
            )
            for side in sides
        ]
        other = view._replace(challenger=turned[0], incumbent=turned[1], best=turned[2])
        again = gate.decide(other)
        if isinstance(answer, Verdict):
            assert isinstance(again, Verdict)
            assert again.reason == answer.reason
            return
        assert again == answer
        assert note_asked(asked, answer)


def test_a_broken_constraint_is_no_simplification():
    objective = Objective(bounds=(0.0, 1.0), constraints=(Constraint("score", ">=", 2.0),))
    matter = replace(world(3, {}, cases=30), objective=objective)
    assert hear(Simpler(WIDER), matter).verdict.code == "constraint"


def test_without_bounds_there_is_no_margin_and_it_must_be_better():
    matter = replace(world(10, {}, cases=20), objective=Objective(), best=INCUMBENT)
    told = hear(Simpler(), matter).verdict
    assert told.outcome == "discard"
    assert "margin" not in told.numbers


def test_simplifications_that_are_open_at_once_share_a_level():
    view = world(11, {}).view({})
    alone, shared = Simplify(), Simplify(at_once=4)
    assert shared.risk(view) == alone.risk(view) / 4


def test_simplifications_have_a_line_of_their_own():
    spent = Ledger(tests=50, cuts=3, cuts_kept=(2,))
    assert spent.of_cuts == Ledger(3, (2,))
    assert spent.cut(4, kept=True) == Ledger(tests=50, cuts=4, cuts_kept=(2, 4))
    assert level(spent.cut(4, kept=True).of_cuts, 0.05) > level(spent.of_cuts, 0.05)
    total = sum(level(Ledger(cuts=n).of_cuts, 0.05) for n in range(20_000))
    assert total <= 0.05


def proof(matter: Matter, race: Race | None = None) -> Verdict:
    """What is said of a change that is simplifications only, against the best."""
    asked: Asked = {}
    while True:
        view = matter.view(asked)._replace(simplifies=True)
        answer = (race or Race()).prove(view._replace(incumbent=view.best))
        if isinstance(answer, Verdict):
            return answer
        assert note_asked(asked, answer)


def test_what_is_simpler_is_promoted_when_many_cases_say_that_it_is_no_worse():
    told = proof(world(12, {}, cases=300))
    assert told.best
    assert told.reason.startswith("proven: simpler, and not worse than by 0.05 for cases alike: ")
    assert told.code == "promoted"


def test_what_is_simpler_and_worse_is_not_promoted():
    told = proof(world(13, {CHALLENGER: 2 * MARGIN}, cases=300))
    assert (told.best, told.code) == (False, "not promoted")


def test_few_cases_without_a_difference_do_not_show_that_none_differs():
    matter = world(14, {}, cases=20, noise=False)

    def scored(draw: Draw) -> Outcome:
        return Outcome({"score": 1.0})

    told = proof(replace(matter, outcome=scored))
    assert (told.best, told.code) == (False, "not promoted")
    assert "cases would do" in told.reason
    many = tuple(f"h{n}" for n in range(200))
    assert proof(replace(matter, outcome=scored, holdout=many)).best


@pytest.mark.parametrize(
    ("cases", "most"), [(60, -1), (100, 0), (150, 1), (200, 3), (300, 6), (400, 10)]
)
def test_a_proof_reckons_with_losing_cases_that_were_not_drawn(cases: int, most: int):
    """So many cases may lose, as of a text that loses the margin no more do once in a hundred."""

    def told(losing: int) -> Verdict:
        lost = {f"h{n}" for n in range(losing)}

        def scored(draw: Draw) -> Outcome:
            return Outcome({"score": float(draw.owner != CHALLENGER or draw.pair.case not in lost)})

        return proof(replace(world(15, {}, cases=cases), outcome=scored))

    beyond = told(most + 1)
    assert not beyond.best
    assert "cases would do" in beyond.reason
    if most >= 0:
        assert told(most).best
        assert chance_of(most, cases, MARGIN) <= beyond.numbers["alpha_promote"]
