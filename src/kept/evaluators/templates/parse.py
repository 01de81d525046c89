"""From a text to its parts."""

import re
from collections.abc import Iterator
from typing import NamedTuple

from kept.evaluators.templates.expression import Reader
from kept.evaluators.templates.fault import TemplateFault
from kept.evaluators.templates.tree import Bind, Branch, Expression, Loop, Node, Shown, Words

_OPEN = re.compile(r"\{([{%#])(-?)")
_CLOSE = {"{": "}}", "%": "%}", "#": "#}"}
_RAW = re.compile(r"\{%-?\s*end(?:raw|verbatim)\s*-?%\}")
_WORD = re.compile(r"\s*([A-Za-z]\w*)")

TAGS = ("if", "for", "set", "raw")
MOST_NESTED = 30


class Piece(NamedTuple):
    """Words, or what stands between braces."""

    kind: str
    text: str
    line: int


def parse(text: str) -> tuple[Node, ...]:
    """The parts of a template; raises `TemplateFault` with the line."""
    return _Parser(list(_pieces(text))).body(())


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
    """Where the braces close; those inside quotes do not count."""
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
    def __init__(self, pieces: list[Piece]) -> None:
        self._pieces = pieces
        self._at = 0
        self._deep = 0

    def body(self, ends: tuple[str, ...]) -> tuple[Node, ...]:
        """All up to one of these tags, which is left to be read; up to the end without any."""
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
                nodes.append(Shown(Reader(piece.text, piece.line).whole()))
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
        return Reader(piece.text[word.end() if word else 0 :], piece.line)

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
