"""Validation of values from models and programs against JSON schemas of models and users.

The validator is recursive C code, follows references to files and to the network, and takes
exponential time for references that fan out. So values are limited in depth, nothing is fetched,
and slow checks run in a process that can be killed.
"""

import json
import math
import re
from functools import cache, lru_cache
from typing import Any, NamedTuple, cast
from urllib.parse import unquote

from kept.core.parsing import ParseLimit, check_depth
from kept.sandbox.worker import ChildEnded
from kept.sandbox.worker_pool import MEMORY, BoundedCalls, CallRaised

QUICK_VISITS = 10_000_000
"""Pairs of a value and a subschema that take at most a second."""

MOST_SECONDS = 10.0

_CALLS = BoundedCalls("kept.sandbox.json_schema:validate_apart")
_BACKTRACKS = re.compile(r"\(\?[=!<]|\\\\[1-9k]")
"""Constructs of a regular expression that take more than one pass over a text."""


class SchemaError(NamedTuple):
    """First violation of a schema."""

    where: str
    """Path of the value, `rows[0].name`; empty for the whole."""
    rule: str
    """Keyword of the schema."""
    message: str


def first_error(value: object, schema: object) -> SchemaError | None:
    """Return the first violation in a value; None if it satisfies the schema.

    Raises `ValueError` for an invalid schema, and `ParseLimit` if a limit was exceeded.
    """
    nodes = check_depth(value)
    text = _text(schema)
    if nodes * expansions(text) <= QUICK_VISITS:
        return _validate(text, value)
    try:
        found = _CALLS.call({"schema": text, "value": value}, MOST_SECONDS)
    except TimeoutError as error:
        why = f"checking it against its schema takes more than {MOST_SECONDS:g} seconds"
        raise ParseLimit(why) from error
    except MemoryError as error:
        why = f"checking it against its schema takes more than {MEMORY // 2**30} GiB"
        raise ParseLimit(why) from error
    except (CallRaised, ChildEnded, OSError) as error:
        raise ParseLimit(f"checking it against its schema failed: {error}") from error
    if "problem" in found:
        raise ValueError(found["problem"])
    return None if found["error"] is None else SchemaError(*found["error"])


def check_schema(schema: object) -> None:
    """Raise `ValueError` for an invalid schema, or one that refers to anything outside itself."""
    _validator(_text(schema))


def validate_apart(schema: str, value: object) -> dict[str, object]:
    """Validate in the worker process."""
    try:
        return {"error": _validate(schema, value)}
    except ValueError as error:
        return {"problem": str(error)}


def _text(schema: object) -> str:
    check_depth(schema)
    return json.dumps(schema, sort_keys=True)


def _validate(schema: str, value: object) -> SchemaError | None:
    # imported here because it is slow
    from jsonschema_rs import ValidationError

    validator = _validator(schema)
    try:
        validator.validate(value)
    except UnicodeEncodeError as error:
        # JSON can escape a lone surrogate, but the validator takes only whole characters
        raise ParseLimit("a text in it holds half of a character") from error
    except ValidationError as error:
        where = "".join(f"[{p}]" if isinstance(p, int) else f".{p}" for p in error.instance_path)
        rule = str(error.schema_path[-1]) if error.schema_path else "schema"
        return SchemaError(where.lstrip("."), rule, error.message)
    return None


@lru_cache(maxsize=64)
def _validator(schema: str) -> Any:  # noqa: ANN401 # of jsonschema-rs
    from jsonschema_rs import ValidationError, validator_for

    try:
        return validator_for(json.loads(schema), retriever=_refuse)
    except ValidationError as error:
        raise ValueError(error.message) from error


def _refuse(uri: str) -> None:
    raise ValueError(f"`{uri[:200]}` is not in the schema, and nothing is fetched")


@lru_cache(maxsize=64)
def expansions(text: str) -> float:
    """Upper bound of the subschemas that one value is checked against, references followed.

    Infinite if a schema refers to itself, or in a way that is not followed here.
    """
    root: Any = json.loads(text)
    if _BACKTRACKS.search(text) or "draft-04" in text:
        return math.inf

    def count(node: object) -> float:
        if isinstance(node, list):
            return sum(map(count, cast("list[object]", node)))
        if not isinstance(node, dict):
            return 0
        schema = cast("dict[str, object]", node)
        # an inner `$id` changes the base of references, which is not followed here
        if schema is not root and isinstance(schema.get("$id"), str):
            return math.inf
        if "$dynamicRef" in schema or "$recursiveRef" in schema:
            return math.inf
        reference = schema.get("$ref")
        found = counted(reference) if isinstance(reference, str) else 0
        return 1 + found + sum(map(count, schema.values()))

    open_: set[str] = set()

    @cache
    def counted(reference: str) -> float:
        # recursion, or a reference to another document
        if reference in open_ or not reference.startswith("#"):
            return math.inf
        node: Any = root
        open_.add(reference)
        try:
            for part in reference.removeprefix("#").split("/")[1:]:
                # unescape a JSON pointer (RFC 6901)
                key = unquote(part).replace("~1", "/").replace("~0", "~")
                node = node[int(key) if isinstance(node, list) else key]
            return count(node)
        except (LookupError, TypeError, ValueError):
            return math.inf
        finally:
            open_.discard(reference)

    try:
        return count(root)
    except RecursionError:
        # a long chain of references
        return math.inf
