"""The test cases of an agent: from its agent.yaml or from a file beside it, each with a name."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, cast

from pydantic import Field

from kept.spec.agent.cases import MAX_CASES, TestCaseSpec
from kept.spec.agent.config import Config, lay_under
from kept.spec.agent.texts import check_there
from kept.spec.agent.variables import fill_in, tell_once
from kept.spec.base import Model
from kept.spec.files import near_file
from kept.spec.load import validate
from kept.spec.source import Source, kind_of
from kept.spec.yaml import Document, Loc, YamlFault, read_yaml

KEY = "test_cases"
FILE = ("test_cases_file",)


class CaseFileSpec(Model):
    """A file of test cases."""

    test_cases: Annotated[tuple[TestCaseSpec, ...], Field(strict=False, max_length=MAX_CASES)]


def read_case_file(
    source: Source, name: str, config: Config, loc: Loc = FILE, *, call: str = "case"
) -> tuple[TestCaseSpec, ...]:
    """The cases of a file that a place names; what is wrong is reported, every row of it.

    `call` is what a case without a name is called, with its number.
    """
    path = source.folder / name
    document = _document(source, path, name, loc)
    if document is None:
        return ()
    file = Source(path, document)
    file.folder = source.folder  # paths in it begin where those of the agent.yaml do
    unset = fill_in(file)
    lay_under(file, config)
    spec = validate(file, CaseFileSpec)
    tell_once(file, unset)
    cases = named(file, spec.test_cases, call) if spec else ()
    if spec and not spec.test_cases:
        source.report(loc, f"`{name}` holds no cases")
    source.problems += file.problems
    return cases


def named(
    source: Source, cases: Sequence[TestCaseSpec], call: str = "case"
) -> tuple[TestCaseSpec, ...]:
    """The cases with a name each; names that stand twice, and files that are gone, are reported."""
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
        name = case.name or _free(f"{call}-{number}", first)
        made.append(case if case.name else case.model_copy(update={"name": name}))
    return tuple(made)


def _free(name: str, taken: Mapping[str, int]) -> str:
    while name in taken:
        name += "'"
    return name


def _check_files(source: Source, loc: Loc, case: TestCaseSpec) -> None:
    for turn, said in enumerate(case.exchanges):
        below = (*loc, "turns", turn) if case.turns is not None else loc
        for number, file in enumerate(said.files):
            if file.path is not None:
                check_there(source, (*below, "files", number, "path"), file.path)


def _document(source: Source, path: Path, name: str, loc: Loc) -> Document | None:
    """A file as if its list of cases stood below the key that an agent.yaml has for them."""
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
    return Document(
        {KEY: cast("object", data) or []},
        {(KEY, *at): line for at, line in document.lines.items()},
        [((KEY, *at), line) for at, line in document.doubles],
        {(KEY, *at) for at in document.templates},
    )


def _of_json(text: str) -> Document:
    try:
        data: Any = json.loads(text)
    except json.JSONDecodeError as error:
        raise YamlFault(error.lineno, error.msg) from error
    except RecursionError as error:
        raise YamlFault(1, "nested too deeply") from error
    try:
        # nearly all JSON is YAML too, and that says where things stand
        lines = read_yaml(text).lines
    except YamlFault:
        lines = {}
    return Document(cast("object", data), lines)
