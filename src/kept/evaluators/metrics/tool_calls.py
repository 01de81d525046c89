"""Expected tool calls of an exchange, and their check.

A name must match as a whole unless an expectation says `match: contains`. Regular expressions run
in a separate process if an argument could make them slow.
"""

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple, cast

from kept.core.llm import ToolUse
from kept.core.rollout import Failure
from kept.core.text import count, one_line
from kept.evaluators.scorers.rules import Bounded, Matches, Patience

SHOWN = 100
"""Characters of an argument that a reason quotes."""

LONGEST = 200_000
"""Maximum length of an argument for fuzzy and regex matching."""

PATIENCE = 5.0
"""Time limit for all expressions of one exchange, in seconds."""

NEAR = 1e-9

_SEPARATORS = re.compile(r"[,_\s]+")
_FLAGS = re.compile(r"\(\?[aiLmsux]+\)")


@dataclass(frozen=True, slots=True)
class Fuzzy:
    """Matches the same text or number in any spelling."""

    text: str


@dataclass(frozen=True, slots=True)
class Regex:
    """Matches if the whole argument fits a regular expression."""

    pattern: str


@dataclass(frozen=True, slots=True)
class Literally:
    """Matches an equal value."""

    value: object


Matcher = Fuzzy | Regex | Literally


@dataclass(frozen=True, slots=True)
class ExpectedTool:
    """Expectation that a tool is called."""

    name: str
    args: Mapping[str, Matcher] = field(default_factory=dict[str, Matcher])
    count: int = 1
    """Minimum number of matching calls."""
    match: Literal["exact", "contains"] = "exact"

    def means(self, name: str) -> bool:
        """True if the expectation is about a tool of this name."""
        return self.name == name if self.match == "exact" else self.name in name


class Use(NamedTuple):
    """Result of one expectation."""

    expected: ExpectedTool
    at: int
    """Index of the first call that satisfies it; -1 if too few do."""
    reason: str = ""

    @property
    def told(self) -> dict[str, object]:
        """Entry of a report."""
        return {
            "expected_tool": self.expected.name,
            "args_asserted": {name: _told(one) for name, one in self.expected.args.items()},
            "matched_call_index": self.at,
            "unmatched_reason": self.reason or None,
        }


def read_expected(rows: Sequence[str | Mapping[str, Any]]) -> tuple[ExpectedTool, ...]:
    """Read the expectations of a case: names or mappings."""
    return tuple(map(_read, rows))


def _read(row: str | Mapping[str, Any]) -> ExpectedTool:
    if isinstance(row, str):
        return ExpectedTool(row)
    args: Mapping[str, object] = row.get("args") or {}
    return ExpectedTool(
        row["name"],
        {name: _matcher(value) for name, value in args.items()},
        row.get("count") or 1,
        row.get("match") or "exact",
    )


def _matcher(value: object) -> Matcher:
    if isinstance(value, Mapping) and len(cast("Mapping[str, object]", value)) == 1:
        ((kind, given),) = cast("Mapping[str, object]", value).items()
        if kind == "fuzzy":
            return Fuzzy(str(given))
        if kind == "regex":
            return Regex(str(given))
    return Literally(cast("object", value))


class Expecting:
    """Checker of tool calls against expectations."""

    def __init__(self, patience: float = PATIENCE) -> None:
        self._bounded = Bounded()
        self._patience = patience

    async def check(
        self, expected: Sequence[ExpectedTool], uses: Sequence[ToolUse]
    ) -> tuple[Use, ...] | Failure:
        """Compare each expectation with all tool calls of the exchange."""
        patience = Patience(self._patience)
        found: list[Use] = []
        for one in expected:
            use = await self._look(one, uses, patience)
            if isinstance(use, Failure):
                return use
            found.append(use)
        return tuple(found)

    def close(self) -> None:
        """End the processes."""
        self._bounded.close()

    async def _look(
        self, expected: ExpectedTool, uses: Sequence[ToolUse], patience: Patience
    ) -> Use | Failure:
        hits: list[int] = []
        why = f"`{expected.name}` was not used"
        for at, use in enumerate(uses):
            if not expected.means(use.name):
                continue
            wrong = await self._wrong(expected, use, patience)
            if isinstance(wrong, Failure):
                return wrong
            if wrong is None:
                hits.append(at)
            else:
                why = wrong
        if len(hits) >= expected.count:
            return Use(expected, hits[0])
        if hits:
            why = f"`{expected.name}` was used so {count(len(hits), 'time')}, not {expected.count}"
        return Use(expected, -1, why)

    async def _wrong(
        self, expected: ExpectedTool, use: ToolUse, patience: Patience
    ) -> str | Failure | None:
        """Text that says how a call differs from the expectation; None if it does not."""
        for name, matcher in expected.args.items():
            if name not in use.arguments:
                return f"`{use.name}` was used without `{name}`"
            value = use.arguments[name]
            held = await self._holds(matcher, value, patience)
            if isinstance(held, Failure):
                return held
            if not held:
                shown = one_line(str(value)[: 4 * SHOWN], SHOWN)
                return f"`{use.name}` was used with `{name}` = `{shown}`, which was not expected"
        return None

    async def _holds(self, matcher: Matcher, value: object, patience: Patience) -> bool | Failure:
        if isinstance(matcher, Literally):
            return same(matcher.value, value)
        text = str(value)
        if len(text) > LONGEST:
            return False
        match matcher:
            case Fuzzy():
                return alike(matcher.text, text)
            case Regex():
                # match the whole text; inline flags must stay at the very beginning
                flags = _FLAGS.match(matcher.pattern)
                head = flags[0] if flags else ""
                body = matcher.pattern[len(head) :] + "\n" * ("x" in head)
                check = Matches(rf"{head}\A(?:{body})\Z", by_line=False)
                if check.quick(text):
                    return check.measure(text, "").broken is None
                measured = await self._bounded.measure("regex", check, text, patience)
                if not isinstance(measured, Failure):
                    return measured.broken is None
                # an argument that makes an expression slow counts as a mismatch
                return False if measured.blame == "candidate" else measured


def same(expected: object, value: object) -> bool:
    """True if two JSON values are equal: 1 equals 1.0, and true is no number."""
    if isinstance(expected, Mapping) and isinstance(value, Mapping):
        mine, other = cast("Mapping[str, object]", expected), cast("Mapping[str, object]", value)
        return mine.keys() == other.keys() and all(same(mine[k], other[k]) for k in mine)
    if isinstance(expected, list | tuple) and isinstance(value, list | tuple):
        these, those = cast("Sequence[object]", expected), cast("Sequence[object]", value)
        return len(these) == len(those) and all(map(same, these, those))
    if isinstance(expected, bool) or isinstance(value, bool):
        return expected is value
    return expected == value


def alike(expected: str, value: str) -> bool:
    """True if two texts are the same number, or the same text without separators and case."""
    one, other = _bare(expected), _bare(value)
    a, b = _number(one), _number(other)
    if a is not None and b is not None:
        return math.isclose(a, b, rel_tol=0.0, abs_tol=NEAR)
    return one == other


def _bare(text: str) -> str:
    return _SEPARATORS.sub("", text.casefold())


def _number(text: str) -> float | None:
    try:
        value = float(text.removesuffix("%"))
    except ValueError:
        return None
    return value / 100 if text.endswith("%") else value


def _told(matcher: Matcher) -> object:
    match matcher:
        case Literally():
            return matcher.value
        case Fuzzy():
            return {"fuzzy": matcher.text}
        case Regex():
            return {"regex": matcher.pattern}
