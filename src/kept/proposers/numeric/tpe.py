"""Optuna's tree-structured Parzen estimator over a space, seeded draw by draw.

Optuna is imported here and nowhere else, and takes a third of a second: import this module at use.
"""

import math
import warnings
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np
import optuna
from optuna.distributions import (
    BaseDistribution,
    CategoricalDistribution,
    FloatDistribution,
    IntDistribution,
)
from optuna.exceptions import ExperimentalWarning
from optuna.samplers import TPESampler
from optuna.samplers._tpe.sampler import _split_trials, default_gamma  # pyright: ignore[reportPrivateUsage] # how it tells good from bad; pinned by a test
from optuna.trial import FrozenTrial, TrialState, create_trial

from kept.core.artifact import Value
from kept.proposers.numeric.space import Choices, Numbers, Point, Space

# else it says on stderr that it made a study
optuna.logging.set_verbosity(optuna.logging.WARNING)


CANDIDATES = 24
"""Draws from the good points, of which the best is taken."""

LARGEST = 600.0
"""A logarithm whose number can still be written down."""

Split = tuple[list[FrozenTrial], list[FrozenTrial]]
"""Good ones, and the others."""


class Told(NamedTuple):
    """A point and what it came to."""

    point: Point
    loss: float
    noise: float | None = None
    """The standard deviation that another measurement would differ by; None where nobody knows."""


class Explained(NamedTuple):
    """Why a point: by the densities of what was good so far, and of what was not."""

    quantile: float
    """Of the points told, the share that counts as good."""
    candidates: int
    """Draws from the good ones that it was the best of."""
    score: float
    """How many times as dense the good ones are there as the others."""
    marginals: dict[str, dict[str, Value]]
    """The same axis by axis, by their paths."""


class Estimator:
    """Draws points, given what others came to.

    Adding a trial to a study takes a millisecond, so the study of the last call is gone on with
    where the new call begins with what that one was told. What it draws does not depend on that.
    """

    def __init__(self, space: Space, startup: int) -> None:
        self._space = space
        self._startup = startup
        self._domains = {f"{n}": axis.domain for n, axis in enumerate(space.axes)}
        self._distributions = {name: _distribution(d) for name, d in self._domains.items()}
        self._told: list[Told] = []
        self._study = optuna.create_study()

    def draw(self, told: Sequence[Told], seed: int) -> Iterator[Point]:
        """Points worth a try, as many as are taken."""
        self._tell(told)
        self._study.sampler = self._sampler(seed)
        while True:
            # a trial that is asked for and never told of is no evidence to later ones
            yield self._ask()

    def explain(self, told: Sequence[Told], point: Point) -> Explained | None:
        """Why a point was drawn, given what others came to; None where chance alone drew it.

        The split and the estimators are the library's own. Along one axis alone the estimator of
        all axes has the density that it has there when the others are left open.
        """
        self._tell(told)
        if len(self._told) < self._startup or not self._knows(point):
            return None
        trials = self._study.get_trials(deepcopy=False, states=(TrialState.COMPLETE,))
        good = default_gamma(len(trials))
        split = _split_trials(self._study, trials, good)
        values = self._params_of(point)
        # what can take one value only is nothing to choose
        space = {name: d for name, d in self._distributions.items() if not d.single()}
        marginals: dict[str, dict[str, Value]] = {}
        for axis, name, value in zip(self._space.axes, self._distributions, point, strict=True):
            if name in space:
                one, other = self._densities(split, {name: space[name]}, values)
                densities = {"good_density": _tidy(one), "bad_density": _tidy(other)}
                marginals[axis.path] = {"value": value, **densities}
        below, above = self._densities(split, space, values) if space else (0.0, 0.0)
        return Explained(good / len(trials), CANDIDATES, _tidy(below - above), marginals)

    def _tell(self, told: Sequence[Told]) -> None:
        known = [row for row in told if self._knows(row.point)]
        if self._told != known[: len(self._told)]:
            self._told, self._study = [], optuna.create_study()
        for row in known[len(self._told) :]:
            self._add(row)

    def _sampler(self, seed: int) -> TPESampler:
        with warnings.catch_warnings():
            # it has called the multivariate estimator an experiment since 2020
            warnings.simplefilter("ignore", ExperimentalWarning)
            return TPESampler(
                seed=seed % 2**32,
                multivariate=True,
                constant_liar=False,
                n_startup_trials=self._startup,
                n_ei_candidates=CANDIDATES,
            )

    def _densities(
        self,
        split: Split,
        space: dict[str, BaseDistribution],
        params: dict[str, Value],
    ) -> tuple[float, float]:
        """Logarithms of the densities of both halves at a point, over some of the axes."""
        sampler = self._sampler(0)
        at = {name: np.array([space[name].to_internal_repr(params[name])]) for name in space}
        good, bad = (
            sampler._build_parzen_estimator(self._study, space, trials, handle_below=not n)  # pyright: ignore[reportPrivateUsage] # it has no other name; pinned by a test
            for n, trials in enumerate(split)
        )
        return good.log_pdf(at).item(), bad.log_pdf(at).item()

    def _ask(self) -> Point:
        params = self._study.ask(self._distributions).params
        return tuple(
            domain.values[int(params[name])]
            if isinstance(domain, Choices)
            else domain.tidy(float(params[name]))
            for name, domain in self._domains.items()
        )

    def _add(self, row: Told) -> None:
        params = self._params_of(row.point)
        trial = create_trial(params=params, distributions=self._distributions, value=row.loss)
        self._study.add_trial(trial)
        self._told.append(row)

    def _params_of(self, point: Point) -> dict[str, Value]:
        params: dict[str, Value] = {}
        for (name, domain), value in zip(self._domains.items(), point, strict=True):
            place = domain.index(value) if isinstance(domain, Choices) else value
            assert place is not None, "only points that the library takes are told"
            params[name] = place
        return params

    def _knows(self, point: Point) -> bool:
        """Whether the library takes a point: a seed's may lie beside the grid."""
        pairs = zip(self._space.axes, point, strict=True)
        return all(
            axis.domain.holds(value)
            and (isinstance(axis.domain, Choices) or axis.domain.tidy(float(value)) == value)
            for axis, value in pairs
        )


def _distribution(domain: Numbers | Choices) -> BaseDistribution:
    if isinstance(domain, Choices):
        # by place: to the library, true and 1 are the same choice
        return CategoricalDistribution(range(domain.size))
    if domain.whole:
        step = int(domain.step or 1)
        return IntDistribution(int(domain.low), int(domain.top), log=domain.log, step=step)
    return FloatDistribution(domain.low, domain.top, log=domain.log, step=domain.step)


def _tidy(log: float) -> float:
    """What a logarithm is of, in as many digits as anybody reads."""
    return float(f"{math.exp(min(log, LARGEST)):.6g}")
