"""Whether an answer follows the instructions of a row of IFEval.

Each kind is checked as the public description of the data set has it. Two kinds need what is not
here, a model of languages and one of sentences, and are left out: `supported` tells the rows that
have one. English in capitals, or without any, is checked by its letters alone.

Imports the standard library alone, as all that peers and scorers run does.
"""

import json
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

Check = Callable[[str, Mapping[str, Any]], bool]


def supported(row: Mapping[str, Any]) -> bool:
    """Whether every instruction of a row can be checked."""
    return all(kind in CHECKS for kind in row["instruction_id_list"])


def broken(said: str, row: Mapping[str, Any]) -> list[str]:
    """The instructions that an answer does not follow; an empty answer follows none."""
    kinds: Sequence[str] = row["instruction_id_list"]
    terms: Sequence[Mapping[str, Any]] = row["kwargs"]
    return [
        kind
        for kind, given in zip(kinds, terms, strict=True)
        if not said.strip() or not CHECKS[kind](said, given)
    ]


def _stands(found: int, relation: str, wanted: int) -> bool:
    if relation not in ("less than", "at least"):
        raise ValueError(f"`{relation}` is no relation of IFEval")
    return found < wanted if relation == "less than" else found >= wanted


def _existence(said: str, given: Mapping[str, Any]) -> bool:
    return all(re.search(word, said, re.IGNORECASE) for word in given["keywords"])


def _frequency(said: str, given: Mapping[str, Any]) -> bool:
    found = len(re.findall(given["keyword"], said, re.IGNORECASE))
    return _stands(found, given["relation"], given["frequency"])


def _forbidden(said: str, given: Mapping[str, Any]) -> bool:
    words = given["forbidden_words"]
    return not any(re.search(rf"\b{word}\b", said, re.IGNORECASE) for word in words)


def _letters(said: str, given: Mapping[str, Any]) -> bool:
    found = said.lower().count(given["letter"].lower())
    return _stands(found, given["let_relation"], given["let_frequency"])


def _paragraphs(said: str, given: Mapping[str, Any]) -> bool:
    """Parted by `***`; only at the ends may one be empty."""
    parts = re.split(r"\s?\*\*\*\s?", said)
    if not all(part.strip() for part in parts[1:-1]):
        return False
    return sum(bool(part.strip()) for part in parts) == given["num_paragraphs"]


def _words(said: str, given: Mapping[str, Any]) -> bool:
    return _stands(len(re.findall(r"\w+", said)), given["relation"], given["num_words"])


def _first_word(said: str, given: Mapping[str, Any]) -> bool:
    """Of one paragraph among so many, which empty lines part."""
    parts, nth = said.split("\n\n"), int(given["nth_paragraph"])
    count = sum(bool(part.strip()) for part in parts)
    if nth > count or not parts[nth - 1].strip():
        return False
    word = parts[nth - 1].split()[0].lstrip("'\"")
    first = re.split(r"[.,?!'\"]", word)[0].lower()
    return count == given["num_paragraphs"] and first == given["first_word"].lower()


def _placeholders(said: str, given: Mapping[str, Any]) -> bool:
    return len(re.findall(r"\[.*?\]", said)) >= given["num_placeholders"]


def _postscript(said: str, given: Mapping[str, Any]) -> bool:
    marker = str(given["postscript_marker"]).strip()
    spaced = {"P.P.S": r"p\.\s?p\.\s?s", "P.S.": r"p\.\s?s\."}
    return re.search(spaced.get(marker, re.escape(marker.lower())), said.lower()) is not None


def _bullets(said: str, given: Mapping[str, Any]) -> bool:
    starred = re.findall(r"^\s*\*[^\*].*$", said, re.MULTILINE)
    dashed = re.findall(r"^\s*-.*$", said, re.MULTILINE)
    return len(starred) + len(dashed) == given["num_bullets"]


def _constrained(said: str, given: Mapping[str, Any]) -> bool:
    return any(f"My answer is {word}." in said for word in ("yes", "no", "maybe"))


def _highlights(said: str, given: Mapping[str, Any]) -> bool:
    """Between stars, one or two on a side, with something between them."""
    single = re.findall(r"\*[^\n\*]*\*", said)
    double = re.findall(r"\*\*[^\n\*]*\*\*", said)
    return sum(bool(one.strip("*").strip()) for one in single + double) >= given["num_highlights"]


def _sections(said: str, given: Mapping[str, Any]) -> bool:
    heading = rf"\s?{given['section_spliter'].strip()}\s?\d+\s?"
    return len(re.split(heading, said)) - 1 >= given["num_sections"]


def _json(said: str, given: Mapping[str, Any]) -> bool:
    bare = re.sub(r"^```(?:json)?|```$", "", said.strip(), flags=re.IGNORECASE)
    try:
        json.loads(bare)
    except ValueError:
        return False
    return True


def _title(said: str, given: Mapping[str, Any]) -> bool:
    found = re.findall(r"<<[^\n]+>>", said)
    return any(one.lstrip("<").rstrip(">").strip() for one in found)


def _two_responses(said: str, given: Mapping[str, Any]) -> bool:
    """Parted by `******`, and different."""
    parts = said.split("******")
    if not all(part.strip() for part in parts[1:-1]):
        return False
    full = [part.strip() for part in parts if part.strip()]
    return len(full) == 2 and full[0] != full[1]


def _repeats(said: str, given: Mapping[str, Any]) -> bool:
    return said.strip().lower().startswith(given["prompt_to_repeat"].strip().lower())


def _end(said: str, given: Mapping[str, Any]) -> bool:
    return said.strip().strip('"').lower().endswith(given["end_phrase"].strip().lower())


def _quotation(said: str, given: Mapping[str, Any]) -> bool:
    bare = said.strip()
    return len(bare) > 1 and bare.startswith('"') and bare.endswith('"')


def _capital_words(said: str, given: Mapping[str, Any]) -> bool:
    words = re.findall(r"[^\W_]+(?:['-][^\W_]+)*", said)
    found = sum(word.isupper() for word in words)
    return _stands(found, given["capital_relation"], given["capital_frequency"])


CHECKS: Mapping[str, Check] = {
    "keywords:existence": _existence,
    "keywords:frequency": _frequency,
    "keywords:forbidden_words": _forbidden,
    "keywords:letter_frequency": _letters,
    "length_constraints:number_paragraphs": _paragraphs,
    "length_constraints:number_words": _words,
    "length_constraints:nth_paragraph_first_word": _first_word,
    "detectable_content:number_placeholders": _placeholders,
    "detectable_content:postscript": _postscript,
    "detectable_format:number_bullet_lists": _bullets,
    "detectable_format:constrained_response": _constrained,
    "detectable_format:number_highlighted_sections": _highlights,
    "detectable_format:multiple_sections": _sections,
    "detectable_format:json_format": _json,
    "detectable_format:title": _title,
    "combination:two_responses": _two_responses,
    "combination:repeat_prompt": _repeats,
    "startend:end_checker": _end,
    "startend:quotation": _quotation,
    "change_case:capital_word_frequency": _capital_words,
    "change_case:english_capital": lambda said, given: said.isupper(),
    "change_case:english_lowercase": lambda said, given: said.islower(),
    "punctuation:no_comma": lambda said, given: "," not in said,
}
