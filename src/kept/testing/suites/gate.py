"""Conformance suite for gates."""

import math
import random
import zlib
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import TypeVar

from kept.core.objective import Objective
from kept.core.ports import Gate
from kept.core.rollout import Failure
from kept.core.score import Evaluation, Outcome, Tally
from kept.core.verdict import Verdict
from kept.testing.fakes import CHALLENGER, INCUMBENT, Draw, Heard, Matter, hear

K = TypeVar("K")

SCORES = (0.0, 0.25, 0.5, 0.75, 1.0)
"""Scores whose sums are exact, so that no verdict depends on rounding."""

CRASHED = Outcome(failure=Failure("crash", "candidate", "it crashed"))
MISSING = Outcome(failure=Failure("server", "infrastructure", "503"))


class GateSuite:
    """Subclass it and make a gate."""

    rounds = 30
    """Number of scripted decisions per test."""
    steady = False
    """True for rules that read the spread of repeats as noise: every repeat gets the same outcome.

    For such rules a worse result with less spread may rightly be judged better.
    """
    size = 16
    """Number of cases per split."""

    def make_gate(self) -> Gate:
        """A gate to test."""
        raise NotImplementedError

    def objective(self) -> Objective:
        """Objective of the gate; must have bounds 0 and 1."""
        return Objective(bounds=(0.0, 1.0))

    def won(self, verdict: Verdict) -> bool:
        """True if the verdict says that the challenger is better."""
        return verdict.outcome == "keep"

    def matters(self) -> Iterator[tuple[random.Random, Matter]]:
        """Random decisions, the same in every session; some are close and some are clear."""
        for number in range(self.rounds):
            chance = random.Random(number)
            edge = {CHALLENGER: chance.choice((-1, 0, 0, 1)), "best": chance.choice((0, 1))}
            best = chance.choice((INCUMBENT, INCUMBENT, "best"))
            yield chance, self.matter(number, edge, best)

    def matter(self, number: int, edge: dict[str, int], best: str = INCUMBENT) -> Matter:
        """One decision, with a given lead of each candidate over the incumbent."""

        def outcome(draw: Draw) -> Outcome:
            owner, purpose, (case, repeat) = draw
            repeat = 0 if self.steady else repeat
            at = _chance(number, purpose, case, repeat) % len(SCORES)
            if _chance(number, owner, purpose, case, repeat) % 2:
                at = min(len(SCORES) - 1, max(0, at + edge.get(owner, 0)))
            return self.scored(SCORES[at])

        return Matter(
            outcome=outcome,
            best=best,
            train=tuple(f"t{n}" for n in range(self.size)),
            holdout=tuple(f"h{n}" for n in range(self.size)),
            objective=self.objective(),
        )

    def scored(self, score: float) -> Outcome:
        """An outcome with this score."""
        return Outcome({self.objective().metric: score})

    def changed(self, matter: Matter, heard: Heard, draw: Draw, outcome: Outcome) -> Matter:
        """The same decision with one outcome changed, or with all its repeats if `steady`."""
        draws = [draw]
        if self.steady:
            draws = [d for d in heard.draws if d[:2] == draw[:2] and d.pair.case == draw.pair.case]
        return replace(matter, changed={**matter.changed, **dict.fromkeys(draws, outcome)})

    def test_it_has_a_name(self) -> None:
        """Specs and reports use the name."""
        assert self.make_gate().name, "a gate has a name"

    def test_the_same_view_gets_the_same_answer(self) -> None:
        """A gate is pure: used and fresh gates give the same answer."""
        used = self.make_gate()
        for _, matter in self.matters():
            for view in hear(used, matter).views:
                answer = used.decide(view)
                assert answer == used.decide(view), f"two answers to one view: {view}"
                assert answer == self.make_gate().decide(view), f"a fresh gate differs: {view}"

    def test_it_asks_for_what_there_is_and_comes_to_a_verdict(self) -> None:
        """Every request concerns known candidates and cases, and asks for something new."""
        for _, matter in self.matters():
            owners = {CHALLENGER, INCUMBENT, matter.best}
            cases = {*matter.train, *matter.holdout}
            heard = hear(self.make_gate(), matter)
            for owner, purpose, pair in heard.draws:
                assert owner in owners, f"it asks about {owner}, which it was not shown"
                assert pair.case in cases, f"it asks for {pair.case}, which is no case of the run"
                gates = ("screen", "decide", "promote", "measure")
                assert purpose in gates, f"`{purpose}` is not a gate's"

    def test_it_explains_itself(self) -> None:
        """A verdict has a reason, and its numbers are finite."""
        for _, matter in self.matters():
            verdict = hear(self.make_gate(), matter).verdict
            assert verdict.reason, "a verdict gives its reason"
            assert all(math.isfinite(number) for number in verdict.numbers.values())
            assert verdict.outcome == "keep" or not verdict.best, "a best that is not kept"

    def test_the_order_of_the_cases_does_not_matter(self) -> None:
        """The order of repeats and metrics has no influence either."""
        for _, matter in self.matters():
            verdict = hear(self.make_gate(), matter).verdict
            turned = hear(self.make_gate(), replace(matter, shown=_backwards)).verdict
            assert turned == verdict, f"{verdict.reason}, but backwards: {turned.reason}"

    def test_a_tie_is_never_a_win(self) -> None:
        """A candidate with equal scores everywhere is not better."""
        for number in range(self.rounds):
            same = self.matter(number, {})

            def outcome(draw: Draw, same: Matter = same) -> Outcome:
                return same.outcome(draw._replace(owner=INCUMBENT))

            verdict = hear(self.make_gate(), replace(same, outcome=outcome)).verdict
            assert not self.won(verdict), f"a tie won: {verdict.reason}"

    def test_a_clear_gain_wins(self) -> None:
        """Scores of 1 against 0 on every case win."""

        def outcome(draw: Draw) -> Outcome:
            return self.scored(1.0 if draw.owner == CHALLENGER else 0.0)

        matter = replace(self.matter(0, {}), outcome=outcome)
        verdict = hear(self.make_gate(), matter).verdict
        assert self.won(verdict), f"full marks against none did not win: {verdict.reason}"

    def test_a_failed_rollout_never_helps(self) -> None:
        """Replacing an outcome by a crash of the challenger never turns a loss into a win."""
        for chance, matter in self.matters():
            heard = hear(self.make_gate(), matter)
            mine = [draw for draw in heard.draws if draw.owner == CHALLENGER]
            worse = self.changed(matter, heard, chance.choice(mine), CRASHED)
            verdict = hear(self.make_gate(), worse).verdict
            assert self.won(heard.verdict) or not self.won(verdict), (
                f"a crash helped: {heard.verdict.reason}, then {verdict.reason}"
            )

    def test_doing_better_never_costs_the_win(self) -> None:
        """Replacing an outcome by a score of 1 never turns a win into a loss."""
        for chance, matter in self.matters():
            heard = hear(self.make_gate(), matter)
            mine = [draw for draw in heard.draws if draw.owner == CHALLENGER]
            better = self.changed(matter, heard, chance.choice(mine), self.scored(1.0))
            verdict = hear(self.make_gate(), better).verdict
            assert self.won(verdict) or not self.won(heard.verdict), (
                f"doing better lost: {heard.verdict.reason}, then {verdict.reason}"
            )

    def test_every_rollout_failing_is_a_crash(self) -> None:
        """If every rollout of the challenger failed, the outcome is `crash`."""
        for _, matter in self.matters():
            heard = hear(self.make_gate(), matter)
            broken = {draw: CRASHED for draw in heard.draws if draw.owner == CHALLENGER}
            verdict = hear(self.make_gate(), replace(matter, changed=broken)).verdict
            assert verdict.outcome == "crash", f"all failed, yet {verdict}"

    def test_an_outage_on_either_side_leaves_it_undecided(self) -> None:
        """With fewer than nine answers in ten, nothing can be compared."""
        for chance, matter in self.matters():
            heard = hear(self.make_gate(), matter)
            owner, purpose, _ = chance.choice(heard.draws)
            asked = [d for d in heard.draws if d[:2] == (owner, purpose)]
            gone = chance.sample(asked, max(1, len(asked) // 5))
            away = replace(matter, changed=dict.fromkeys(gone, MISSING))
            verdict = hear(self.make_gate(), away).verdict
            assert not self.won(verdict), f"won with {owner} hardly measured: {verdict.reason}"

    def test_a_tie_is_no_win_because_an_answer_is_missing(self) -> None:
        """An outage on a hard case must not make that side look better."""
        hard = "0"

        def outcome(draw: Draw) -> Outcome:
            return self.scored(0.0 if draw.pair.case[1:] == hard else 1.0)

        matter = replace(self.matter(0, {}), outcome=outcome)
        heard = hear(self.make_gate(), matter)
        gone = [d for d in heard.draws if d.owner == CHALLENGER and d.pair.case[1:] == hard]
        away = replace(matter, changed=dict.fromkeys(gone, MISSING))
        verdict = hear(self.make_gate(), away).verdict
        assert not self.won(verdict), f"an outage made a tie a win: {verdict.reason}"


def _chance(*what: object) -> int:
    return zlib.crc32(repr(what).encode())


def _backwards(evaluation: Evaluation) -> Evaluation:
    return replace(
        evaluation,
        cases=_turned(evaluation.cases),
        repeats=_turned(evaluation.repeats),
        metrics=_turned(evaluation.metrics),
    )


def _turned(tallies: Mapping[K, Tally]) -> dict[K, Tally]:
    return {key: tallies[key] for key in reversed(list(tallies))}
