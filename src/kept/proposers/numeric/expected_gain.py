"""Expected improvement by another point, from a Gaussian process over the measured points.

A tree-structured Parzen estimator ranks points but predicts no loss. So a second model does: a
Gaussian process with a squared-exponential kernel of one length over the unit cube. Length, scale
and noise maximize the likelihood of the losses.
"""

import random
from collections.abc import Iterator, Sequence
from math import erf, exp, inf, log, pi, sqrt
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from kept.proposers.numeric.space import Choices, Point, Space
from kept.proposers.numeric.tpe import Told

NAME = "gaussian process, squared-exponential kernel, expected improvement"

LENGTHS = (0.1, 0.2, 0.4, 0.8, 1.6)
"""Candidate lengths of the kernel, in sides of the unit cube."""

NOISES = (1e-6, 1e-3, 1e-2, 0.1, 0.3, 1.0)
"""Candidate variances of the noise, relative to the model's variance; for unknown noise."""

SHARES = (1e-3, 1e-2, 0.1, 0.3, 1.0, 3.0, 10.0, 30.0, 100.0, 1000.0)
"""The same for known noise; up to 1000, as the modelled variance may be very small."""

DRAWS = 512
"""Number of points among which the best is searched."""

NEAR = 128
"""Number of those near the best known point; each side is scaled by `REACH`."""
REACH = 0.1

Array = npt.NDArray[np.floating[Any]]


class Fitted(NamedTuple):
    """A fitted Gaussian process."""

    places: Array
    length: float
    mean: float
    scale: float
    """Variance of the modelled function, without noise."""
    inverse: Array
    weights: Array

    def at(self, places: Array) -> tuple[Array, Array]:
        """Mean and standard deviation of the loss, without noise, at each place."""
        near = _kernel(places, self.places, self.length)
        mean = self.mean + near @ self.weights
        left = 1.0 - np.einsum("ij,jk,ik->i", near, self.inverse, near)
        return mean, np.sqrt(self.scale * np.maximum(left, 0.0))


def expected_gain(space: Space, told: Sequence[Told], here: Point, seed: int) -> float | None:
    """Largest expected decrease of the loss from `here`; None with fewer than two points."""
    rows = [row for row in told if space.holds(row.point)]
    if len(rows) < 2:
        return None
    places = np.array([place_of(space, row.point) for row in rows])
    # pooled variance of a loss, over all points measured more than once
    noises = [row.noise**2 for row in rows if row.noise is not None]
    noise = sum(noises) / len(noises) if noises else 0.0
    model = fitted(places, np.array([row.loss for row in rows]), noise)
    if model is None:
        return 0.0
    known, _ = model.at(places)
    # if the current point is outside the space, compare with the best modelled one
    stands = model.at(np.array([place_of(space, here)]))[0][0] if space.holds(here) else known.min()
    best = rows[int(known.argmin())].point
    drawn = np.array([place_of(space, point) for point in _draws(space, best, seed)])
    mean, spread = model.at(drawn)
    gains = (improvement(stands - m, s) for m, s in zip(mean, spread, strict=True))
    return float(f"{max(gains):.6g}")


def improvement(gain: float, spread: float) -> float:
    """Expected improvement, if the gain is normal with this mean and standard deviation."""
    if spread <= 0.0:
        return max(gain, 0.0)
    z = gain / spread
    density = exp(-z * z / 2) / sqrt(2 * pi)
    return gain * (1 + erf(z / sqrt(2))) / 2 + spread * density


def fitted(places: Array, losses: Array, known: float = 0.0) -> Fitted | None:
    """Most likely model; None if all losses are equal.

    `known` is the variance of the noise; 0 means that it is estimated too.
    """
    mean, size = float(losses.mean()), len(losses)
    rest = losses - mean
    if float(np.abs(rest).max()) < 1e-12:
        return None
    best, found = -inf, None
    for length in LENGTHS:
        kernel = _kernel(places, places, length)
        for noise in SHARES if known else NOISES:
            inverse = np.linalg.inv(kernel + noise * np.eye(size))
            fits = float(rest @ inverse @ rest)
            # with known noise, `noise` is its share of the variance, so the scale follows from it;
            # else the scale is the maximum-likelihood estimate
            scale = known / noise if known else fits / size
            _, half = np.linalg.slogdet(inverse)
            likely = (half - size * log(scale) - fits / scale) / 2 if scale > 0 else -inf
            # of equally likely models, the one with the least noise, despite rounding
            if likely > best + 1e-9:
                best = likely
                found = Fitted(places, length, mean, scale, inverse, inverse @ rest)
    return found


def place_of(space: Space, point: Point) -> list[float]:
    """Point in the unit cube; choices are one-hot, so that any two have distance 1."""
    place: list[float] = []
    for axis, value in zip(space.axes, point, strict=True):
        domain = axis.domain
        if isinstance(domain, Choices):
            at = domain.index(value)
            place += [sqrt(0.5) if n == at else 0.0 for n in range(domain.size)]
        else:
            place.append(domain.place(value))
    return place


def _draws(space: Space, best: Point, seed: int) -> Iterator[Point]:
    chance = random.Random(seed)
    for _ in range(DRAWS - NEAR):
        yield space.draw(chance)
    for _ in range(NEAR):
        pairs = zip(space.axes, best, space.draw(chance), strict=True)
        yield tuple(_between(axis.domain, was, far) for axis, was, far in pairs)


def _between(domain: Any, was: Any, far: Any) -> Any:  # noqa: ANN401 # one of two kinds of value
    """Value between two others; a choice stays as it is."""
    if isinstance(domain, Choices):
        return was
    return domain.at(domain.place(was) + REACH * (domain.place(far) - domain.place(was)))


def _kernel(one: Array, other: Array, length: float) -> Array:
    squares = ((one[:, None, :] - other[None, :, :]) ** 2).sum(axis=-1)
    return np.exp(-squares / (2 * length**2))
