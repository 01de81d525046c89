"""Text helpers: bounded-time line diff, counts of tokens and words, number formatting.

An exact diff takes quadratic time where many lines are alike, as in data or in hostile texts. So
a large text is first split at lines that occur exactly once in both versions. A large piece
without such lines counts as changed from end to end.

Token counts are rough on purpose and the same for every model. Guards and rules compare texts by
them; bills are computed elsewhere. Pure.
"""

import html
import re
import unicodedata
from bisect import bisect_left
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from decimal import ROUND_CEILING, Decimal
from difflib import SequenceMatcher
from itertools import pairwise
from math import floor, log10
from typing import NamedTuple

MANY = 250_000
"""Pairs of lines that are compared exactly, which takes a tenth of a second at worst."""

_DEPTH = 20
"""Depth to which a piece is split further."""


class Change(NamedTuple):
    """Lines `start` to `end` of the one text, and what stands for them in the other."""

    start: int
    end: int
    new_start: int
    new_end: int


def changes(old: Sequence[str], new: Sequence[str]) -> Iterator[Change]:
    """Every stretch that differs, in order."""
    yield from _changes(old, new, Change(0, len(old), 0, len(new)), _DEPTH)


def _changes(old: Sequence[str], new: Sequence[str], piece: Change, depth: int) -> Iterator[Change]:
    piece = _trimmed(old, new, piece)
    before, after = old[piece.start : piece.end], new[piece.new_start : piece.new_end]
    if not before and not after:
        return
    if len(before) * len(after) <= MANY:
        for tag, a, b, c, d in SequenceMatcher(None, before, after, autojunk=False).get_opcodes():
            if tag != "equal":
                yield Change(
                    *(piece.start + n for n in (a, b)), *(piece.new_start + n for n in (c, d))
                )
        return
    anchors = _anchors(before, after) if depth else []
    if not anchors:
        yield piece
        return
    ends = [(-1, -1), *anchors, (len(before), len(after))]
    for (a, c), (b, d) in pairwise(ends):
        inner = Change(
            piece.start + a + 1, piece.start + b, piece.new_start + c + 1, piece.new_start + d
        )
        yield from _changes(old, new, inner, depth - 1)


def _trimmed(old: Sequence[str], new: Sequence[str], piece: Change) -> Change:
    """A piece without what both sides of it begin and end with."""
    start, end, new_start, new_end = piece
    while start < end and new_start < new_end and old[start] == new[new_start]:
        start, new_start = start + 1, new_start + 1
    while start < end and new_start < new_end and old[end - 1] == new[new_end - 1]:
        end, new_end = end - 1, new_end - 1
    return Change(start, end, new_start, new_end)


def _anchors(old: Sequence[str], new: Sequence[str]) -> list[tuple[int, int]]:
    """Places of lines that stand once on either side, as many as are in the same order on both."""
    counts, new_counts = Counter(old), Counter(new)
    places = {line: at for at, line in enumerate(new) if new_counts[line] == 1}
    pairs = [(n, places[x]) for n, x in enumerate(old) if counts[x] == 1 and x in places]
    # the longest row of pairs that rises on both sides: for each length, the least end of one
    ends: list[int] = []
    tops: list[int] = []
    before: list[int] = []
    for at, (_, place) in enumerate(pairs):
        length = bisect_left(ends, place)
        before.append(tops[length - 1] if length else -1)
        ends[length : length + 1] = [place]
        tops[length : length + 1] = [at]
    row: list[tuple[int, int]] = []
    at = tops[-1] if tops else -1
    while at >= 0:
        row.append(pairs[at])
        at = before[at]
    return row[::-1]


# Japanese, Chinese, Korean: a sign of a script without spaces is a word of its own
_SPACELESS = r"\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af"
# words that are joined by underscores are words
_WORD = re.compile(rf"[{_SPACELESS}]|[^\W_{_SPACELESS}]+")
# a word without end is no single token, nor are words without spaces
_TOKEN = re.compile(rf"[{_SPACELESS}]|[^\W_{_SPACELESS}]{{1,16}}|[^\w\s]|_")
_HALF = re.compile("[\ud800-\udc7f\udd00-\udfff]")
_NOT_ASCII = re.compile(r"[^\x00-\x7f]")
_LINE = re.compile(r"[^\r\n]*(?:\r\n|\r|\n)|[^\r\n]+")
_COMMENT = re.compile(r"^ {0,3}<!--", re.MULTILINE)
_SEEN = re.compile(r"\S")
_FENCE = re.compile(r" {0,3}(```+|~~~+)")
_ATX = re.compile(r" {0,3}(#{1,6})[ \t]+(.*)")
_UNDERLINE = re.compile(r" {0,3}(=+|-+)[ \t]*$")
_SPACE = re.compile(r"\s+")

_STOP_WORDS = """
a about after all also an and any are as at be been before but by can could did do does each for
from had has have he her his how i if in into is it its may me more most must my no nor not of on
one only or other our out over shall she should so some such than that the their them then there
these they this those to too under up use very was we were what when where which while who will with
without would you your
"""
STOP_WORDS = frozenset(_STOP_WORDS.split())
"""Words that say nothing of what a text is about; English, because most artifacts are."""

TIMES = 5
"""A word that stands fewer times is not repeated but used."""

TOP = 3
"""Number of most repeated words that a density sums."""

GRAM = 5
"""Words in a row that make a phrase."""


class Section(NamedTuple):
    """A heading and whether any word stands below it."""

    level: int
    title: str
    """As written, spaces evened out."""
    empty: bool

    @property
    def key(self) -> str:
        """Title in a form that is equal for different spellings."""
        return title_key(self.title)


def count_tokens(text: str) -> int:
    """Words and marks of punctuation: within a fifth or so of what models count in English."""
    return len(_TOKEN.findall(text))


def words_of(text: str) -> list[str]:
    """The words of a text, apart from case, punctuation, accents and what nobody sees."""
    return _WORD.findall(_folded(text))


def line_of(text: str, nth: int) -> int:
    """The line on which the nth word stands, from 1."""
    folded = _folded(text)
    for at, match in enumerate(_WORD.finditer(folded)):
        if at == nth:
            return folded.count("\n", 0, match.start()) + 1
    return 1


def _folded(text: str) -> str:
    """A text in one spelling of those that read the same, its lines as they are."""
    if not text.isascii():
        apart = _NOT_ASCII.sub(_seen, unicodedata.normalize("NFKD", text))
        text = unicodedata.normalize("NFC", apart)
    return text.casefold()


def _seen(sign: re.Match[str]) -> str:
    """A sign, unless it is an accent, or takes no room at all."""
    return "" if unicodedata.category(sign[0]) in ("Mn", "Cf") else sign[0]


def grams(words: Sequence[str], size: int) -> Iterator[tuple[str, ...]]:
    """Every stretch of so many words."""
    return zip(*(words[at:] for at in range(size)), strict=False)


def density(text: str) -> tuple[float, tuple[str, ...]]:
    """Share of the content words that the most repeated ones take, and which these are."""
    content = [w for w in words_of(text) if len(w) > 2 and not w.isdigit() and w not in STOP_WORDS]
    top = [(word, n) for word, n in Counter(content).most_common(TOP) if n >= TIMES]
    share = sum(n for _, n in top) / len(content) if content else 0.0
    return share, tuple(word for word, _ in top)


def keyword_density(text: str, keywords: Sequence[str]) -> float:
    """Share of the words that stand inside one of these words or phrases."""
    words = words_of(text)
    inside: set[int] = set()
    for keyword in keywords:
        wanted = tuple(words_of(keyword))
        for at, gram in enumerate(grams(words, len(wanted))):
            if gram == wanted:
                inside.update(range(at, at + len(wanted)))
    return len(inside) / len(words) if words else 0.0


def repetition(text: str) -> float:
    """Share of the phrases of a text that stood in it before."""
    all_grams = list(grams(words_of(text), GRAM))
    return 1 - len(set(all_grams)) / len(all_grams) if all_grams else 0.0


def title_key(title: str) -> str:
    """A title without case, spacing and marks round it."""
    return _SPACE.sub(" ", title).strip(" *_`:.").casefold()


def sections(text: str) -> list[Section]:
    """The Markdown headings of a text; what stands in fences or comments is none."""
    lines = _bare_lines(_without_comments(text))
    heads = _headings(lines)
    found: list[Section] = []
    for at, (line, level, title, size) in enumerate(heads):
        following = heads[at + 1] if at + 1 < len(heads) else None
        end = following[0] if following else len(lines)
        body = any(_WORD.search(html.unescape(row)) for row in lines[line + size : end])
        # a heading with a deeper one below it is not empty, whatever stands between the two
        deeper = following is not None and following[1] > level
        found.append(Section(level, title, not body and not deeper))
    return found


def section_texts(text: str, title: str) -> list[str]:
    """All that stands under a title, its heading and deeper ones included; each time it does."""
    lines = lines_of(text)
    heads = _headings(_bare_lines(_without_comments(text)))
    found: list[str] = []
    for at, (line, level, other, _) in enumerate(heads):
        if title_key(other) == title_key(title):
            later = (heads[n] for n in range(at + 1, len(heads)) if heads[n][1] <= level)
            end = next(later, (len(lines),))[0]
            found.append("".join(lines[line:end]))
    return found


def lines_of(text: str) -> list[str]:
    """The lines of a text, with their ends.

    Not splitlines: it also splits at form feeds, line separators and the like, where no reader of
    Markdown sees a new line; what looks like a heading there is none.
    """
    return _LINE.findall(text)


def _bare_lines(text: str) -> list[str]:
    return [line.rstrip("\r\n") for line in lines_of(text)]


def _without_comments(text: str) -> str:
    """A text with space in the place of comments, so that everything else stays where it is."""
    parts: list[str] = []
    at = 0
    # not one expression: looking for the end of each that has none would take for ever
    while start := _COMMENT.search(text, at):
        end = text.find("-->", start.end())
        # one without an end goes on to the end of the text
        stop = end + 3 if end >= 0 else len(text)
        parts += (text[at : start.start()], _SEEN.sub(" ", text[start.start() : stop]))
        at = stop
    return "".join((*parts, text[at:]))


def _headings(lines: Sequence[str]) -> list[tuple[int, int, str, int]]:
    """Line, level, title and number of lines of each heading."""
    heads: list[tuple[int, int, str, int]] = []
    fence = ""
    for number, row in enumerate(lines):
        if mark := _FENCE.match(row):
            sign = mark[1]
            if not fence:
                fence = sign
            elif sign.startswith(fence) and not row[mark.end() :].strip():
                fence = ""
            continue
        if fence:
            continue
        if atx := _ATX.match(row):
            # marks at the end are decoration
            heads.append((number, len(atx[1]), _even(atx[2].rstrip().rstrip("#")), 1))
        elif (under := _UNDERLINE.match(row)) and number and _plain(lines, number - 1):
            level = 1 if under[1][0] == "=" else 2
            heads.append((number - 1, level, _even(lines[number - 1]), 2))
    return heads


def _plain(lines: Sequence[str], number: int) -> bool:
    """True if a line can be the title above an underline: a paragraph of one line."""
    row = lines[number]
    alone = number == 0 or not lines[number - 1].strip()
    return bool(row.strip()) and alone and not _ATX.match(row) and row.lstrip()[0] not in "-*+>|"


def _even(title: str) -> str:
    return _SPACE.sub(" ", title).strip()


def all_text(texts: Mapping[str, str]) -> str:
    """Several texts as one, in the order of their names."""
    return "\n".join(texts[name] for name in sorted(texts))


def encoded(text: str) -> bytes:
    """A text as UTF-8, and bytes that were read with `surrogateescape` as they were.

    Other halves of characters, which a model may escape in JSON, become replacement characters.
    """
    try:
        return text.encode("utf-8", "surrogateescape")
    except UnicodeEncodeError:
        return _HALF.sub("\ufffd", text).encode("utf-8", "surrogateescape")


def count(n: float, one: str, many: str | None = None) -> str:
    """`1 step`, `2 steps`, `0.5 minutes`."""
    shown = str(n) if isinstance(n, int) else f"{n:g}"
    return f"{shown} {one if n == 1 else many or one + 's'}"


def significant(value: float, digits: int = 3) -> str:
    """A figure in that many significant digits, and at least the digits before the point."""
    short = f"{value:.{digits}g}"
    # 1002.3 is 1002, and not 1e+03
    return f"{value:.0f}" if "e+" in short and abs(value) < 10**15 else short


def are(n: float) -> str:
    """`is` for one, `are` for any other number."""
    return "is" if n == 1 else "are"


MAX_EXACT_USD = 1e10
"""Dollars from which twelve digits have no cents to round up."""


def dollars_at_most(usd: float) -> str:
    """`$1,234.57`, `$0.0123`: a bound, and so rounded up."""
    if usd >= MAX_EXACT_USD:
        return f"${usd:,.2f}"
    places = 2 if usd >= 0.1 or usd <= 0 else 2 - floor(log10(usd))
    # twelve digits are without the noise of a sum of fractions
    exact = Decimal(f"{usd:.12g}").quantize(Decimal(1).scaleb(-places), ROUND_CEILING)
    whole, _, part = f"{exact:,f}".partition(".")
    return f"${whole}.{part.rstrip('0'):0<2}"


LEAST_CHANCE = 1e-15
"""Below this most chances are lost in rounding, and may come out as 0, which no chance is."""


def p_words(chance: float) -> str:
    """`p = 0.0031`; never a chance of 0."""
    return f"p < {LEAST_CHANCE:g}" if chance < LEAST_CHANCE else f"p = {chance:.2g}"


def no_better(status: str) -> str:
    """That the best of a run with this status is its seed: for good, or as far as it has come."""
    return "nothing beat the seed" if status == "finished" else "nothing has beaten the seed yet"


def one_line(text: str, width: int = 0) -> str:
    """A text as one line without control characters, cut to a width."""
    flat = " ".join(text.split())
    if not flat.isprintable():
        flat = "".join(c if c.isprintable() else "�" for c in flat)
    return flat if not width or len(flat) <= width else flat[: max(1, width - 1)] + "…"


def shortened(text: str, most: int) -> str:
    """The beginning and the end of a text, and how much is missing between."""
    if len(text) <= most:
        return text
    half = most // 2
    gone = count(len(text) - 2 * half, "character")
    return f"{text[:half]}\n… {gone} left out …\n{text[-half:]}"
