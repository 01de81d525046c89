"""What a rule may look for in a text.

A check measures one thing and says what is wrong with it, if anything is. No processes, no models:
the same text is always measured alike.
"""

import math
import re
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple, Protocol

from kept.core.parsing import ParseLimit, check_size, parse_json, parse_toml
from kept.core.text import count_tokens, keyword_density, sections, title_key
from kept.core.words import count

Format = Literal["json", "yaml", "toml"]

QUICK = 2e7
"""Steps of an expression that take a tenth of a second at worst."""

SHORT = 2000
"""Characters of a document that take a tenth of a second at worst."""

FLAT = 50
"""Brackets of such a document."""

_NESTED = re.compile(r"\)[*+{]")
_REFERENCE = re.compile(r"\\\d|\(\?P=")


class Measured(NamedTuple):
    """What a check found."""

    value: float
    broken: str | None = None
    """What is wrong; None when nothing is."""


class Check(Protocol):
    """One thing to look for."""

    def measure(self, text: str, seed: str) -> Measured:
        """Look for it; `seed` is the text that the run started from."""
        ...


@dataclass(frozen=True, slots=True)
class HasSections:
    """Headings that must be there, with something below them. Measures the share that is."""

    names: tuple[str, ...]

    def measure(self, text: str, seed: str) -> Measured:
        """Look for them all."""
        found = {section.key: section.empty for section in reversed(sections(text))}
        missing = [f"`{name}`" for name in self.names if title_key(name) not in found]
        empty = [f"`{name}`" for name in self.names if found.get(title_key(name))]
        told = [
            f"{what}: {', '.join(names)}"
            for what, names in (("missing", missing), ("empty", empty))
            if names
        ]
        share = 1 - (len(missing) + len(empty)) / len(self.names)
        return Measured(share, "; ".join(told) or None)


@dataclass(frozen=True, slots=True)
class Matches:
    """A pattern that must be there, or must not. Measures how often it is."""

    pattern: str
    wanted: bool = True
    by_line: bool = True
    """Whether `^` and `$` are ends of lines, and not of the text alone."""

    def quick(self, text: str) -> bool:
        """Whether no text of this length can hold it up; rather no than yes.

        Each repetition may try every place of the text, each choice doubles the ways to match.
        """
        marks = Counter(self.pattern.replace("(?", "("))
        loops = marks["*"] + marks["+"] + marks["{"] + len(_REFERENCE.findall(self.pattern))
        # in verbose patterns, space may stand between a group and its repetition
        verbose = re.compile(self.pattern).flags & re.VERBOSE
        nested = verbose or _NESTED.search(self.pattern) is not None
        choices = marks["?"] + marks["|"]
        steps = (loops + 1) * math.log(len(text) + 1) + choices * math.log(2)
        return not nested and steps <= math.log(QUICK)

    def measure(self, text: str, seed: str) -> Measured:
        """Count its matches."""
        times = sum(1 for _ in re.finditer(self.pattern, text, re.MULTILINE if self.by_line else 0))
        if bool(times) == self.wanted:
            return Measured(times)
        found = "does not match" if self.wanted else f"matches {count(times, 'time')}"
        return Measured(times, f"`{self.pattern}` {found}")


@dataclass(frozen=True, slots=True)
class Tokens:
    """Bounds for the length. Measures it in tokens: words and marks of punctuation."""

    least: int | None = None
    most: int | None = None

    def measure(self, text: str, seed: str) -> Measured:
        """Count them."""
        length = count_tokens(text)
        tokens = count(length, "token")
        if self.least is not None and length < self.least:
            return Measured(length, f"{tokens}, at least {self.least} wanted")
        if self.most is not None and length > self.most:
            return Measured(length, f"{tokens}, {self.most} allowed")
        return Measured(length)


@dataclass(frozen=True, slots=True)
class Phrases:
    """Phrases that must not be there, in whatever case. Measures how many are."""

    forbidden: tuple[str, ...]

    def measure(self, text: str, seed: str) -> Measured:
        """Look for each."""
        folded = " ".join(text.casefold().split())
        found = [p for p in self.forbidden if " ".join(p.casefold().split()) in folded]
        named = ", ".join(f"`{phrase}`" for phrase in found)
        return Measured(len(found), f"forbidden: {named}" if found else None)


@dataclass(frozen=True, slots=True)
class Parses:
    """A format that the text must be in. Measures 1 or 0."""

    format: Format

    def quick(self, text: str) -> bool:
        """Whether no text of this length can hold it up; rather no than yes."""
        if self.format == "json":
            return True
        # anchors of YAML unfold, and brackets that are not closed take the square of their number
        nested = text.count("[") + text.count("{") > FLAT
        return len(text) <= SHORT and "&" not in text and not nested

    def measure(self, text: str, seed: str) -> Measured:
        """Read it."""
        try:
            _PARSERS[self.format](text)
        except ValueError as error:
            why = str(error).partition("\n")[0]
            return Measured(0, f"not {self.format.upper()}: {why}")
        return Measured(1)


@dataclass(frozen=True, slots=True)
class Keywords:
    """Words that must not crowd the text. Measures the share of all words that they take."""

    words: tuple[str, ...]
    most: float

    def measure(self, text: str, seed: str) -> Measured:
        """Count them."""
        share = keyword_density(text, self.words)
        if share <= self.most:
            return Measured(share)
        return Measured(share, f"keywords take {share:.1%} of the words, {self.most:.1%} allowed")


@dataclass(frozen=True, slots=True)
class Growth:
    """A bound for the length against the seed's. Measures how many times as long the text is."""

    most: float

    def measure(self, text: str, seed: str) -> Measured:
        """Compare their tokens."""
        times = count_tokens(text) / max(1, count_tokens(seed))
        if times <= self.most:
            return Measured(times)
        return Measured(times, f"{times:.2f} times as long as the seed, {self.most:g} allowed")


def measured(kind: str, of: list[Any], text: str) -> Measured:
    """What a check says of a text; `bounded` calls it in another process."""
    return {"Matches": Matches, "Parses": Parses}[kind](*of).measure(text, "")


def _read_yaml(text: str) -> None:
    # slow to import, and rarely needed
    from ruamel.yaml import YAMLError

    from kept.spec.libyaml import MAX_CHARS, ruamel

    check_size(text, MAX_CHARS)
    try:
        ruamel().load(text)
    except (MemoryError, ParseLimit):
        raise
    except YAMLError as error:
        raise ValueError(getattr(error, "problem", None) or str(error)) from error
    except Exception as error:  # its readers of numbers and the like raise whatever they meet
        raise ValueError(f"{type(error).__name__}: {error}") from error


_PARSERS: Mapping[Format, Callable[[str], object]] = {
    "json": parse_json,
    "yaml": _read_yaml,
    "toml": parse_toml,
}
