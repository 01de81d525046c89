"""JSON schemas that models and users write, held against what models and programs wrote.

The validator runs in C code that recurses, follows references to files and to the network, and
takes exponential time for references that fan out. So values are bounded in depth, nothing is
fetched, and what may take long is checked in a process that can be ended.
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
"""Pairs of a value and a subschema that take a second at worst."""

MOST_SECONDS = 10.0

_CALLS = BoundedCalls("kept.sandbox.json_schema:validate_apart")
_BACKTRACKS = re.compile(r"\(\?[=!<]|\\\\[1-9k]")
"""What of a regular expression takes more than one pass over a text."""


class SchemaError(NamedTuple):
    """The first thing in a value that a schema does not allow."""

    where: str
    """Path of the value, `rows[0].name`; empty for the whole."""
    rule: str
    """Keyword of the schema."""
    message: str


def first_error(value: object, schema: object) -> SchemaError | None:
    """What is wrong with a value; None where it satisfies the schema.

    Raises `ValueError` for what is no schema, and `ParseLimit` where a bound was met.
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
    """Raise `ValueError` for what is no schema, or refers to what is not in it."""
    _validator(_text(schema))


def validate_apart(schema: str, value: object) -> dict[str, object]:
    """Called in the other process."""
    try:
        return {"error": _validate(schema, value)}
    except ValueError as error:
        return {"problem": str(error)}


def _text(schema: object) -> str:
    check_depth(schema)
    return json.dumps(schema, sort_keys=True)


def _validate(schema: str, value: object) -> SchemaError | None:
    # slow to import
    from jsonschema_rs import ValidationError

    validator = _validator(schema)
    try:
        validator.validate(value)
    except UnicodeEncodeError as error:
        # JSON can escape a lone surrogate, and the validator takes only whole characters
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
    """Subschemas that one value may be held against, references followed.

    More than that are counted rather than fewer; infinite where a schema refers to itself, or in a
    way that is not followed here.
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
        if reference in open_ or not reference.startswith("#"):
            return math.inf
        node: Any = root
        open_.add(reference)
        try:
            for part in reference.removeprefix("#").split("/")[1:]:
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
