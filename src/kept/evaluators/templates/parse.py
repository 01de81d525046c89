"""Template parser: syntax tree, expressions between braces, and the text around them."""

import re
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from typing import NamedTuple


class TemplateFault(ValueError):
    """Template that is invalid or uses unsupported syntax."""

    def __init__(self, message: str, line: int = 0) -> None:
        super().__init__(message)
        self.line = line
        """Line of the template, from 1; 0 if unknown."""


@dataclass(frozen=True, slots=True)
class Literal:
    """Literal value."""

    value: object


@dataclass(frozen=True, slots=True)
class Name:
    """Name of a given value."""

    name: str


@dataclass(frozen=True, slots=True)
class Member:
    """Member of a value, by key or index."""

    of: "Expression"
    key: "Expression"


@dataclass(frozen=True, slots=True)
class Items:
    """List literal."""

    items: tuple["Expression", ...]


@dataclass(frozen=True, slots=True)
class Filtered:
    """Value passed through a filter."""

    value: "Expression"
    filter: str
    given: tuple["Expression", ...]


@dataclass(frozen=True, slots=True)
class Joined:
    """Binary operation."""

    sign: str
    left: "Expression"
    right: "Expression"


@dataclass(frozen=True, slots=True)
class Not:
    """Logical negation."""

    value: "Expression"


@dataclass(frozen=True, slots=True)
class Choice:
    """Conditional expression, `a if b else c`."""

    then: "Expression"
    test: "Expression"
    otherwise: "Expression"


Expression = Literal | Name | Member | Items | Filtered | Joined | Not | Choice


@dataclass(frozen=True, slots=True)
class Words:
    """Plain text of a template."""

    text: str


@dataclass(frozen=True, slots=True)
class Shown:
    """Output of a value, `{{ … }}`."""

    value: Expression


@dataclass(frozen=True, slots=True)
class Branch:
    """`{% if … %}`, with all its `elif`; an `else` has no test."""

    arms: tuple[tuple[Expression | None, tuple["Node", ...]], ...]


@dataclass(frozen=True, slots=True)
class Loop:
    """Loop, `{% for … %}`."""

    names: tuple[str, ...]
    over: Expression
    body: tuple["Node", ...]
    otherwise: tuple["Node", ...] = ()


@dataclass(frozen=True, slots=True)
class Bind:
    """Assignment, `{% set … %}`."""

    name: str
    value: Expression


Node = Words | Shown | Branch | Loop | Bind


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
"""Binary operators, by rising precedence."""

MOST_NESTED = 30
MOST_LINKS = 100
"""Maximum number of operators, members and filters of an expression: each may add a level."""

MOST_DIGITS = 300


class Token(NamedTuple):
    """Token of an expression."""

    kind: str
    text: str


class Reader:
    """Recursive-descent parser of one expression."""

    def __init__(self, text: str, line: int, filters: Collection[str]) -> None:
        self.line = line
        self._filters = filters
        self._tokens = list(self._split(text))
        self._at = 0
        self._deep = 0
        self._links = 0

    def whole(self) -> Expression:
        """Parse an expression that takes up all tokens."""
        value = self.expression()
        if self._at < len(self._tokens):
            raise self.fault(f"`{self._tokens[self._at].text}` is not expected there")
        return value

    def expression(self) -> Expression:
        """Parse a conditional expression, or one of a lower level."""
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
        """Consume the next token if it is one of these; else return None."""
        if self._at < len(self._tokens):
            token = self._tokens[self._at]
            if token.kind in ("name", "sign") and token.text in texts:
                self._at += 1
                return token.text
        return None

    def name(self) -> str:
        """Consume a name."""
        if self._at < len(self._tokens) and self._tokens[self._at].kind == "name":
            self._at += 1
            return self._tokens[self._at - 1].text
        raise self.fault("a name is missing")

    def needs(self, text: str) -> None:
        """Consume a required token."""
        if self.takes(text) is None:
            raise self.fault(f"`{text}` is missing")

    def fault(self, message: str) -> TemplateFault:
        """Make an error with the line of the expression."""
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
        """Like `takes`, for tokens that make the syntax tree deeper."""
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
            if name not in self._filters:
                known = ", ".join(sorted(self._filters))
                raise self.fault(f"there is no filter `{name}` here; there are {known}")
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


_OPEN = re.compile(r"\{([{%#])(-?)")
_CLOSE = {"{": "}}", "%": "%}", "#": "#}"}
_RAW = re.compile(r"\{%-?\s*end(?:raw|verbatim)\s*-?%\}")
_WORD = re.compile(r"\s*([A-Za-z]\w*)")

TAGS = ("if", "for", "set", "raw")


class Piece(NamedTuple):
    """Plain text, or the content of braces."""

    kind: str
    text: str
    line: int


def parse(text: str, filters: Collection[str]) -> tuple[Node, ...]:
    """Parse a template; raises `TemplateFault` with the line."""
    return _Parser(list(_pieces(text)), filters).body(())


def _pieces(text: str) -> Iterator[Piece]:
    at = counted = 0
    line = 1
    left_off = False
    while (found := _OPEN.search(text, at)) is not None:
        words = text[at : found.start()]
        yield Piece("words", _cut(words, left_off, found[2] == "-"), 0)
        line += text.count("\n", counted, found.start())
        counted = found.start()
        close = _CLOSE[found[1]]
        end = _end(text, found.end(), close)
        if end < 0:
            raise TemplateFault(f"`{found[0]}` is not closed by `{close}`", line)
        inner = text[found.end() : end]
        # `-}}` strips the blanks after it, `{{-` those before it
        left_off = inner.endswith("-")
        at = end + len(close)
        word = _WORD.match(inner)
        if found[1] == "%" and word is not None and word[1] in ("raw", "verbatim"):
            raw = _RAW.search(text, at)
            if raw is None:
                raise TemplateFault("`{% raw %}` has no `{% endraw %}`", line)
            yield Piece("words", text[at : raw.start()], line)
            at = raw.end()
        elif found[1] != "#":
            yield Piece(found[1], inner.removesuffix("-"), line)
    yield Piece("words", _cut(text[at:], left_off, False), 0)


def _end(text: str, at: int, close: str) -> int:
    """Offset of the closing braces, ignoring those in quotes; -1 if there are none."""
    quote = ""
    while at < len(text):
        if quote:
            if text[at] == "\\":
                at += 1
            elif text[at] == quote:
                quote = ""
        elif text.startswith(close, at):
            return at
        elif text[at] in "\"'" and close != "#}":
            quote = text[at]
        at += 1
    return -1


def _cut(words: str, before: bool, behind: bool) -> str:
    words = words.lstrip() if before else words
    return words.rstrip() if behind else words


class _Parser:
    def __init__(self, pieces: list[Piece], filters: Collection[str]) -> None:
        self._pieces = pieces
        self._filters = filters
        self._at = 0
        self._deep = 0

    def body(self, ends: tuple[str, ...]) -> tuple[Node, ...]:
        """Parse up to one of these tags, which is not consumed; without tags, up to the end."""
        nodes: list[Node] = []
        began = self._pieces[max(0, self._at - 1)]
        self._deep += 1
        while self._at < len(self._pieces):
            piece = self._pieces[self._at]
            if piece.kind == "%" and self._tag(piece) in ends:
                self._deep -= 1
                return tuple(nodes)
            self._at += 1
            if piece.kind == "words":
                nodes += [Words(piece.text)] if piece.text else []
            elif piece.kind == "{":
                nodes.append(Shown(Reader(piece.text, piece.line, self._filters).whole()))
            else:
                nodes.append(self._statement(piece))
        if ends:
            raise TemplateFault(f"`{{% {ends[-1]} %}}` is missing", began.line)
        return tuple(nodes)

    def _tag(self, piece: Piece) -> str:
        word = _WORD.match(piece.text)
        return word[1] if word else ""

    def _statement(self, piece: Piece) -> Node:
        tag = self._tag(piece)
        if self._deep > MOST_NESTED:
            raise TemplateFault("nested too deeply", piece.line)
        reader = self._reader(piece)
        if tag == "if":
            return self._branch(reader)
        if tag == "for":
            return self._loop(reader)
        if tag == "set":
            name = reader.name()
            reader.needs("=")
            return Bind(name, reader.whole())
        known = ", ".join(f"`{one}`" for one in TAGS)
        raise TemplateFault(f"`{{% {tag} %}}` is not supported; there are {known}", piece.line)

    def _reader(self, piece: Piece) -> Reader:
        word = _WORD.match(piece.text)
        return Reader(piece.text[word.end() if word else 0 :], piece.line, self._filters)

    def _next(self) -> Piece:
        self._at += 1
        return self._pieces[self._at - 1]

    def _branch(self, reader: Reader) -> Branch:
        arms: list[tuple[Expression | None, tuple[Node, ...]]] = []
        test: Expression | None = reader.whole()
        while True:
            arms.append((test, self.body(("elif", "elseif", "else", "endif"))))
            piece = self._next()
            tag = self._tag(piece)
            if tag == "endif":
                return Branch(tuple(arms))
            test = None if tag == "else" else self._reader(piece).whole()

    def _loop(self, reader: Reader) -> Loop:
        names = [reader.name()]
        while reader.takes(","):
            names.append(reader.name())
        reader.needs("in")
        over = reader.whole()
        body = self.body(("else", "endfor"))
        otherwise: tuple[Node, ...] = ()
        if self._tag(self._next()) == "else":
            otherwise = self.body(("endfor",))
            self._next()
        return Loop(tuple(names), over, body, otherwise)
