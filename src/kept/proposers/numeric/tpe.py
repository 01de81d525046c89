"""Optuna's tree-structured Parzen estimator over a space, with a seed for each call.

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

# else Optuna logs on stderr that it created a study
optuna.logging.set_verbosity(optuna.logging.WARNING)


CANDIDATES = 24
"""Samples from the good points, of which the best is taken."""

LARGEST = 600.0
"""Upper limit of a logarithm before `exp`, which overflows above 709."""

Split = tuple[list[FrozenTrial], list[FrozenTrial]]
"""Good trials, and the others."""


class Told(NamedTuple):
    """A point with its measured loss."""

    point: Point
    loss: float
    noise: float | None = None
    """Standard error of the loss; None if unknown."""


class Explained(NamedTuple):
    """Explanation of a point by the densities of good and other points."""

    quantile: float
    """Share of the points that counts as good."""
    candidates: int
    """Number of samples from the good points, of which it is the best."""
    score: float
    """Ratio of the density of good points to that of the others."""
    marginals: dict[str, dict[str, Value]]
    """Value and both densities of each axis, by path."""


class Estimator:
    """Samples points by TPE, given the results of others.

    Adding a trial to a study takes a millisecond. So the study of the last call is extended if the
    new points begin with the old ones. The samples do not depend on that.
    """

    def __init__(self, space: Space, startup: int) -> None:
        self._space = space
        self._startup = startup
        self._domains = {f"{n}": axis.domain for n, axis in enumerate(space.axes)}
        self._distributions = {name: _distribution(d) for name, d in self._domains.items()}
        self._told: list[Told] = []
        self._study = optuna.create_study()

    def draw(self, told: Sequence[Told], seed: int) -> Iterator[Point]:
        """Yield promising points without end."""
        self._tell(told)
        self._study.sampler = self._sampler(seed)
        while True:
            # a trial that is never completed has no effect on later samples
            yield self._ask()

    def explain(self, told: Sequence[Told], point: Point) -> Explained | None:
        """Explain why a point was sampled; None if it was random.

        Split and estimators are Optuna's own. An estimator of a single axis has the marginal
        density of the joint estimator.
        """
        self._tell(told)
        if len(self._told) < self._startup or not self._knows(point):
            return None
        trials = self._study.get_trials(deepcopy=False, states=(TrialState.COMPLETE,))
        good = default_gamma(len(trials))
        split = _split_trials(self._study, trials, good)
        values = self._params_of(point)
        # an axis with a single value is no choice
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
            # Optuna has called the multivariate estimator experimental since 2020
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
        """Log densities of good and other points at a point, over some of the axes."""
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
        """True if Optuna accepts the point; a seed's value may be off the grid."""
        pairs = zip(self._space.axes, point, strict=True)
        return all(
            axis.domain.holds(value)
            and (isinstance(axis.domain, Choices) or axis.domain.tidy(float(value)) == value)
            for axis, value in pairs
        )


def _distribution(domain: Numbers | Choices) -> BaseDistribution:
    if isinstance(domain, Choices):
        # by index: to Optuna, true and 1 are the same choice
        return CategoricalDistribution(range(domain.size))
    if domain.whole:
        step = int(domain.step or 1)
        return IntDistribution(int(domain.low), int(domain.top), log=domain.log, step=step)
    return FloatDistribution(domain.low, domain.top, log=domain.log, step=domain.step)


def _tidy(log: float) -> float:
    """Exponential of a logarithm, rounded to six digits."""
    return float(f"{math.exp(min(log, LARGEST)):.6g}")
