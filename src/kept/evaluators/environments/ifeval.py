"""IFEval: prompts with instructions that a program can check.

A row has `key`, `prompt`, `instruction_id_list` and `kwargs`, one mapping for each instruction. A
case is solved if every instruction is followed; `soft` is the share that is. Kinds and arguments
are those of the published list; the checks are an independent implementation and pure.

Languages are detected without a model, by script and by common words. Only the languages that
IFEval asks for are distinguished. Where several share a script, the one with most of its common
words wins. The sentence splitter ignores full stops of abbreviations.
"""

import re
import string
import unicodedata
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from importlib.resources import files
from pathlib import Path
from typing import TypedDict, cast, get_type_hints

from kept.core.case import Case
from kept.core.parsing import parse_json
from kept.core.rollout import Failure, Rollout
from kept.core.text import count
from kept.evaluators.environments.base import About, Environment, Graded, Item, Posed, initial
from kept.evaluators.environments.datasets import Fields, Row, as_items, item, rows_in, values

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
"""First word of a letter's Unicode name, and the languages written with it."""

FOREIGN = 0.2
"""Maximum share of letters of another script in a text of one language."""


@lru_cache
def _common() -> Mapping[str, frozenset[str]]:
    """Common words of the languages that share a script with others."""
    folder = files("kept.evaluators.environments")
    text = folder.joinpath("ifeval_words.txt").read_text(encoding="utf-8")
    rows = (line.partition(": ") for line in text.splitlines())
    return {code: frozenset(words.split()) for code, _, words in rows}


def name_of(code: str) -> str:
    """Name of a language."""
    return LANGUAGES.get(code, f"`{code}`")


def is_in(text: str, code: str) -> bool:
    """True if a text is in a language; a text without letters is in none."""
    code = code.partition("-")[0].lower()
    scripts = _scripts(text)
    total = sum(scripts.values())
    if not total:
        return False
    script, most = scripts.most_common(1)[0]
    if code == "ja" and any(scripts[one] for one in ("HIRAGANA", "KATAKANA")):
        return True
    # one script may serve several languages; then common words decide
    who = SCRIPTS.get(script, ())
    if code not in who or (total - most) / total > FOREIGN:
        return False
    return len(who) == 1 or language_of(text, who) in (code, None)


def language_of(text: str, among: tuple[str, ...]) -> str | None:
    """Language with the most common words in a text; None if no language has any."""
    # `\w` misses the vowel signs of Devanagari; the second count catches words of other scripts
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
            if _ends_sentence(block, begin, end):
                found.append(block[begin : end.end()])
                begin = end.end()
        found.append(block[begin:])
    return [one.strip() for one in found if re.search(r"\w", one)]


def _ends_sentence(block: str, begin: int, end: re.Match[str]) -> bool:
    """True if a stop ends a sentence."""
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


Kind = str


class Arguments(TypedDict):
    """Arguments of the published list; an instruction has those that its kind takes."""

    capital_frequency: int
    capital_relation: str
    end_phrase: str
    first_word: str
    forbidden_words: list[str]
    frequency: int
    keyword: str
    keywords: list[str]
    language: str
    let_frequency: int
    let_relation: str
    letter: str
    nth_paragraph: int
    num_bullets: int
    num_highlights: int
    num_paragraphs: int
    num_placeholders: int
    num_sections: int
    num_sentences: int
    num_words: int
    postscript_marker: str
    prompt_to_repeat: str
    relation: str
    section_spliter: str


_TYPES = get_type_hints(Arguments)

Check = Callable[[str, Arguments], str]
"""Check of a text that returns the fault; empty if the text follows the instruction."""


@dataclass(frozen=True, slots=True)
class Checked:
    """One kind of instruction."""

    check: Check
    takes: tuple[str, ...] = ()
    """Its arguments."""


def unmet(kind: Kind, text: str, args: Arguments) -> str:
    """Text that says how an instruction is not followed; empty if it is."""
    return CHECKS[kind].check(text, args)


def _compared(found: int, relation: str, wanted: int, what: str) -> str:
    """Compare a number as asked and return the fault; empty if it fits."""
    fits = found < wanted if relation == "less than" else found >= wanted
    return "" if fits else f"{count(found, what)}, and {relation} {wanted} were asked for"


def _existence(text: str, args: Arguments) -> str:
    missing = [one for one in args["keywords"] if not _occurs(one, text)]
    return f"without {_list(missing)}" if missing else ""


def _occurs(keyword: str, text: str) -> bool:
    return keyword.casefold() in text.casefold()


def _frequency(text: str, args: Arguments) -> str:
    keyword = args["keyword"]
    found = text.casefold().count(keyword.casefold())
    return _compared(found, args["relation"], args["frequency"], f"`{keyword}`")


def _forbidden(text: str, args: Arguments) -> str:
    def stands(word: str) -> bool:
        return bool(re.search(rf"\b{re.escape(word)}\b", text, re.IGNORECASE))

    found = [one for one in args["forbidden_words"] if stands(one)]
    return f"with {_list(found)}" if found else ""


def _letters(text: str, args: Arguments) -> str:
    letter = args["letter"].lower()
    found = text.lower().count(letter)
    return _compared(found, args["let_relation"], args["let_frequency"], f"`{letter}`")


def _language(text: str, args: Arguments) -> str:
    code = args["language"]
    return "" if is_in(text, code) else f"not in {name_of(code)} alone"


def _sentences(text: str, args: Arguments) -> str:
    found = len(sentences_of(text))
    return _compared(found, args["relation"], args["num_sentences"], "sentence")


def _paragraphs(text: str, args: Arguments) -> str:
    parts = [part.strip() for part in re.split(r"\s?\*\*\*\s?", text)]
    # a rule before the first or behind the last paragraph parts nothing
    parts = parts[1:] if parts and not parts[0] else parts
    parts = parts[:-1] if parts and not parts[-1] else parts
    if not all(parts):
        return "a paragraph between two `***` is empty"
    wanted = args["num_paragraphs"]
    found = count(len(parts), "paragraph")
    return "" if len(parts) == wanted else f"{found} between `***`, and {wanted} were asked for"


def _words(text: str, args: Arguments) -> str:
    found = len(re.findall(r"\w+", text))
    return _compared(found, args["relation"], args["num_words"], "word")


def _first_word(text: str, args: Arguments) -> str:
    parts = [part.strip() for part in re.split(r"\n\n", text)]
    parts = [part for part in parts if part]
    wanted, nth = args["num_paragraphs"], args["nth_paragraph"]
    if len(parts) != wanted:
        return f"{count(len(parts), 'paragraph')}, and {wanted} were asked for"
    if nth > len(parts):
        return f"there is no paragraph {nth}"
    first = parts[nth - 1].split()[0].strip("'\"").rstrip(string.punctuation).lower()
    expected = args["first_word"].lower()
    return "" if first == expected else f"paragraph {nth} begins with `{first}`, not `{expected}`"


def _placeholders(text: str, args: Arguments) -> str:
    found = len(re.findall(r"\[.*?\]", text))
    return _compared(found, "at least", args["num_placeholders"], "placeholder in brackets")


def _postscript(text: str, args: Arguments) -> str:
    marker = args["postscript_marker"]
    letters = {"P.S.": r"p\.\s?s\.", "P.P.S": r"p\.\s?p\.\s?s"}.get(marker)
    pattern = letters or re.escape(marker.lower())
    found = re.search(rf"^\s*{pattern}|\s{pattern}", text.lower(), re.MULTILINE)
    return "" if found else f"no postscript that begins with `{marker}`"


def _bullets(text: str, args: Arguments) -> str:
    stars = re.findall(r"^\s*\*[^*\n].*$", text, re.MULTILINE)
    dashes = re.findall(r"^\s*-.*$", text, re.MULTILINE)
    found, wanted = len(stars) + len(dashes), args["num_bullets"]
    if found == wanted:
        return ""
    return f"{count(found, 'bullet')}, and exactly {wanted} were asked for"


def _constrained(text: str, args: Arguments) -> str:
    options = ("My answer is yes.", "My answer is no.", "My answer is maybe.")
    return "" if any(one in text for one in options) else f"none of {_list(options)}"


def _highlights(text: str, args: Arguments) -> str:
    single = re.findall(r"\*[^\n*]*\*", text)
    double = re.findall(r"\*\*[^\n*]*\*\*", text)
    found = sum(bool(one.strip("*").strip()) for one in (*single, *double))
    return _compared(found, "at least", args["num_highlights"], "highlighted part")


def _sections(text: str, args: Arguments) -> str:
    mark = args["section_spliter"]
    found = len(re.findall(rf"\s?{re.escape(mark)}\s?\d+\s?", text))
    return _compared(found, "at least", args["num_sections"], f"section `{mark} 1, 2 …`")


def _json(text: str, args: Arguments) -> str:
    bare = text.strip()
    fence = re.fullmatch(r"```(?:json)?[ \t]*\n?(.*?)\n?```", bare, re.DOTALL | re.IGNORECASE)
    try:
        parse_json(fence[1] if fence else bare)
    except ValueError as error:
        return f"not JSON: {error}"
    return ""


def _title(text: str, args: Arguments) -> str:
    titles = re.findall(r"<<[^\n]+>>", text)
    there = any(one.lstrip("<").rstrip(">").strip() for one in titles)
    return "" if there else "no title in `<<` and `>>`"


def _two(text: str, args: Arguments) -> str:
    parts = [part.strip() for part in text.split("******")]
    inner = [part for n, part in enumerate(parts) if part or 0 < n < len(parts) - 1]
    if len(inner) != 2 or not all(inner):
        return f"{count(len(inner), 'response')} between `******`, and two were asked for"
    return "" if inner[0] != inner[1] else "both responses are the same"


def _repeats(text: str, args: Arguments) -> str:
    prompt = args["prompt_to_repeat"].strip().lower()
    same = text.strip().lower().startswith(prompt)
    return "" if same else "it does not begin with the request, word for word"


def _ends(text: str, args: Arguments) -> str:
    phrase = args["end_phrase"]
    same = text.strip().strip('"').lower().endswith(phrase.strip().lower())
    return "" if same else f"it does not end with `{phrase}`"


def _capital_words(text: str, args: Arguments) -> str:
    words = re.findall("[^\\W_]+(?:['\u2019-][^\\W_]+)*", text)
    found = sum(word.isupper() for word in words)
    return _compared(found, args["capital_relation"], args["capital_frequency"], "word in capitals")


def _capital(text: str, args: Arguments) -> str:
    if not text.isupper():
        return "not all letters are capitals"
    return "" if is_in(text.lower(), "en") else "not in English"


def _lowercase(text: str, args: Arguments) -> str:
    if not text.islower():
        return "not all letters are small"
    return "" if is_in(text, "en") else "not in English"


def _no_comma(text: str, args: Arguments) -> str:
    found = text.count(",")
    return f"with {count(found, 'comma')}" if found else ""


def _quotation(text: str, args: Arguments) -> str:
    bare = text.strip()
    quoted = len(bare) > 1 and bare[0] == bare[-1] == '"'
    return "" if quoted else "it is not in double quotes as a whole"


def _list(words: list[str] | tuple[str, ...]) -> str:
    return ", ".join(f"`{word}`" for word in words)


CHECKS: Mapping[Kind, Checked] = {
    "change_case:capital_word_frequency": Checked(
        _capital_words, ("capital_relation", "capital_frequency")
    ),
    "change_case:english_capital": Checked(_capital),
    "change_case:english_lowercase": Checked(_lowercase),
    "combination:repeat_prompt": Checked(_repeats, ("prompt_to_repeat",)),
    "combination:two_responses": Checked(_two),
    "detectable_content:number_placeholders": Checked(_placeholders, ("num_placeholders",)),
    "detectable_content:postscript": Checked(_postscript, ("postscript_marker",)),
    "detectable_format:constrained_response": Checked(_constrained),
    "detectable_format:json_format": Checked(_json),
    "detectable_format:multiple_sections": Checked(_sections, ("section_spliter", "num_sections")),
    "detectable_format:number_bullet_lists": Checked(_bullets, ("num_bullets",)),
    "detectable_format:number_highlighted_sections": Checked(_highlights, ("num_highlights",)),
    "detectable_format:title": Checked(_title),
    "keywords:existence": Checked(_existence, ("keywords",)),
    "keywords:forbidden_words": Checked(_forbidden, ("forbidden_words",)),
    "keywords:frequency": Checked(_frequency, ("relation", "keyword", "frequency")),
    "keywords:letter_frequency": Checked(_letters, ("let_relation", "letter", "let_frequency")),
    "language:response_language": Checked(_language, ("language",)),
    "length_constraints:nth_paragraph_first_word": Checked(
        _first_word, ("first_word", "num_paragraphs", "nth_paragraph")
    ),
    "length_constraints:number_paragraphs": Checked(_paragraphs, ("num_paragraphs",)),
    "length_constraints:number_sentences": Checked(_sentences, ("relation", "num_sentences")),
    "length_constraints:number_words": Checked(_words, ("relation", "num_words")),
    "punctuation:no_comma": Checked(_no_comma),
    "startend:end_checker": Checked(_ends, ("end_phrase",)),
    "startend:quotation": Checked(_quotation),
}
"""All kinds of the published list."""


__all__ = ["IfEval"]


@dataclass(frozen=True)
class IfEval(Environment):
    """IFEval environment: one case is one prompt."""

    name = "ifeval"
    data = (
        "IFEval (huggingface.co/datasets/google/IFEval): a file of rows (prompt, "
        "instruction_id_list, kwargs) as `env.data_path`; or with `split_mode: split_dir` such "
        "rows in train/, val/ and test/ below `env.split_dir`"
    )

    def skill(self) -> Mapping[str, str]:
        """Return the initial skill, a few lines."""
        return initial("ifeval")

    def read(self, path: Path) -> Iterable[Item]:
        """Prompts of JSON lines or JSON."""
        fields = Fields()
        return as_items(fields, self._items(path, fields))

    def _items(self, path: Path, fields: Fields) -> Iterator[Item]:
        for row in rows_in(path):
            prompt = fields.text(row, ("prompt",))
            wanted = _wanted(row, fields)
            if prompt is not None and wanted is not None:
                kinds, given = [kind for kind, _ in wanted], [args for _, args in wanted]
                data = {"prompt": prompt, "instruction_id_list": kinds, "kwargs": given}
                yield item(row, data)

    def pose(self, case: Case) -> Posed:
        """The prompt as it stands."""
        return Posed(values(case)["prompt"])

    def grade(self, case: Case, rollout: Rollout) -> Graded | Failure:
        """Check every instruction on the unchanged reply."""
        wanted = instructions(case)
        text = rollout.output
        faults = [(kind, unmet(kind, text, args)) for kind, args in wanted]
        broken = [f"{kind}: {fault}" for kind, fault in faults if fault]
        share = 1 - len(broken) / len(wanted)
        loose = all(
            any(not unmet(kind, one, args) for one in loosened(text)) for kind, args in wanted
        )
        metrics = {"loose": float(loose), "followed": share}
        told = f"{len(wanted) - len(broken)} of {len(wanted)} instructions are followed"
        return Graded(float(not broken), share, "; ".join(broken), told, metrics)

    def about(self, case: Case) -> About:
        """Prompt and its kinds of instructions; nothing is hidden."""
        data = values(case)
        return About(data["prompt"], ", ".join(data["instruction_id_list"]))


def instructions(case: Case) -> list[tuple[Kind, Arguments]]:
    """The instructions of a case, each with its arguments."""
    data = values(case)
    return list(zip(data["instruction_id_list"], data["kwargs"], strict=True))


def loosened(text: str) -> list[str]:
    """A reply without what models like to put around it: a first or last line, and stars."""
    lines = text.split("\n")
    cut = ("\n".join(part).strip() for part in (lines, lines[1:], lines[:-1], lines[1:-1]))
    found = [text, *cut]
    found += [one.replace("*", "") for one in found]
    return [one for one in dict.fromkeys(found) if one.strip()]


def _wanted(row: Row, fields: Fields) -> list[tuple[Kind, dict[str, object]]] | None:
    """Instructions of a row; None if they are invalid, which is reported."""
    kinds: object = row.data.get("instruction_id_list")
    given: object = row.data.get("kwargs")
    if not isinstance(kinds, list) or not kinds or not isinstance(given, list):
        fields.wrong(row, "`instruction_id_list` and `kwargs` are no lists")
        return None
    names, rows = cast("list[object]", kinds), cast("list[object]", given)
    if len(names) != len(rows):
        fields.wrong(row, f"there are {len(names)} instructions, and `kwargs` for {len(rows)}")
        return None
    found: list[tuple[Kind, dict[str, object]]] = []
    for name, args in zip(names, rows, strict=True):
        fault = _fault(name, args)
        if fault:
            fields.wrong(row, fault)
            return None
        plain = {
            key: one for key, one in cast("dict[str, object]", args).items() if one is not None
        }
        found.append((str(name), plain))
    return found


def _fault(name: object, args: object) -> str:
    if not isinstance(name, str) or name not in CHECKS:
        return f"`{name}` is an instruction that nobody here can check"
    if not isinstance(args, dict):
        return f"the `kwargs` of `{name}` are no mapping"
    held = cast("dict[str, object]", args)
    for key in CHECKS[name].takes:
        value = held.get(key)
        if value is None:
            return f"`{name}` lacks `{key}`"
        if not _fits(value, _TYPES[key]):
            return f"`{key}` of `{name}` is `{value}`, which it cannot be"
    return ""


def _fits(value: object, kind: type) -> bool:
    if isinstance(value, list):
        words = cast("list[object]", value)
        return kind == list[str] and all(isinstance(word, str) for word in words)
    return type(value) is kind  # a bool is no int here
