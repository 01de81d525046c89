"""What stages of training wait for each other, on a clock that no machine is in."""

import pytest

from bench.train.schedule import busy

SIZES = (200, 100, 700)


@pytest.mark.slow
@pytest.mark.parametrize(("at_once", "least"), [(1, 0.8), (2, 0.9)])
def test_an_epoch_of_training_leaves_few_workers_idle(at_once: int, least: float):
    calls, of_ideal = busy("selection", at_once, SIZES)
    assert of_ideal >= least
    # one batch, one pass a candidate, and both sides of the test split: nothing is drawn twice
    assert calls <= 200 + 100 * 7 + 2 * 700 + 60
