"""By what a resume notices that something else answers or measures than before."""

import inspect
import json
from collections.abc import Mapping
from typing import Any, cast

from kept.recipes.function.compile import source_of

SECRET = ("api_key", "api_secret", "token")
"""Settings that may change without another model."""


def source_of_kind(thing: object) -> str:
    """The text of a thing's class. What else it was made with is not seen."""
    kind = type(thing)
    try:
        return inspect.getsource(kind)
    except (OSError, TypeError):
        # made at a prompt: its name is all there is
        return f"{kind.__module__}.{kind.__qualname__}"


def source_of_model(lm: object) -> str:
    """A model by its name, with its settings where it has them; a function by its text."""
    if lm is None or isinstance(lm, str):
        return str(lm)
    named = cast("Any", lm)
    if isinstance(getattr(named, "model", None), str):
        return f"{source_of_kind(named)}\n{named.model}\n{_settings(named)}"
    return source_of(named) if inspect.isroutine(named) else source_of_kind(named)


def _settings(lm: Any) -> str:  # noqa: ANN401 # whatever is called a model
    told = getattr(lm, "kwargs", None)
    found = cast("Mapping[str, object]", told if isinstance(told, Mapping) else {})
    # of anything else than plain values, an address in memory would be another every time
    plain = {
        name: value if isinstance(value, str | int | float | None) else type(value).__qualname__
        for name, value in found.items()
        if name not in SECRET
    }
    return json.dumps(plain, sort_keys=True)
