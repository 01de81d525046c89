"""From a config to a model."""

from importlib import import_module
from typing import cast

from kept.core.ports import Model
from kept.models.config import ModelConfig
from kept.models.providers import PROVIDERS, config_of


def connect(model: str | ModelConfig) -> Model:
    """The model of a text `provider/model` or of a config; a `SetupError` where it cannot be."""
    config = config_of(model) if isinstance(model, str) else model
    module, _, function = PROVIDERS[config.provider].maker.partition(":")
    return cast("Model", getattr(import_module(module), function)(config))
