"""What training a skill was asked for, and what a journal holds of it."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from kept.recipes.base import Facts, Request


@dataclass(frozen=True, slots=True, kw_only=True)
class Training(Request):
    """A training of the skill of a config."""

    folder: str = ""
    """Where it was asked: paths of the config begin there."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainingFacts(Facts):
    """What a training goes by."""

    config: Mapping[str, object] = field(default_factory=dict[str, object])
    """The whole config, defaults and all."""
    judge: str = ""
    """The model that judges answers; empty where a metric does."""
