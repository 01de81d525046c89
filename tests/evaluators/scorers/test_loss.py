"""The loss of a case of an agent: weighted metrics, worked out by hand."""

import pytest

from kept.evaluators.scorers.transforms import weighted_loss

WEIGHTS = {"numeric": 0.7, "program": 0.3}


@pytest.mark.parametrize(
    ("metrics", "loss"),
    [
        ({"numeric": 0.78, "program": 0.91}, 1 - (0.7 * 0.78 + 0.3 * 0.91)),
        ({"numeric": 1.0, "program": 1.0}, 0.0),
        ({"numeric": 0.0, "program": 0.0}, 1.0),
        ({"numeric": 0.5, "program": 0.5, "fluency": 0.0}, 0.5),
        # a case that has one of them is measured by that one
        ({"program": 0.25}, 0.75),
        # a perfect BLEU, and a grader that counts beyond 1
        ({"numeric": 1.0000000000000004, "program": 1.5}, 0.0),
        ({"numeric": -2.0, "program": 0.0}, 1.0),
        ({"fluency": 1.0}, None),
    ],
)
def test_the_loss_is_one_minus_the_weighted_mean(metrics: dict[str, float], loss: float | None):
    found = weighted_loss(metrics, WEIGHTS)
    assert found == (None if loss is None else pytest.approx(loss))
