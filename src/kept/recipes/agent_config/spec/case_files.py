"""Test cases of an agent, from its agent.yaml or a separate file, each with a name."""

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any, cast

from pydantic import Field

from kept.core.case import SPLITS, Split
from kept.core.parsing import parse_json
from kept.core.untyped import is_dict
from kept.errors import Problem
from kept.recipes.agent_config.spec.cases import MAX_CASES, TestCaseSpec
from kept.recipes.agent_config.spec.common import check_there
from kept.recipes.agent_config.spec.config import Config, fill_in, lay_under, tell_once
from kept.spec.paths import near_file
from kept.spec.source import Source, kind_of
from kept.spec.validate import SpecModel, said, validate
from kept.spec.yaml import Document, Loc, YamlFault, read_yaml

KEY = "test_cases"
FILE = ("test_cases_file",)

OPTIMIZER: Loc = ("evaluations", "optimizer")
"""Location in an agent.yaml of the tuning settings, which may name case files."""


_ROW = re.compile(rf"^{KEY}\[(\d+)\]")
"""Prefix of problem paths that belong to one row."""

_STAND_IN = {"input": "?"}
"""Placeholder for an invalid row, so that the other rows keep their numbers."""


@dataclass(frozen=True, slots=True)
class BrokenCase:
    """An invalid row of a case file."""

    number: int
    """Index of the row, from 0."""
    name: str
    problems: tuple[Problem, ...]

    @property
    def why(self) -> str:
        """All problems of the row in one line."""
        return "; ".join(map(str, self.problems))


class CaseFileSpec(SpecModel):
    """A file of test cases."""

    test_cases: Annotated[tuple[TestCaseSpec, ...], Field(strict=False, max_length=MAX_CASES)]


def read_case_file(
    source: Source,
    name: str,
    config: Config,
    loc: Loc = FILE,
    *,
    call: str = "case",
    lenient: bool = False,
) -> tuple[tuple[TestCaseSpec, ...], tuple[BrokenCase, ...]]:
    """Read the cases of a file; problems of all rows are reported.

    `call` is the prefix of generated names. With `lenient`, if some rows are valid, the
    invalid ones are returned instead of reported.
    """
    path = source.folder / name
    document = _document(source, path, name, loc)
    if document is None:
        return (), ()
    file = Source(path, document)
    file.folder = source.folder  # paths in it are relative to the agent.yaml
    unset = fill_in(file)
    lay_under(file, config)
    cases = _read(file, call)
    tell_once(file, unset)
    broken: tuple[BrokenCase, ...] = ()
    if lenient and file.problems:
        cases, broken = _apart(file, call)
    if not cases and not file.problems:
        source.report(loc, f"`{name}` holds no cases")
    source.problems += file.problems
    return cases, broken


def read_split_files(
    source: Source, config: Config, *, lenient: bool = False
) -> tuple[dict[Split, tuple[TestCaseSpec, ...]], tuple[BrokenCase, ...]]:
    """Cases of the files that `optimizer` names, by split; problems are reported."""
    splits: dict[Split, tuple[TestCaseSpec, ...]] = {}
    broken: list[BrokenCase] = []
    first: dict[str, Split] = {}
    rows = 0
    for split in SPLITS:
        loc = (*OPTIMIZER, f"{split}_cases_file")
        name = said(source, loc)
        if not isinstance(name, str) or not name.strip() or "\0" in name:
            continue
        call = split_name(name, split)
        cases, bad = read_case_file(source, name, config, loc, call=call, lenient=lenient)
        for case in cases:
            if case.name in first:
                message = f"the name `{case.name}` stands in the {first[case.name]} cases too"
                source.report(loc, message, "give each case to one of them")
            # a name may be in one split only: no case may decide on itself
            first.setdefault(case.name or "", split)
        splits[split] = cases
        broken += (replace(one, number=rows + one.number) for one in bad)
        rows += len(cases) + len(bad)
    return splits, tuple(broken)


def split_name(file: str, split: Split) -> str:
    """Prefix of generated names; without the split, two files would both have a `case-1`."""
    stem = Path(file).stem
    return stem if split in stem else f"{stem}-{split}"


def _read(file: Source, call: str) -> tuple[TestCaseSpec, ...]:
    spec = validate(file, CaseFileSpec)
    return named(file, spec.test_cases, call) if spec else ()


def _apart(file: Source, call: str) -> tuple[tuple[TestCaseSpec, ...], tuple[BrokenCase, ...]]:
    """Valid and invalid rows; both empty if other problems than invalid rows exist."""
    rows = cast("list[object]", cast("dict[str, Any]", file.data).get(KEY))
    given: dict[int, object] = {}
    problems: list[Problem] = []
    cases: tuple[TestCaseSpec, ...] = ()
    while file.problems:
        # once a row is replaced, checks across rows may find more, such as duplicate names
        problems += file.problems
        found = {_row(problem) for problem in file.problems} - given.keys()
        if None in found or not found or len(given) + len(found) >= len(rows):
            file.problems[:] = problems
            return (), ()
        for number in cast("set[int]", found):
            given[number], rows[number] = rows[number], dict(_STAND_IN)
        file.problems.clear()
        cases = _read(file, call)
    sound = [case for number, case in enumerate(cases) if number not in given]
    taken = {case.name for case in sound}
    broken: list[BrokenCase] = []
    for number, row in sorted(given.items()):
        own = row.get("name") if is_dict(row) else None
        name = own if isinstance(own, str) and own.strip() and own not in taken else None
        why = tuple(problem for problem in problems if _row(problem) == number)
        broken.append(BrokenCase(number, name or cases[number].name or "", why))
        taken.add(broken[-1].name)
    return tuple(sound), tuple(broken)


def _row(problem: Problem) -> int | None:
    found = _ROW.match(problem.path)
    return int(found[1]) if found else None


def named(
    source: Source, cases: Sequence[TestCaseSpec], call: str = "case"
) -> tuple[TestCaseSpec, ...]:
    """Give each case a name; report duplicate names and missing files."""
    first: dict[str, int] = {}
    for number, case in enumerate(cases):
        _check_files(source, (KEY, number), case)
        if case.name is None:
            continue
        if case.name in first:
            place = source.where((KEY, first[case.name], "name"))
            message = f"the name `{case.name}` stands twice, first in {place}"
            source.report((KEY, number, "name"), message)
        first.setdefault(case.name, number)
    made: list[TestCaseSpec] = []
    for number, case in enumerate(cases, 1):
        if case.name:
            made.append(case)
            continue
        # generated names must not collide with given ones
        name = f"{call}-{number}"
        while name in first:
            name += "'"
        made.append(case.model_copy(update={"name": name}))
    return tuple(made)


def _check_files(source: Source, loc: Loc, case: TestCaseSpec) -> None:
    for number_of_turn, turn in enumerate(case.exchanges):
        below = (*loc, "turns", number_of_turn) if case.turns is not None else loc
        for number, file in enumerate(turn.files):
            if file.path is not None:
                check_there(source, (*below, "files", number, "path"), file.path)


def _document(source: Source, path: Path, name: str, loc: Loc) -> Document | None:
    """Read a file, with a plain list of cases moved below the key of an agent.yaml."""
    try:
        text = path.read_text(encoding="utf-8-sig")
        document = _of_json(text) if path.suffix == ".json" else read_yaml(text)
    except OSError as error:
        hint = None if path.exists() else near_file(path)
        source.report(loc, f"cannot read `{name}`: {error.strerror}", hint)
        return None
    except UnicodeDecodeError:
        source.report(loc, f"`{name}` is not UTF-8 text")
        return None
    except YamlFault as fault:
        kind = "JSON" if path.suffix == ".json" else "YAML"
        place = Source(path, Document(None))
        place.report_line(fault.line, f"not {kind}: {fault.message}", fault.hint)
        source.problems += place.problems
        return None
    data = cast("Any", document.data)
    if isinstance(data, dict):
        return document
    if data is not None and not isinstance(data, list):
        source.report(loc, f"`{name}` is {kind_of(data)}, not a list of cases")
        return None
    # a plain list: move values, lines and duplicates below `test_cases`
    return Document(
        {KEY: cast("object", data) or []},
        {(KEY, *at): line for at, line in document.lines.items()},
        [((KEY, *at), line) for at, line in document.doubles],
        {(KEY, *at) for at in document.templates},
    )


def _of_json(text: str) -> Document:
    try:
        data: Any = parse_json(text)
    except json.JSONDecodeError as error:
        raise YamlFault(error.lineno, error.msg) from error
    except ValueError as error:
        raise YamlFault(1, str(error)) from error
    try:
        # nearly all JSON is also YAML, whose reader knows the lines of values
        lines = read_yaml(text).lines
    except YamlFault:
        lines = {}
    return Document(cast("object", data), lines)
