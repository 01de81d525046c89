"""What another point is expected to gain: by formulas that can be checked on paper."""

import random
from math import exp, inf, log, sqrt

import numpy as np
import pytest

from kept.proposers.numeric.expected_gain import (
    LENGTHS,
    NOISES,
    expected_gain,
    fitted,
    improvement,
    place_of,
)
from kept.proposers.numeric.space import Axis, Choices, Numbers, Point, Space
from kept.proposers.numeric.tpe import Told

LINE = Space((Axis("c", "x", Numbers(0.0, 1.0)),))


def test_the_expected_improvement_is_that_of_many_draws():
    chance = random.Random(0)
    for gain, spread in ((0.0, 1.0), (-0.5, 0.7), (0.3, 0.2)):
        drawn = [max(0.0, chance.gauss(gain, spread)) for _ in range(100_000)]
        assert improvement(gain, spread) == pytest.approx(sum(drawn) / len(drawn), rel=0.02)
    assert improvement(0.2, 0.0) == 0.2
    assert improvement(-0.2, 0.0) == 0.0


def test_two_points_are_modelled_as_on_paper():
    places, losses = np.array([[0.0], [1.0]]), np.array([0.2, 0.6])
    model = fitted(places, losses)
    assert model is not None
    best = (-inf, 0.0, 0.0, 0.0)
    for length in LENGTHS:
        r = exp(-1 / (2 * length**2))
        for noise in NOISES:
            # losses are 0.2 on either side of their mean: along (1, −1) the matrix is 1 + noise − r
            scale = 2 * 0.2**2 / (1 + noise - r) / 2
            determinant = (1 + noise) ** 2 - r**2
            likely = -(log(determinant) + 2 * log(scale)) / 2
            if likely > best[0] + 1e-9:
                best = (likely, length, noise, scale)
    _, length, noise, scale = best
    assert (model.length, model.mean) == (length, pytest.approx(0.4))
    assert model.scale == pytest.approx(scale)
    mean, spread = model.at(np.array([[0.0], [0.5]]))
    r, half = exp(-1 / (2 * length**2)), exp(-(0.5**2) / (2 * length**2))
    assert mean[0] == pytest.approx(0.4 - 0.2 * (1 - r) / (1 + noise - r))
    assert mean[1] == pytest.approx(0.4), "by symmetry"
    assert spread[1] == pytest.approx(sqrt(scale * (1 - 2 * half**2 / (1 + noise + r))))


def test_losses_that_are_all_the_same_leave_nothing_to_be_gained():
    told = [Told((n / 5,), 0.4) for n in range(5)]
    assert expected_gain(LINE, told, (0.2,), 1) == 0.0
    assert expected_gain(LINE, told[:1], (0.2,), 1) is None


def test_the_gain_shrinks_as_the_bottom_is_found_and_is_in_units_of_the_loss():
    def told(points: list[float], scale: float = 1.0) -> list[Told]:
        return [Told((x,), scale * (x - 0.6) ** 2) for x in points]

    sparse, dense = [0.0, 0.3, 1.0], [0.0, 0.2, 0.3, 0.5, 0.58, 0.6, 0.62, 0.7, 0.8, 1.0]
    early = expected_gain(LINE, told(sparse), (0.3,), 1)
    late = expected_gain(LINE, told(dense), (0.6,), 1)
    assert early is not None and late is not None
    assert early > 0.01
    assert late < 1e-3
    tenth = expected_gain(LINE, told(sparse, 0.1), (0.3,), 1)
    assert tenth == pytest.approx(early / 10, rel=1e-3)


def test_it_is_the_same_for_the_same_seed_and_knows_choices():
    space = Space((*LINE.axes, Axis("c", "mode", Choices(("slow", "fast")))))
    assert place_of(space, (0.25, "fast")) == [0.25, 0.0, sqrt(0.5)]
    chance = random.Random(2)
    points: list[Point] = [space.draw(chance) for _ in range(12)]
    told = [Told(p, float(p[0]) + (0.5 if p[1] == "slow" else 0.0)) for p in points]
    slow, fast = ((x, mode) for x, mode in ((0.5, "slow"), (0.5, "fast")))
    assert expected_gain(space, told, slow, 1) == expected_gain(space, told, slow, 1)
    first, second = expected_gain(space, told, slow, 1), expected_gain(space, told, fast, 1)
    assert first is not None and second is not None
    assert first > second + 0.3, "what stands at the worse choice has more to gain"


def test_rows_beside_the_space_are_not_modelled_and_where_we_stand_may_be_beside_it():
    told = [Told((x,), x) for x in (0.1, 0.5, 0.9)]
    inside = expected_gain(LINE, told, (0.1,), 1)
    assert expected_gain(LINE, [*told, Told((7.0,), 0.0)], (0.1,), 1) == inside
    assert expected_gain(LINE, told, (7.0,), 1) is not None


def test_where_the_noise_is_known_what_is_no_more_than_that_is_nothing_to_be_gained():
    known: list[float] = []
    for seed in range(10):
        chance = random.Random(seed)
        points = [LINE.draw(chance) for _ in range(12)]
        rows = [Told(point, 0.4 + chance.gauss(0, 0.02), 0.02) for point in points]
        known.append(expected_gain(LINE, rows, points[0], 1) or 0.0)
        unknown = expected_gain(LINE, [row._replace(noise=None) for row in rows], points[0], 1)
        assert unknown is not None and unknown > 1e-3, "it may all be a quick change"
        steep = [row._replace(loss=row.loss + float(row.point[0])) for row in rows]
        gain = expected_gain(LINE, steep, (0.9,), 1)
        assert gain is not None and gain > 0.3, "a slope shows through it"
    assert sum(gain < 1e-3 for gain in known) >= 6, known
