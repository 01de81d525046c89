"""Request and facts of skill training, as a journal records them."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from kept.recipes.base import Facts, Request


@dataclass(frozen=True, slots=True, kw_only=True)
class Training(Request):
    """A training of the skill of a config."""

    folder: str = ""
    """Working folder of the request: paths of the config are relative to it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainingFacts(Facts):
    """Facts of a training."""

    config: Mapping[str, object] = field(default_factory=dict[str, object])
    """The whole config, with defaults."""
    judge: str = ""
    """The model that judges answers; empty if a metric does."""
