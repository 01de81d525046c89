"""A worker's last word, read and held to its contract (R17)."""

import json
from collections.abc import Mapping, Sequence
from typing import Any, cast

from kept.models.structured_output import Unfit, fit
from kept.orchestrator.checks.contract import contract_problems


class Broken(ValueError):
    """An answer that is not what was agreed; says what is wrong, for the worker."""


def result_of(text: str, name: str, required: Sequence[str]) -> Mapping[str, object]:
    """What a worker reports under its name; raises `Broken`."""
    try:
        found: dict[str, Any] = json.loads(fit(text, {"type": "object"}))
    except Unfit as error:
        raise Broken(f"the answer is not one JSON object: {error}") from error
    if problems := contract_problems(name, found, required):
        raise Broken(f"the answer of `{name}` is not as agreed: {'; '.join(problems)}")
    return cast("Mapping[str, object]", found.get(name, found))


def confidence_of(result: Mapping[str, object]) -> float:
    """How sure the worker is."""
    return float(cast("float", result["confidence"]))
