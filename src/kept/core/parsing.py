"""Bounded parsers for text that models, programs and users write.

The parsers of the libraries below have no bounds of their own, or bounds that depend on how full
the stack is; some recurse in C and end the process. Everything that reads foreign JSON, TOML,
Python or regular expressions goes through here; YAML goes through `kept.spec.yaml`, office files
and web pages through `kept.evaluators.tools.documents`, JSON schemas through
`kept.sandbox.json_schema`.
"""

import ast
import json
import re
import tomllib
import warnings
from collections.abc import Callable
from typing import Any, TypeVar, cast

T = TypeVar("T")

MAX_DEPTH = 100
"""Levels of nesting. Code that recurses over a value needs up to four frames a level, and Python
gives up at a thousand."""

MAX_JSON_CHARS = 64 * 1024 * 1024
"""Characters of one JSON document; values take up to twenty times as many bytes."""

MAX_TOML_CHARS = 4 * 1024 * 1024
MAX_PATTERN_CHARS = 20_000
"""Characters of a regular expression; compiling takes five microseconds a character."""

MAX_DIGITS = 308
"""Digits of a whole number: what a float can hold, so that arithmetic with one never overflows."""

_TOO_LARGE = 10**MAX_DIGITS
_LONG_BYTES = re.compile(rb"(?<![0-9])[0-9]{%d}" % (MAX_DIGITS + 1))
_LONG_NUMBER = re.compile(rf"(?<![0-9])[0-9]{{{MAX_DIGITS + 1}}}")
_DOTTED = re.compile(
    r"""(?<![\w"'-])(?>[\w-]++|"[^"\n]*+"|'[^'\n]*+')"""
    rf"""(?>[ \t]*+\.[ \t]*+(?>[\w-]++|"[^"\n]*+"|'[^'\n]*+')){{{MAX_DEPTH}}}"""
)
"""A dotted key of TOML that is too deep: `tomllib` takes the square of its length."""


class ParseLimit(ValueError):
    """A text beyond a bound of its parser; the message names the bound."""

    def __init__(self, message: str, line: int | None = None) -> None:
        super().__init__(message)
        self.line = line
        """Line at which the bound was met, from 1; None if unknown."""


class DuplicateKey(ValueError):
    """A JSON object that has a key twice."""


def parse_json(text: str | bytes, *, unique_keys: bool = False) -> Any:  # noqa: ANN401 # any JSON
    """The value of a JSON text.

    Raises `ParseLimit` where it is too long, too deep or has too long a number, `DuplicateKey` for
    a key that stands twice where keys must be unique, else what `json.loads` raises: `ValueError`s.
    """
    check_size(text, MAX_JSON_CHARS)
    value = _limited(lambda: json.loads(text, object_pairs_hook=_unique if unique_keys else None))
    if _may_be_deep(text) or _has_long_number(text):
        check_depth(value)
    return value


def parse_json_at(text: str, at: int, *, unique_keys: bool = False) -> tuple[Any, int]:
    """The JSON value that begins at an index, and where it ends; raises as `parse_json` does."""
    decoder = json.JSONDecoder(object_pairs_hook=_unique if unique_keys else None)
    value, end = _limited(lambda: decoder.raw_decode(text, at))
    check_depth(value)
    return value, end


def parse_toml(text: str) -> dict[str, Any]:
    """The value of a TOML text; raises `tomllib.TOMLDecodeError` or `ParseLimit`."""
    check_size(text, MAX_TOML_CHARS)
    for line in text.splitlines():
        if line.count(".") >= MAX_DEPTH and _DOTTED.search(line):
            raise too_deep()
    value = _limited(lambda: tomllib.loads(text))
    check_depth(value)
    return value


def parse_python(text: str, name: str = "<unknown>") -> ast.Module:
    """The syntax tree of a Python text; raises `SyntaxError`, `ValueError` or `ParseLimit`."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return ast.parse(text, name)
    except (RecursionError, MemoryError) as error:
        # it raises either where the stack of its parser is full
        raise ParseLimit("its expressions are nested too deeply") from error


def compile_pattern(text: str, flags: int = 0) -> re.Pattern[str]:
    """A regular expression; raises `ValueError` where it is none, `ParseLimit` where too large."""
    if len(text) > MAX_PATTERN_CHARS:
        raise ParseLimit(f"it has more than {MAX_PATTERN_CHARS:,} characters")
    try:
        with warnings.catch_warnings():
            # of what a later Python may read in another way, such as `[[a]`
            warnings.simplefilter("ignore", FutureWarning)
            return re.compile(text, flags)
    except re.error as error:
        raise ValueError(str(error)) from error
    except RecursionError as error:
        raise ParseLimit("its groups are nested too deeply") from error
    except OverflowError as error:
        raise ParseLimit(str(error)) from error


def check_size(text: str | bytes, most: int) -> None:
    """Raise `ParseLimit` for a text that is longer than `most`."""
    if len(text) > most:
        unit = "characters" if isinstance(text, str) else "bytes"
        raise ParseLimit(f"it has more than {most:,} {unit}")


def check_depth(value: object) -> int:
    """The number of values in a value.

    Raises `ParseLimit` where it is nested too deeply, or holds too large a number. It goes down one
    level at a time, without recursion.
    """
    level: list[Any] = [value]
    seen = 0
    for _ in range(MAX_DEPTH + 1):
        seen += len(level)
        below: list[Any] = []
        deeper = False
        for one in level:
            if isinstance(one, dict):
                below += cast("dict[object, object]", one).values()
                deeper = True
            elif isinstance(one, list | tuple):
                below += cast("list[object]", one)
                deeper = True
            else:
                check_number(one)
        if not deeper:
            return seen
        level = below
    raise too_deep()


def check_number(value: object) -> None:
    """Raise `ParseLimit` for a whole number that is too long."""
    if isinstance(value, int) and not -_TOO_LARGE < value < _TOO_LARGE:
        raise too_long_number()


def too_deep(line: int | None = None) -> ParseLimit:
    """The error of a text that is nested too deeply."""
    return ParseLimit(f"it is nested more than {MAX_DEPTH} levels deep", line)


def too_long_number() -> ParseLimit:
    """The error of a text with a number that is too long."""
    return ParseLimit(f"a number has more than {MAX_DIGITS:,} digits")


def _limited(parse: Callable[[], T]) -> T:
    """Run a parser and raise its two ways to give up as `ParseLimit`."""
    try:
        return parse()
    except RecursionError as error:
        raise too_deep() from error
    except ValueError as error:
        # of `int`: it has no class of its own
        if str(error).startswith("Exceeds the limit"):
            raise too_long_number() from error
        raise


def _may_be_deep(text: str | bytes) -> bool:
    # nearly no text has so many brackets, and then its value need not be walked
    if isinstance(text, str):
        return text.count("[") + text.count("{") > MAX_DEPTH
    return text.count(b"[") + text.count(b"{") > MAX_DEPTH or b"\0" in text


def _has_long_number(text: str | bytes) -> bool:
    # digits in a string look the same, and then the value is walked for nothing
    if isinstance(text, bytes):
        # bytes may be UTF-16, where digits do not touch
        return len(text) > MAX_DIGITS and (b"\0" in text or _LONG_BYTES.search(text) is not None)
    return len(text) > MAX_DIGITS and _LONG_NUMBER.search(text) is not None


def _unique(pairs: list[tuple[str, object]]) -> dict[str, object]:
    found = dict(pairs)
    if len(found) < len(pairs):
        seen: set[str] = set()
        twice = next(key for key, _ in pairs if key in seen or seen.add(key))
        raise DuplicateKey(f"the key `{twice[:80]}` stands twice in one object")
    return found
