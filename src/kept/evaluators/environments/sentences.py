"""Sentences of a text: parted at full stops that end one, and not at those that abbreviate."""

import re

_ABBREVIATIONS = frozenset(
    (
        *("mr", "mrs", "ms", "dr", "prof", "st", "sr", "jr", "vs", "etc", "inc", "ltd", "co"),
        *("corp", "fig", "no", "vol", "eg", "ie", "cf", "al", "dept", "est", "gen", "gov", "hon"),
        *("lt", "col", "sgt", "capt", "rev", "approx", "jan", "feb", "mar", "apr", "jun", "jul"),
        *("aug", "sep", "sept", "oct", "nov", "dec", "am", "pm", "us", "uk"),
    )
)
# the stops of Chinese, Japanese and the scripts of India end sentences, too
_END = re.compile("[.!?\u3002\uff01\uff1f\u0964]+[\"'\u201d\u2019)\\]*_]*(?=\\s|$)")


def sentences_of(text: str) -> list[str]:
    """The sentences of a text, in order; a line of its own is one, too."""
    found: list[str] = []
    for block in re.split(r"\n+", text):
        begin = 0
        for end in _END.finditer(block):
            if _ends(block, begin, end):
                found.append(block[begin : end.end()])
                begin = end.end()
        found.append(block[begin:])
    return [one.strip() for one in found if re.search(r"\w", one)]


def _ends(block: str, begin: int, end: re.Match[str]) -> bool:
    """Whether a stop ends a sentence."""
    if not end[0].startswith(".") or end[0].startswith(".."):
        return True
    before = re.search(r"[\w.]+\Z", block[begin : end.start()])
    word = before[0] if before else ""
    if word.replace(".", "").lower() in _ABBREVIATIONS:
        return False
    # an initial, as in `J. Smith`, or the number of a list
    single = len(word) == 1 and word.isalpha() and word.isupper() and word != "I"
    numbered = word.isdigit() and not block[begin : end.start() - len(word)].strip()
    return not (single or numbered)
