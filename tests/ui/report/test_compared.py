"""What a comparison says it would take to tell."""

import pytest

from kept.core.budget import Spend
from kept.results.compare import Comparison, Line
from kept.ui.report.compare import sentences


@pytest.mark.parametrize(
    ("found", "offered", "closing"),
    [
        ({"noise": 0.1, "wanted_passes": 3.0}, True, ""),
        ({"noise": 0.1}, False, "More passes over these cases alone would not do."),
        (
            {"noise": 0.0, "wanted_passes": 3.0},
            False,
            "Answers do not vary, so repeats would show nothing.",
        ),
        ({}, False, ""),
    ],
)
def test_passes_are_offered_where_they_would_help(
    found: dict[str, float], offered: bool, closing: str
):
    numbers = {"cases": 12.0, "passes": 1.0, "least": 0.05, "wanted_cases": 40.0, **found}
    line = Line(
        label="B",
        step=0,
        answer="cannot tell",
        reason="",
        seed_value=0.5,
        value=0.6,
        difference=0.1,
        low=-0.1,
        high=0.3,
        numbers=numbers,
    )
    told = Comparison(seed="A", cases=12, alpha=0.05, lines=(line,), planned=None, plans=False)
    (said,) = sentences(told, Spend(rollouts=24))
    assert ("28 more cases (80 rollouts in all)" in said, closing in said) == (True, True)
    assert ("or 3 passes over these (72 rollouts in all)" in said) == offered
