"""Optuna's tree-structured Parzen estimator over a space, seeded draw by draw.

Optuna is imported here and nowhere else, and takes a third of a second: import this module at use.
"""

import warnings
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import optuna
from optuna.distributions import (
    BaseDistribution,
    CategoricalDistribution,
    FloatDistribution,
    IntDistribution,
)
from optuna.exceptions import ExperimentalWarning
from optuna.samplers import TPESampler
from optuna.trial import create_trial

from kept.core.values import Value
from kept.proposers.space import Choices, Numbers, Point, Space

# else it says on stderr that it made a study
optuna.logging.set_verbosity(optuna.logging.WARNING)


class Told(NamedTuple):
    """A point and what it came to."""

    point: Point
    loss: float


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
        known = [row for row in told if self._knows(row.point)]
        if self._told != known[: len(self._told)]:
            self._told, self._study = [], optuna.create_study()
        for row in known[len(self._told) :]:
            self._add(row)
        with warnings.catch_warnings():
            # it has called the multivariate estimator an experiment since 2020
            warnings.simplefilter("ignore", ExperimentalWarning)
            self._study.sampler = TPESampler(
                seed=seed % 2**32,
                multivariate=True,
                constant_liar=False,
                n_startup_trials=self._startup,
            )
        while True:
            # a trial that is asked for and never told of is no evidence to later ones
            yield self._ask()

    def _ask(self) -> Point:
        params = self._study.ask(self._distributions).params
        return tuple(_value(domain, params[name]) for name, domain in self._domains.items())

    def _add(self, row: Told) -> None:
        pairs = zip(self._domains.items(), row.point, strict=True)
        params = {name: _param(domain, value) for (name, domain), value in pairs}
        trial = create_trial(params=params, distributions=self._distributions, value=row.loss)
        self._study.add_trial(trial)
        self._told.append(row)

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


def _param(domain: Numbers | Choices, value: Value) -> Value:
    place = domain.index(value) if isinstance(domain, Choices) else value
    assert place is not None, "only points that the library takes are told"
    return place


def _value(domain: Numbers | Choices, param: Value) -> Value:
    if isinstance(domain, Choices):
        return domain.values[int(param)]
    return domain.tidy(float(param))
