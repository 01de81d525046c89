"""Rule R17: what a worker answers with holds a confidence, and the fields that were asked for.

The answer is an object under the worker's own name, or just that object.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, cast


def contract_problems(
    name: str, answer: Mapping[str, Any], required: Sequence[str] = ()
) -> tuple[str, ...]:
    """Everything that an answer lacks; nothing where it keeps the contract."""
    return tuple(_problems(name, answer, required))


def _problems(name: str, answer: Mapping[str, Any], required: Sequence[str]) -> Iterator[str]:
    inner: object = answer.get(name, answer)
    if not isinstance(inner, Mapping):
        yield f"`{name}` holds {_kind(inner)}, not an object"
        return
    fields = cast("Mapping[str, Any]", inner)
    confidence: object = fields.get("confidence")
    if confidence is None:
        yield "there is no `confidence`"
    elif isinstance(confidence, bool) or not isinstance(confidence, int | float):
        yield f"`confidence` is {_kind(confidence)}, not a number"
    elif not 0 <= confidence <= 1:
        yield f"`confidence` is {confidence:g}, outside 0 to 1"
    for field in required:
        if fields.get(field) in (None, "", [], {}):
            yield f"`{field}` is {'empty' if field in fields else 'missing'}"


def _kind(value: object) -> str:
    names = {"str": "a text", "list": "a list", "bool": "true or false", "NoneType": "nothing"}
    return names.get(type(value).__name__, "a number")
