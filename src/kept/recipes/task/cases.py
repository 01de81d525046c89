"""Reader of case files (JSON lines or a JSON list), and check of named fields.

Every case must have the fields that a spec names. Proposers see no others, because these may hold
the answer.
"""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, cast

from kept.core.case import (
    Case,
    Cases,
    bare,
    case_text,
    find_overlaps,
    overlap_words,
    split_cases,
    stratum,
)
from kept.core.parsing import parse_json
from kept.core.text import count
from kept.errors import Problem
from kept.recipes.task.spec import CasesSpec
from kept.spec.paths import near_file
from kept.spec.source import Source, shown
from kept.spec.validate import said, section

Refuse = Callable[[Case], str | None]
"""Function that says what is wrong with a case; None if nothing is."""


def read_cases(source: Source, refuse: Refuse | None = None) -> Cases | None:
    """Return the cases by split; None, with reports, if they are not available."""
    spec = section(source, ("cases",), CasesSpec)
    decides = spec is not None and spec.ratio[1] > 0
    if spec is not None and not decides:
        source.report(("cases", "split"), f"`{spec.split}` leaves no holdout case to decide by")
    # read the file even if its split is wrong, so that all problems are reported at once
    file = said(source, ("cases", "file"))
    readable = isinstance(file, str) and file != "" and "\0" not in file
    cases = _read(source, str(file), refuse) if readable else None
    if cases is None or spec is None or not decides:
        return None
    if spec.stratify is not None and not any(stratum(case, spec.stratify) for case in cases):
        message = f"no case has a field `{spec.stratify}`"
        source.report(("cases", "stratify"), message, "name a field that the cases have")
        return None
    if spec.expected is not None:
        lack: list[str] = []
        for case in cases:
            data: Any = case.data
            if not isinstance(data, dict) or spec.expected not in data:
                lack.append(case.id)
        if lack:
            cases_without = f"{count(len(lack), 'case')} without a field `{spec.expected}`"
            message = f"{cases_without}, `{lack[0]}` first"
            source.report(("cases", "expected"), message, "name the field with the right answer")
            return None
    split = split_cases(cases, spec.ratio, spec.seed, spec.stratify)
    if not split.holdout:
        message = (
            f"`{spec.split}` of {count(len(cases), 'case')} leaves no holdout case to decide by"
        )
        source.report(("cases", "split"), message, "add cases, or give holdout a larger share")
        return None
    return split


def _read(source: Source, name: str, refuse: Refuse | None) -> list[Case] | None:
    """Return the cases of a file; None, with reports, if any of them is wrong."""
    path = source.folder / name
    try:
        text = path.read_text(encoding="utf-8-sig")
    except OSError as error:
        hint = None if path.exists() else near_file(path)
        source.report(("cases", "file"), f"cannot read `{name}`: {error.strerror}", hint)
        return None
    except UnicodeDecodeError:
        source.report(("cases", "file"), f"`{name}` is not UTF-8 text")
        return None
    found = len(source.problems)
    values = _list(source, path, text) if path.suffix == ".json" else _lines(source, path, text)
    cases = list(_cases(source, path, values, refuse))
    if len(source.problems) > found:
        return None
    if not cases:
        source.report(("cases", "file"), f"`{name}` holds no cases")
    return cases or None


def overlap_warnings(cases: Cases, name: str = "id") -> tuple[str, ...]:
    """Warn of cases that are (nearly) the same in different splits: their gain is not new.

    `name` is the field that tells even copies apart.
    """
    parts = (cases.train, cases.holdout, cases.test)
    without_names = Cases(*(tuple(bare(case, name) for case in part) for part in parts))
    found = find_overlaps(without_names)
    return (overlap_words(found),) if found else ()


def _lines(source: Source, path: Path, text: str) -> Iterator[tuple[int, object]]:
    """Yield the line number and the value of each line that is not empty."""
    for number, line in enumerate(text.split("\n"), 1):
        if line.strip():
            try:
                yield number, parse_json(line)
            except ValueError as error:
                _report(source, path, number, f"not JSON: {_words(error)}")


def _list(source: Source, path: Path, text: str) -> Iterator[tuple[int, object]]:
    """Yield the place in the list and the value of each item."""
    try:
        data: Any = parse_json(text)
    except ValueError as error:
        _report(source, path, getattr(error, "lineno", 1), f"not JSON: {_words(error)}")
        return
    if not isinstance(data, list):
        _report(source, path, 1, "not a list of cases")
        return
    yield from enumerate(cast("list[object]", data), 1)


def _cases(
    source: Source,
    path: Path,
    values: Iterator[tuple[int, object]],
    refuse: Refuse | None,
) -> Iterator[Case]:
    places: dict[str, int] = {}
    for number, (place, value) in enumerate(values):
        id_ = _id(value, number)
        if id_ is None:
            _report(source, path, place, "`id` is neither a text nor a whole number")
            continue
        case = Case(id_, value)
        # the id and the text must be writable as UTF-8
        try:
            f"{id_}\0{case_text(case)}".encode()
        except UnicodeEncodeError:
            _report(source, path, place, "holds half of a surrogate pair, which is no character")
            continue
        if refuse is not None and (wrong := refuse(case)) is not None:
            _report(source, path, place, wrong)
            continue
        if id_ in places:
            _report(source, path, place, f"the id `{id_}` stands twice (also {places[id_]})")
            continue
        places[id_] = place
        yield case


def _id(value: object, count: int) -> str | None:
    """Return the id of a case, or one made from its place; None if its own is not valid."""
    if not isinstance(value, dict) or "id" not in value:
        return f"{count:04}"
    given = cast("dict[str, object]", value)["id"]
    if isinstance(given, bool) or not isinstance(given, str | int) or given == "":
        return None
    return str(given)


def _report(source: Source, path: Path, place: int, message: str) -> None:
    source.problems.append(Problem(f"{shown(path)}:{place}", "", message))


def _words(error: Exception) -> str:
    return getattr(error, "msg", None) or str(error)
