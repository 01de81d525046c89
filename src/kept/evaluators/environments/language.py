"""Whether a text is in a language, without a model: by its script, and by words that it is full of.

It tells apart the languages that IFEval asks for. Where several share a script, the one with most
of its common words in the text is meant.
"""

import re
import unicodedata
from collections import Counter
from collections.abc import Mapping
from functools import lru_cache
from importlib.resources import files

LANGUAGES: Mapping[str, str] = {
    "ar": "Arabic",
    "bg": "Bulgarian",
    "bn": "Bengali",
    "de": "German",
    "en": "English",
    "es": "Spanish",
    "fa": "Persian",
    "fi": "Finnish",
    "fr": "French",
    "gu": "Gujarati",
    "hi": "Hindi",
    "it": "Italian",
    "ja": "Japanese",
    "kn": "Kannada",
    "ko": "Korean",
    "mr": "Marathi",
    "ne": "Nepali",
    "pa": "Punjabi",
    "pl": "Polish",
    "pt": "Portuguese",
    "ru": "Russian",
    "sv": "Swedish",
    "sw": "Swahili",
    "ta": "Tamil",
    "te": "Telugu",
    "th": "Thai",
    "tr": "Turkish",
    "uk": "Ukrainian",
    "ur": "Urdu",
    "vi": "Vietnamese",
    "zh": "Chinese",
}

SCRIPTS: Mapping[str, tuple[str, ...]] = {
    "ARABIC": ("ar", "fa", "ur"),
    "BENGALI": ("bn",),
    "CJK": ("zh",),
    "CYRILLIC": ("ru", "bg", "uk"),
    "DEVANAGARI": ("hi", "mr", "ne"),
    "GUJARATI": ("gu",),
    "GURMUKHI": ("pa",),
    "HANGUL": ("ko",),
    "HIRAGANA": ("ja",),
    "KANNADA": ("kn",),
    "KATAKANA": ("ja",),
    "LATIN": ("en", "de", "fr", "es", "pt", "it", "fi", "sv", "sw", "vi", "pl", "tr"),
    "TAMIL": ("ta",),
    "TELUGU": ("te",),
    "THAI": ("th",),
}
"""The first word of a letter's name in Unicode, and who writes with it."""

FOREIGN = 0.2
"""The share of letters of another script from which a text is not in one language alone."""


@lru_cache
def _common() -> Mapping[str, frozenset[str]]:
    """Words that texts of a language are full of, where a script does not tell it."""
    folder = files("kept.evaluators.environments")
    text = folder.joinpath("ifeval_words.txt").read_text(encoding="utf-8")
    rows = (line.partition(": ") for line in text.splitlines())
    return {code: frozenset(words.split()) for code, _, words in rows}


def name_of(code: str) -> str:
    """A language by its name."""
    return LANGUAGES.get(code, f"`{code}`")


def is_in(text: str, code: str) -> bool:
    """Whether a text is in a language; one without letters is in none."""
    code = code.partition("-")[0].lower()
    scripts = _scripts(text)
    total = sum(scripts.values())
    if not total:
        return False
    script, most = scripts.most_common(1)[0]
    if code == "ja" and any(scripts[one] for one in ("HIRAGANA", "KATAKANA")):
        return True
    who = SCRIPTS.get(script, ())
    if code not in who or (total - most) / total > FOREIGN:
        return False
    return len(who) == 1 or language_of(text, who) in (code, None)


def language_of(text: str, among: tuple[str, ...]) -> str | None:
    """Which of some languages has most of its common words in a text; None where none has any."""
    words = Counter(re.findall(r"[^\W\d_]+(?:[\u0900-\u097f]+)*", text.lower()))
    words += Counter(text.lower().split())
    hits = {code: sum(words[word] for word in _common()[code]) for code in among}
    best = max(hits, key=lambda code: hits[code])
    return best if hits[best] else None


def _scripts(text: str) -> Counter[str]:
    found: Counter[str] = Counter()
    for letter, n in Counter(text).items():
        if letter.isalpha():
            found[unicodedata.name(letter, "NONE").partition(" ")[0]] += n
    return found
