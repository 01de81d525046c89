"""What is still to be gained by another point, as a Gaussian process over the points told sees it.

A tree-structured Parzen estimator ranks points and has no loss to tell for one. So a second, named
model answers that: a squared-exponential kernel with one length over the unit cube, its length, its
scale and its noise chosen by the likelihood of the losses told.
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
"""Of the kernel, in sides of the unit cube."""

NOISES = (1e-6, 1e-3, 1e-2, 0.1, 0.3, 1.0)
"""Variance of the noise, in variances of what is modelled; where nobody knows it."""

SHARES = (1e-3, 1e-2, 0.1, 0.3, 1.0, 3.0, 10.0, 30.0, 100.0, 1000.0)
"""The same where it is known: then what is modelled may be as small as it likes."""

DRAWS = 512
"""Points among which the best is looked for."""

NEAR = 128
"""Of those, the ones round the best that is known; each side is shortened to this share."""
REACH = 0.1

Array = npt.NDArray[np.floating[Any]]


class Fitted(NamedTuple):
    """A model of the losses."""

    places: Array
    length: float
    mean: float
    scale: float
    """Variance of what is modelled, without noise."""
    inverse: Array
    weights: Array

    def at(self, places: Array) -> tuple[Array, Array]:
        """Mean and standard deviation of the loss, without noise, at each of some places."""
        near = _kernel(places, self.places, self.length)
        mean = self.mean + near @ self.weights
        left = 1.0 - np.einsum("ij,jk,ik->i", near, self.inverse, near)
        return mean, np.sqrt(self.scale * np.maximum(left, 0.0))


def expected_gain(space: Space, told: Sequence[Told], here: Point, seed: int) -> float | None:
    """The most that a point is expected to better where we stand, in losses; None without rows."""
    rows = [row for row in told if space.holds(row.point)]
    if len(rows) < 2:
        return None
    places = np.array([place_of(space, row.point) for row in rows])
    # the variance of the noise of a loss, over all that were measured more than once
    noises = [row.noise**2 for row in rows if row.noise is not None]
    noise = sum(noises) / len(noises) if noises else 0.0
    model = fitted(places, np.array([row.loss for row in rows]), noise)
    if model is None:
        return 0.0
    known, _ = model.at(places)
    # of a point that cannot be modelled, the best that can
    stands = model.at(np.array([place_of(space, here)]))[0][0] if space.holds(here) else known.min()
    best = rows[int(known.argmin())].point
    drawn = np.array([place_of(space, point) for point in _draws(space, best, seed)])
    mean, spread = model.at(drawn)
    gains = (improvement(stands - m, s) for m, s in zip(mean, spread, strict=True))
    return float(f"{max(gains):.6g}")


def improvement(gain: float, spread: float) -> float:
    """What a point is expected to better, where its gain is normal with this mean and spread."""
    if spread <= 0.0:
        return max(gain, 0.0)
    z = gain / spread
    density = exp(-z * z / 2) / sqrt(2 * pi)
    return gain * (1 + erf(z / sqrt(2))) / 2 + spread * density


def fitted(places: Array, losses: Array, known: float = 0.0) -> Fitted | None:
    """The most likely model of the kind; None where all losses are the same.

    `known` is the variance of their noise; without it, that is chosen as the rest is.
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
            scale = known / noise if known else fits / size
            _, half = np.linalg.slogdet(inverse)
            likely = (half - size * log(scale) - fits / scale) / 2 if scale > 0 else -inf
            # of equals the one with the least noise, whatever the last digits say
            if likely > best + 1e-9:
                best = likely
                found = Fitted(places, length, mean, scale, inverse, inverse @ rest)
    return found


def place_of(space: Space, point: Point) -> list[float]:
    """A point in the unit cube; choices are corners, each as far from any other as a whole side."""
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
    """A value on the way from one to another; a choice stays."""
    if isinstance(domain, Choices):
        return was
    return domain.at(domain.place(was) + REACH * (domain.place(far) - domain.place(was)))


def _kernel(one: Array, other: Array, length: float) -> Array:
    squares = ((one[:, None, :] - other[None, :, :]) ** 2).sum(axis=-1)
    return np.exp(-squares / (2 * length**2))
