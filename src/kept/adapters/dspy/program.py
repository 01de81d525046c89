"""A `dspy.Module` as texts, and texts set on a copy of it.

Of every predictor its instructions are one text, and its demos, as JSON, another.
"""

import json
from collections.abc import Iterator, Mapping
from importlib import import_module
from typing import Any, cast

from kept.adapters.cases import plain
from kept.adapters.identity import source_of_kind, source_of_model
from kept.core.parsing import parse_json
from kept.errors import KeptError, SetupError

INSTRUCTIONS, DEMOS = ".instructions", ".demos"


class Unreadable(KeptError):
    """Demos of a candidate that are no list of examples."""


class Program:
    """A module and its texts."""

    def __init__(self, module: Any, *, demos: bool) -> None:  # noqa: ANN401 # a dspy.Module
        self._module = module
        self.texts: dict[str, str] = {}
        for name, predictor in module.named_predictors():
            self.texts[name + INSTRUCTIONS] = predictor.signature.instructions
            if demos or predictor.demos:
                self.texts[name + DEMOS] = written([_fields(demo) for demo in predictor.demos])
        if not self.texts:
            hint = "give a module that holds a dspy.Predict, or something made of it"
            raise SetupError("the module has no predictors to improve", hint=hint)

    @property
    def instructions(self) -> tuple[str, ...]:
        """The names of texts that are instructions."""
        return tuple(name for name in self.texts if name.endswith(INSTRUCTIONS))

    def sources(self) -> Iterator[str]:
        """What tells this module, with the models that are set now, from another."""
        for name, part in self._module.named_sub_modules():
            yield f"{name}: {_kind_of(part)}"
        for name, predictor in self._module.named_predictors():
            yield f"{name}: {predictor.signature.fields.keys()} {source_of_model(predictor.lm)}"
        yield source_of_model(import_module("dspy").settings.lm)

    def built(self, texts: Mapping[str, str]) -> Any:  # noqa: ANN401 # a dspy.Module
        """A copy with these texts; the module itself stays as it is."""
        module = self._module.deepcopy()
        for name, predictor in module.named_predictors():
            told = texts[name + INSTRUCTIONS]
            if told != predictor.signature.instructions:
                predictor.signature = predictor.signature.with_instructions(told)
            demos = texts.get(name + DEMOS)
            # as they were, they may be more than JSON can say
            if demos is not None and demos != self.texts[name + DEMOS]:
                predictor.demos = _examples(name, demos)
        return module


def written(demos: list[dict[str, Any]]) -> str:
    """Demos as a text, one to a line, so that a change of one is a change of one line."""
    rows = ",\n".join(json.dumps(demo, ensure_ascii=False, default=str) for demo in demos)
    return f"[\n{rows}\n]\n" if rows else "[]\n"


def _examples(name: str, text: str) -> list[Any]:
    try:
        rows = parse_json(text)
    except ValueError as error:
        raise Unreadable(f"the demos of `{name}` are no JSON: {error}") from error
    found = cast("list[object]", rows) if isinstance(rows, list) else [rows]
    if not isinstance(rows, list) or not all(isinstance(row, dict) for row in found):
        raise Unreadable(f"the demos of `{name}` are no list of examples")
    example = import_module("dspy").Example
    return [example(**cast("dict[str, Any]", row)) for row in found]


def _kind_of(part: object) -> str:
    """A part of dspy's own by its name, and one of the user's by its text."""
    kind = type(part)
    theirs = kind.__module__.partition(".")[0] == "dspy"
    return kind.__qualname__ if theirs else source_of_kind(part)


def _fields(demo: object) -> dict[str, Any]:
    return dict(cast("Mapping[str, Any]", plain(demo)))
