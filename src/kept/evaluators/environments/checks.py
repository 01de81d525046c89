"""The instructions of IFEval: for each, whether a text follows it and what is wrong if not.

Pure. The kinds and their arguments are those of the published list; the checks are written anew.
"""

import re
import string
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from kept.core.parsing import parse_json
from kept.core.words import count
from kept.evaluators.environments.language import is_in, name_of
from kept.evaluators.environments.sentences import sentences_of

Kind = str
Check = Callable[[str, Mapping[str, Any]], str]
"""What is wrong with a text; nothing where it follows the instruction."""


@dataclass(frozen=True, slots=True)
class Checked:
    """One kind of instruction."""

    check: Check
    takes: Mapping[str, type]
    """Its arguments."""


def unmet(kind: Kind, text: str, args: Mapping[str, Any]) -> str:
    """What of an instruction a text does not follow; nothing where it does."""
    return CHECKS[kind].check(text, args)


def _compared(found: int, relation: str, wanted: int, what: str) -> str:
    """What is wrong with a number, where something is."""
    fits = found < wanted if relation == "less than" else found >= wanted
    return "" if fits else f"{count(found, what)}, and {relation} {wanted} were asked for"


def _existence(text: str, args: Mapping[str, Any]) -> str:
    missing = [one for one in args["keywords"] if not _occurs(one, text)]
    return f"without {_list(missing)}" if missing else ""


def _occurs(keyword: str, text: str) -> bool:
    return keyword.casefold() in text.casefold()


def _frequency(text: str, args: Mapping[str, Any]) -> str:
    keyword = str(args["keyword"])
    found = text.casefold().count(keyword.casefold())
    return _compared(found, args["relation"], args["frequency"], f"`{keyword}`")


def _forbidden(text: str, args: Mapping[str, Any]) -> str:
    def stands(word: str) -> bool:
        return bool(re.search(rf"\b{re.escape(word)}\b", text, re.IGNORECASE))

    found = [one for one in args["forbidden_words"] if stands(one)]
    return f"with {_list(found)}" if found else ""


def _letters(text: str, args: Mapping[str, Any]) -> str:
    letter = str(args["letter"]).lower()
    found = text.lower().count(letter)
    return _compared(found, args["let_relation"], args["let_frequency"], f"`{letter}`")


def _language(text: str, args: Mapping[str, Any]) -> str:
    code = str(args["language"])
    return "" if is_in(text, code) else f"not in {name_of(code)} alone"


def _sentences(text: str, args: Mapping[str, Any]) -> str:
    found = len(sentences_of(text))
    return _compared(found, args["relation"], args["num_sentences"], "sentence")


def _paragraphs(text: str, args: Mapping[str, Any]) -> str:
    parts = [part.strip() for part in re.split(r"\s?\*\*\*\s?", text)]
    # a rule before the first or behind the last paragraph parts nothing
    parts = parts[1:] if parts and not parts[0] else parts
    parts = parts[:-1] if parts and not parts[-1] else parts
    if not all(parts):
        return "a paragraph between two `***` is empty"
    wanted = args["num_paragraphs"]
    found = count(len(parts), "paragraph")
    return "" if len(parts) == wanted else f"{found} between `***`, and {wanted} were asked for"


def _words(text: str, args: Mapping[str, Any]) -> str:
    found = len(re.findall(r"\w+", text))
    return _compared(found, args["relation"], args["num_words"], "word")


def _first_word(text: str, args: Mapping[str, Any]) -> str:
    parts = [part.strip() for part in re.split(r"\n\n", text)]
    parts = [part for part in parts if part]
    wanted, nth = args["num_paragraphs"], args["nth_paragraph"]
    if len(parts) != wanted:
        return f"{count(len(parts), 'paragraph')}, and {wanted} were asked for"
    if nth > len(parts):
        return f"there is no paragraph {nth}"
    first = parts[nth - 1].split()[0].strip("'\"").rstrip(string.punctuation).lower()
    expected = str(args["first_word"]).lower()
    return "" if first == expected else f"paragraph {nth} begins with `{first}`, not `{expected}`"


def _placeholders(text: str, args: Mapping[str, Any]) -> str:
    found = len(re.findall(r"\[.*?\]", text))
    return _compared(found, "at least", args["num_placeholders"], "placeholder in brackets")


def _postscript(text: str, args: Mapping[str, Any]) -> str:
    marker = str(args["postscript_marker"])
    letters = {"P.S.": r"p\.\s?s\.", "P.P.S": r"p\.\s?p\.\s?s"}.get(marker)
    pattern = letters or re.escape(marker.lower())
    found = re.search(rf"^\s*{pattern}|\s{pattern}", text.lower(), re.MULTILINE)
    return "" if found else f"no postscript that begins with `{marker}`"


def _bullets(text: str, args: Mapping[str, Any]) -> str:
    stars = re.findall(r"^\s*\*[^*\n].*$", text, re.MULTILINE)
    dashes = re.findall(r"^\s*-.*$", text, re.MULTILINE)
    found, wanted = len(stars) + len(dashes), args["num_bullets"]
    if found == wanted:
        return ""
    return f"{count(found, 'bullet')}, and exactly {wanted} were asked for"


def _constrained(text: str, args: Mapping[str, Any]) -> str:
    options = ("My answer is yes.", "My answer is no.", "My answer is maybe.")
    return "" if any(one in text for one in options) else f"none of {_list(options)}"


def _highlights(text: str, args: Mapping[str, Any]) -> str:
    single = re.findall(r"\*[^\n*]*\*", text)
    double = re.findall(r"\*\*[^\n*]*\*\*", text)
    found = sum(bool(one.strip("*").strip()) for one in (*single, *double))
    return _compared(found, "at least", args["num_highlights"], "highlighted part")


def _sections(text: str, args: Mapping[str, Any]) -> str:
    mark = str(args["section_spliter"])
    found = len(re.findall(rf"\s?{re.escape(mark)}\s?\d+\s?", text))
    return _compared(found, "at least", args["num_sections"], f"section `{mark} 1, 2 …`")


def _json(text: str, args: Mapping[str, Any]) -> str:
    bare = text.strip()
    fence = re.fullmatch(r"```(?:json)?[ \t]*\n?(.*?)\n?```", bare, re.DOTALL | re.IGNORECASE)
    try:
        parse_json(fence[1] if fence else bare)
    except ValueError as error:
        return f"not JSON: {error}"
    return ""


def _title(text: str, args: Mapping[str, Any]) -> str:
    titles = re.findall(r"<<[^\n]+>>", text)
    there = any(one.lstrip("<").rstrip(">").strip() for one in titles)
    return "" if there else "no title in `<<` and `>>`"


def _two(text: str, args: Mapping[str, Any]) -> str:
    parts = [part.strip() for part in text.split("******")]
    inner = [part for n, part in enumerate(parts) if part or 0 < n < len(parts) - 1]
    if len(inner) != 2 or not all(inner):
        return f"{count(len(inner), 'response')} between `******`, and two were asked for"
    return "" if inner[0] != inner[1] else "both responses are the same"


def _repeats(text: str, args: Mapping[str, Any]) -> str:
    prompt = str(args["prompt_to_repeat"]).strip().lower()
    same = text.strip().lower().startswith(prompt)
    return "" if same else "it does not begin with the request, word for word"


def _ends(text: str, args: Mapping[str, Any]) -> str:
    phrase = str(args["end_phrase"])
    same = text.strip().strip('"').lower().endswith(phrase.strip().lower())
    return "" if same else f"it does not end with `{phrase}`"


def _capital_words(text: str, args: Mapping[str, Any]) -> str:
    words = re.findall("[^\\W_]+(?:['\u2019-][^\\W_]+)*", text)
    found = sum(word.isupper() for word in words)
    return _compared(found, args["capital_relation"], args["capital_frequency"], "word in capitals")


def _capital(text: str, args: Mapping[str, Any]) -> str:
    if not text.isupper():
        return "not all letters are capitals"
    return "" if is_in(text.lower(), "en") else "not in English"


def _lowercase(text: str, args: Mapping[str, Any]) -> str:
    if not text.islower():
        return "not all letters are small"
    return "" if is_in(text, "en") else "not in English"


def _no_comma(text: str, args: Mapping[str, Any]) -> str:
    found = text.count(",")
    return f"with {count(found, 'comma')}" if found else ""


def _quotation(text: str, args: Mapping[str, Any]) -> str:
    bare = text.strip()
    quoted = len(bare) > 1 and bare[0] == bare[-1] == '"'
    return "" if quoted else "it is not in double quotes as a whole"


def _list(words: list[str] | tuple[str, ...]) -> str:
    return ", ".join(f"`{word}`" for word in words)


_NONE: Mapping[str, type] = {}

CHECKS: Mapping[Kind, Checked] = {
    "change_case:capital_word_frequency": Checked(
        _capital_words, {"capital_relation": str, "capital_frequency": int}
    ),
    "change_case:english_capital": Checked(_capital, _NONE),
    "change_case:english_lowercase": Checked(_lowercase, _NONE),
    "combination:repeat_prompt": Checked(_repeats, {"prompt_to_repeat": str}),
    "combination:two_responses": Checked(_two, _NONE),
    "detectable_content:number_placeholders": Checked(_placeholders, {"num_placeholders": int}),
    "detectable_content:postscript": Checked(_postscript, {"postscript_marker": str}),
    "detectable_format:constrained_response": Checked(_constrained, _NONE),
    "detectable_format:json_format": Checked(_json, _NONE),
    "detectable_format:multiple_sections": Checked(
        _sections, {"section_spliter": str, "num_sections": int}
    ),
    "detectable_format:number_bullet_lists": Checked(_bullets, {"num_bullets": int}),
    "detectable_format:number_highlighted_sections": Checked(_highlights, {"num_highlights": int}),
    "detectable_format:title": Checked(_title, _NONE),
    "keywords:existence": Checked(_existence, {"keywords": list}),
    "keywords:forbidden_words": Checked(_forbidden, {"forbidden_words": list}),
    "keywords:frequency": Checked(_frequency, {"relation": str, "keyword": str, "frequency": int}),
    "keywords:letter_frequency": Checked(
        _letters, {"let_relation": str, "letter": str, "let_frequency": int}
    ),
    "language:response_language": Checked(_language, {"language": str}),
    "length_constraints:nth_paragraph_first_word": Checked(
        _first_word, {"first_word": str, "num_paragraphs": int, "nth_paragraph": int}
    ),
    "length_constraints:number_paragraphs": Checked(_paragraphs, {"num_paragraphs": int}),
    "length_constraints:number_sentences": Checked(
        _sentences, {"relation": str, "num_sentences": int}
    ),
    "length_constraints:number_words": Checked(_words, {"relation": str, "num_words": int}),
    "punctuation:no_comma": Checked(_no_comma, _NONE),
    "startend:end_checker": Checked(_ends, {"end_phrase": str}),
    "startend:quotation": Checked(_quotation, _NONE),
}
"""All kinds of the published list."""
