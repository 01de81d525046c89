"""Reading what stands between the braces."""

import re
from typing import NamedTuple

from kept.evaluators.templates.fault import TemplateFault
from kept.evaluators.templates.filters import FILTERS
from kept.evaluators.templates.tree import (
    Choice,
    Expression,
    Filtered,
    Items,
    Joined,
    Literal,
    Member,
    Name,
    Not,
)

_TOKEN = re.compile(
    r"""\s*(?:
        (?P<number>\d+(?:\.\d+)?)
      | (?P<text>"(?:[^"\\]|\\.)*"|'(?:[^'\\]|\\.)*')
      | (?P<name>[A-Za-z_$][\w$]*)
      | (?P<sign>===|!==|==|!=|<=|>=|//|\*\*|[-+*/%~<>()\[\]{},.:|?=])
    )""",
    re.VERBOSE | re.DOTALL,
)
_ESCAPED = re.compile(r"\\(.)", re.DOTALL)
_ESCAPES = {"n": "\n", "t": "\t", "r": "\r"}
_WORDS = {"true": True, "false": False, "none": None, "null": None, "undefined": None}
_COMPARED = ("==", "!=", "===", "!==", "<", ">", "<=", ">=")
_LEVELS: tuple[tuple[str, ...], ...] = (("~",), ("+", "-"), ("*", "/", "//", "%"))
"""Signs that bind, the loosest first."""

MOST_NESTED = 30
MOST_LINKS = 100
"""Signs, members and filters of one expression: each may put what is before it a level deeper."""

MOST_DIGITS = 300


class Token(NamedTuple):
    """A word of an expression."""

    kind: str
    text: str


class Reader:
    """The tokens of one expression, read from left to right."""

    def __init__(self, text: str, line: int) -> None:
        self.line = line
        self._tokens = list(self._split(text))
        self._at = 0
        self._deep = 0
        self._links = 0

    def whole(self) -> Expression:
        """The expression, with nothing behind it."""
        value = self.expression()
        if self._at < len(self._tokens):
            raise self.fault(f"`{self._tokens[self._at].text}` is not expected there")
        return value

    def expression(self) -> Expression:
        """A choice, or what it would be between."""
        self._deep += 1
        if self._deep > MOST_NESTED:
            raise self.fault("nested too deeply")
        value = self._either()
        if self.takes("if"):
            test = self._either()
            otherwise = self.expression() if self.takes("else") else Literal(None)
            value = Choice(value, test, otherwise)
        self._deep -= 1
        return value

    def takes(self, *texts: str) -> str | None:
        """The next word, if it is one of these."""
        if self._at < len(self._tokens):
            token = self._tokens[self._at]
            if token.kind in ("name", "sign") and token.text in texts:
                self._at += 1
                return token.text
        return None

    def name(self) -> str:
        """The next word, which is a name."""
        if self._at < len(self._tokens) and self._tokens[self._at].kind == "name":
            self._at += 1
            return self._tokens[self._at - 1].text
        raise self.fault("a name is missing")

    def needs(self, text: str) -> None:
        """Go past a word that has to be there."""
        if self.takes(text) is None:
            raise self.fault(f"`{text}` is missing")

    def fault(self, message: str) -> TemplateFault:
        """What is wrong here."""
        return TemplateFault(message, self.line)

    def _split(self, text: str) -> list[Token]:
        found: list[Token] = []
        at, end = 0, len(text.rstrip())
        while at < end:
            token = _TOKEN.match(text, at)
            if token is None or token.lastgroup is None:
                raise self.fault(f"`{text[at:].strip()[:20]}` is no expression")
            found.append(Token(token.lastgroup, token[token.lastgroup]))
            at = token.end()
        return found

    def _link(self, *texts: str) -> str | None:
        """As `takes`, of what makes an expression deeper."""
        taken = self.takes(*texts)
        if taken is not None:
            self._links += 1
            if self._links > MOST_LINKS:
                raise self.fault("an expression is too long")
        return taken

    def _either(self) -> Expression:
        left = self._both()
        while self._link("or"):
            left = Joined("or", left, self._both())
        return left

    def _both(self) -> Expression:
        left = self._opposite()
        while self._link("and"):
            left = Joined("and", left, self._opposite())
        return left

    def _opposite(self) -> Expression:
        if self._link("not"):
            return Not(self._opposite())
        return self._compared()

    def _compared(self) -> Expression:
        left = self._joined(0)
        while True:
            sign = self._link(*_COMPARED, "in", "not")
            if sign is None:
                return left
            if sign == "not":
                self.needs("in")
                left = Not(Joined("in", left, self._joined(0)))
            elif sign == "in":
                left = Joined("in", left, self._joined(0))
            else:
                left = Joined({"===": "==", "!==": "!="}.get(sign, sign), left, self._joined(0))

    def _joined(self, level: int) -> Expression:
        if level == len(_LEVELS):
            return self._filtered()
        left = self._joined(level + 1)
        while sign := self._link(*_LEVELS[level]):
            left = Joined(sign, left, self._joined(level + 1))
        return left

    def _filtered(self) -> Expression:
        value = self._member()
        while self._link("|"):
            name = self.name()
            if name not in FILTERS:
                raise self.fault(f"there is no filter `{name}` here; there are {_listed()}")
            given: list[Expression] = []
            if self.takes("("):
                given = self._until(")")
            value = Filtered(value, name, tuple(given))
        return value

    def _member(self) -> Expression:
        value = self._single()
        while sign := self._link(".", "[", "("):
            if sign == "(":
                raise self.fault("functions and methods cannot be called here; use a filter")
            if sign == ".":
                value = Member(value, Literal(self.name()))
                continue
            value = Member(value, self.expression())
            self.needs("]")
        return value

    def _single(self) -> Expression:
        if self._at >= len(self._tokens):
            raise self.fault("something is missing in an expression")
        if self.takes("("):
            value = self.expression()
            self.needs(")")
            return value
        if self.takes("["):
            return Items(tuple(self._until("]")))
        if self._link("-"):
            return Joined("-", Literal(0), self._member())
        token = self._tokens[self._at]
        self._at += 1
        if token.kind == "number":
            if len(token.text) > MOST_DIGITS:
                raise self.fault("a number is too long")
            return Literal(float(token.text) if "." in token.text else int(token.text))
        if token.kind == "text":
            plain = _ESCAPED.sub(lambda m: _ESCAPES.get(m[1], m[1]), token.text[1:-1])
            return Literal(plain)
        if token.kind == "name":
            return Literal(_WORDS[token.text]) if token.text in _WORDS else Name(token.text)
        raise self.fault(f"`{token.text}` is not expected there")

    def _until(self, closing: str) -> list[Expression]:
        found: list[Expression] = []
        while not self.takes(closing):
            if found:
                self.needs(",")
            found.append(self.expression())
        return found


def _listed() -> str:
    return ", ".join(sorted(FILTERS))
