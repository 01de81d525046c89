"""How an agent is to be improved: its block, its axes and its cases, and all that is wrong."""

from typing import NamedTuple

from kept.core.case import Cases
from kept.recipes.agent.axes import Axes, axes_of
from kept.recipes.agent.splitting import split_warnings, splits_of
from kept.spec.agent.cases import TestCaseSpec
from kept.spec.agent.optimizer import (
    BLOCK,
    OptimizerSpec,
    cases_of,
    optimizer_of,
    optimizer_warnings,
)
from kept.spec.agent.read import ReadAgent
from kept.spec.load import said


class Optimizing(NamedTuple):
    """A block in order, with all that it names."""

    spec: OptimizerSpec
    axes: Axes
    cases: Cases
    specs: tuple[TestCaseSpec, ...]
    """Of all cases, whatever their split."""
    warnings: tuple[str, ...]


def read_optimizing(read: ReadAgent) -> Optimizing:
    """All of it; raises `SpecError` with everything that is wrong with it or what it names."""
    spec = optimizer_of(read)
    if said(read.source, BLOCK) is None:
        read.source.check()
    axes = axes_of(read, spec.axes if spec else None)
    about_cases = spec or cases_of(read)
    splits = splits_of(read, about_cases) if about_cases else None
    read.source.check()
    assert spec is not None  # or else there was a problem
    assert splits is not None
    cases, specs = splits
    return Optimizing(spec, axes, cases, specs, (*optimizer_warnings(spec), *split_warnings(cases)))
