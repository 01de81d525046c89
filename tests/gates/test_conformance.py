"""Every gate passes the suite that ships in `kept.testing`."""

import pytest

from kept.core.objective import Objective, TieBreaker
from kept.core.ports import Gate
from kept.core.score import Outcome
from kept.core.verdict import Verdict
from kept.gates.compare import Compare
from kept.gates.fixed_cases import FixedRace
from kept.gates.race import Race
from kept.gates.repeats import Repeats
from kept.gates.seed_rules import Follow, Selection, Strict
from kept.gates.sigma import Sigma
from kept.testing.suites.gate import GateSuite

pytestmark = pytest.mark.slow


@pytest.fixture(
    autouse=True,
    params=[pytest.param(8, id="some"), pytest.param(30, id="all", marks=pytest.mark.nightly)],
)
def rounds(request: pytest.FixtureRequest) -> None:
    """Matters that a test looks at, unless its class asks for fewer."""
    suite = request.instance
    assert isinstance(suite, GateSuite)
    suite.rounds = min(request.param, suite.rounds)


class TestStrict(GateSuite):
    def make_gate(self) -> Gate:
        return Strict()


class TestStrictWithRepeats(GateSuite):
    def make_gate(self) -> Gate:
        return Strict(repeats=3)


class TestStrictWithATieBreaker(GateSuite):
    def make_gate(self) -> Gate:
        return Strict()

    def objective(self) -> Objective:
        return Objective(
            bounds=(0.0, 1.0), tie_breakers=(TieBreaker("length"),), tie_tolerance=0.125
        )

    def scored(self, score: float) -> Outcome:
        # the worst answers are the longest: a crash in their place must not look like brevity
        return Outcome({"score": score, "length": 10 - 10 * score})


class TestRepeats(GateSuite):
    size = 1

    def make_gate(self) -> Gate:
        return Repeats()


class TestRepeatsWithoutNoise(GateSuite):
    size = 1
    steady = True

    def make_gate(self) -> Gate:
        return Repeats()


class TestSelection(GateSuite):
    def make_gate(self) -> Gate:
        return Selection()


class TestFollow(GateSuite):
    def make_gate(self) -> Gate:
        return Follow()

    def won(self, verdict: Verdict) -> bool:
        return verdict.best


class TestSigma(GateSuite):
    steady = True

    def make_gate(self) -> Gate:
        return Sigma()


class TestSigmaOnEveryTrial(GateSuite):
    steady = True

    def make_gate(self) -> Gate:
        return Sigma(repeats=2, accept_sigma=2.0, holdout_policy="every_trial")


class TestSigmaWithoutHoldout(GateSuite):
    steady = True

    def make_gate(self) -> Gate:
        return Sigma(repeats=1, holdout_policy="skip")


class TestRace(GateSuite):
    def make_gate(self) -> Gate:
        return Race()


class TestRaceOnFixedCases(GateSuite):
    def make_gate(self) -> Gate:
        return FixedRace()


class TestRaceOnManyCases(GateSuite):
    size = 60
    rounds = 10

    def make_gate(self) -> Gate:
        return Race(most=4)


class Comparing(GateSuite):
    """A comparison keeps nothing: it says that a challenger is better."""

    def won(self, verdict: Verdict) -> bool:
        return verdict.code == "better"


class TestCompare(Comparing):
    rounds = 10

    def make_gate(self) -> Gate:
        return Compare()


class TestCompareOnManyCases(Comparing):
    size = 220
    rounds = 3

    def make_gate(self) -> Gate:
        return Compare(challengers=4, most=1)


class TestCompareWithoutNoise(Comparing):
    steady = True
    rounds = 10

    def make_gate(self) -> Gate:
        return Compare()
