"""Normalized promptfoo config and its tests: inline or in YAML, JSON, JSON lines and csv.

Each test keeps its line number.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from difflib import get_close_matches
from pathlib import Path
from typing import Any, NamedTuple, cast

from kept.core.parsing import parse_json
from kept.core.untyped import dict_in, is_dict, is_list
from kept.evaluators.scorers.assertions.python import FILE
from kept.evaluators.scorers.assertions.spec import KINDS, REFUSED
from kept.recipes.importers.cases import read_csv
from kept.recipes.importers.promptfoo.config import (
    CONFIG_REFUSED,
    ConfigSpec,
    Grader,
    ProviderSpec,
    TestsFile,
    TestSpec,
    as_list,
    mapping_of,
    prepare_test,
    refuse,
    resolve,
)
from kept.recipes.importers.promptfoo.prompts import found_files, plain, read_file, read_values
from kept.spec.source import Source, kind_of
from kept.spec.validate import section, validate
from kept.spec.yaml import Document, Loc, YamlFault

SUFFIXES = (".yaml", ".yml", ".json", ".jsonl", ".csv")
_TYPED = re.compile(r"(not-)?([a-z]+(?:-[a-z]+)*)(?:\((\d+(?:\.\d+)?)\))?(?::(.*))?", re.DOTALL)
_LISTED = ("contains-any", "contains-all", "icontains-any", "icontains-all")
_OLD = {"grade": "llm-rubric", "fn": "javascript", "eval": "javascript"}
"""Current name of each type that promptfoo has renamed."""


class Placed(NamedTuple):
    """A test, with its place in a file."""

    spec: TestSpec
    source: Source
    loc: Loc


class Tests(NamedTuple):
    """Contents of files of tests."""

    placed: list[Placed]
    graders: list[tuple[Source, Grader]]
    sources: list[Source]


def read_tests(source: Source, loc: Loc, name: object) -> Tests:
    """Read the tests of the files that a name means; problems are reported."""
    none = Tests([], [], [])
    if not isinstance(name, str) or not name:
        source.report(loc, f"{kind_of(name)}, where a test or file://… was expected")
        return none
    path = name.removeprefix(FILE)
    if not path.endswith(SUFFIXES):
        hint = f"there are {', '.join(SUFFIXES)}; write down what a program or a service gives"
        source.report(loc, f"`{name}` is no file of tests that is known here", hint)
        return none
    found = Tests([], [], [])
    for file in found_files(source, loc, path):
        text = read_file(source, loc, file)
        inner = _source(source, loc, file, text) if text is not None else None
        if inner is None:
            continue
        data = cast("dict[str, list[object]]", inner.data)
        for number, test in enumerate(data["tests"]):
            graders = prepare_test(inner, ("tests", number), test)
            found.graders.extend((inner, grader) for grader in graders)
        spec = validate(inner, TestsFile)
        found.sources.append(inner)
        if spec is not None:
            rows = enumerate(spec.tests)
            found.placed.extend(Placed(one, inner, ("tests", n)) for n, one in rows)
    return found


def _source(outer: Source, loc: Loc, file: Path, text: str) -> Source | None:
    """Return a file as a list of tests, with the line of each."""
    if file.suffix in (".csv", ".jsonl"):
        document = Document({"tests": []})
        made = Source(file, document)
        read = _csv_rows if file.suffix == ".csv" else _json_lines
        rows = list(read(made, text))
        cast("dict[str, object]", made.data)["tests"] = [test for _, test in rows]
        document.lines.update({("tests", n): line for n, (line, _) in enumerate(rows)})
    else:
        try:
            read_one = read_values(text)
        except YamlFault as fault:
            what = "JSON" if file.suffix == ".json" else "YAML"
            message = f"`{file.name}`, line {fault.line}, is not {what}: {fault.message}"
            outer.report(loc, message, fault.hint)
            return None
        outside = mapping_of(read_one.data) or {}
        nested = "tests" in outside
        data: object = outside.get("tests", read_one.data)
        if not is_list(data):
            outer.report(loc, f"`{file.name}` is no list of tests")
            return None
        # lines of a bare list get the prefix `tests`, as in a file with that key
        lines = {(at if nested else ("tests", *at)): n for at, n in read_one.lines.items()}
        made = Source(file, Document({"tests": data}, lines))
    if not cast("dict[str, list[object]]", made.data)["tests"] and not made.problems:
        outer.report(loc, f"`{file.name}` holds no tests")
    return made


def _json_lines(source: Source, text: str) -> Iterator[tuple[int, object]]:
    for number, line in enumerate(text.split("\n"), 1):
        if not line.strip():
            continue
        try:
            yield number, parse_json(line)
        except ValueError as error:
            why = getattr(error, "msg", None) or str(error)
            source.report_line(number, f"not JSON: {why}")


def _csv_rows(source: Source, text: str) -> Iterator[tuple[int, object]]:
    table = read_csv(text, source.report_line)
    known = ("__description", "__metric", "__threshold")
    for name in table.header:
        if name.startswith("__") and not name.startswith(("__expected", "__metadata:", *known)):
            hint = f"there are __expected, __expected1, …, __metadata:NAME, {', '.join(known)}"
            source.report_line(1, f"the column `{name}` is not known here", hint)
    for line, cells in table.rows:
        _check_cells(source, line, cells)
        yield line, _of_row(cells)


def _check_cells(source: Source, line: int, row: dict[str, str]) -> None:
    """Report a misspelt type, which would otherwise be taken as an expected text."""
    for name, cell in row.items():
        found = _TYPED.fullmatch(cell.strip()) if name.startswith("__expected") else None
        # without a colon it is a text; known types are checked later
        if found is None or found[4] is None or found[2] in {*KINDS, *REFUSED, *_OLD}:
            continue
        near = get_close_matches(found[2], KINDS, n=1, cutoff=0.8)
        if near:
            message = f"`{found[2]}` is no assertion that is known here"
            hint = f"did you mean `{near[0]}`? what the output equals may have `equals:` before it"
            source.report_line(line, message, hint)


def _of_row(row: dict[str, str]) -> dict[str, Any]:
    """Return the test of a csv row."""
    test: dict[str, Any] = {"vars": {}, "assert": []}
    for name, cell in row.items():
        if name.startswith("__expected"):
            test["assert"] += [assertion_of(cell)] if cell.strip() else []
        elif name == "__description" and cell:
            test["description"] = cell
        elif name == "__threshold" and cell.strip():
            test["threshold"] = _number(cell)
        elif name.startswith("__metadata:"):
            test.setdefault("metadata", {})[name.partition(":")[2]] = cell
        elif not name.startswith("__"):
            test["vars"][name] = cell
    metric = row.get("__metric", "").strip()
    for one in test["assert"] if metric else ():
        one["metric"] = metric
    return test


def assertion_of(cell: str) -> dict[str, Any]:
    """Parse a cell: `type: value`, `type(threshold): value`, or the text that the output equals."""
    text = cell.strip()
    if text.startswith(FILE) and ".py" in text:
        return {"type": "python", "value": text}
    found = _TYPED.fullmatch(text)
    kind = _OLD.get(found[2], found[2]) if found else ""
    if found is None or kind not in {*KINDS, *REFUSED}:
        return {"type": "equals", "value": cell}
    made: dict[str, Any] = {"type": f"{found[1] or ''}{kind}"}
    value = (found[4] or "").strip()
    if kind in _LISTED:
        made["value"] = [part.strip() for part in value.split(",") if part.strip()]
    elif kind in ("is-json", "contains-json"):
        if value:
            made["value"] = value
    elif kind == "word-count":
        made["value"] = _number(value)
    elif value:
        made["value"] = value
    if found[3]:
        made["threshold"] = float(found[3])
    return made


def _number(text: str) -> object:
    """Return a number, or the text itself, which validation reports."""
    try:
        return int(text) if text.strip().isdigit() else float(text)
    except ValueError:
        return text


@dataclass
class ReadConfig:
    """A config while it is read."""

    source: Source
    config: ConfigSpec = field(default_factory=ConfigSpec)
    """Validated config; empty if something in it is wrong."""
    providers: list[tuple[int, ProviderSpec]] = field(
        default_factory=list[tuple[int, ProviderSpec]]
    )
    """Valid providers, with their places."""
    default: TestSpec = field(default_factory=TestSpec)
    tests: list[Placed] = field(default_factory=list[Placed])
    graders: list[tuple[Source, Grader]] = field(default_factory=list[tuple[Source, Grader]])
    sources: list[Source] = field(default_factory=list[Source])

    def take(self, tests: Tests) -> None:
        """Add the tests of files."""
        self.tests += tests.placed
        self.graders += tests.graders
        self.sources += tests.sources

    def check(self) -> None:
        """Raise all problems of the config and its files."""
        told = list(self.source.problems)
        for one in self.sources:
            told += one.problems
        if told:
            first = Source(self.source.path, Document(None))
            first.problems = told
            first.check()


def read_config(source: Source) -> ReadConfig:
    """Normalize a config, and read the files of tests that it names."""
    resolve(source)
    source.data = plain(source.data)
    data = cast("dict[str, Any]", source.data)
    # `$schema` and `x-…` are for editors and anchors
    for key in [key for key in data if data[key] is None or key.startswith(("$", "x-"))]:
        del data[key]
    refuse(source, (), data, CONFIG_REFUSED)
    read = ReadConfig(source)
    # `targets` is another name of `providers`
    if "targets" in data and "providers" not in data:
        data["providers"] = data.pop("targets")
    data["prompts"] = as_list(data.get("prompts"))
    data["providers"] = [provider_of(one) for one in as_list(data.get("providers"))]
    _take_default(source, data)
    _take_tests(read, data)
    for grader in prepare_test(source, ("defaultTest",), data.get("defaultTest")):
        read.graders.append((source, grader))
    read.config = validate(source, ConfigSpec) or read.config
    _take_right(read, data)
    return read


def _take_tests(read: ReadConfig, data: dict[str, Any]) -> None:
    """Read the tests of files, and leave None in their places."""
    tests = as_list(data.get("tests"))
    if not tests:
        why = "cases are what tells a better prompt from a worse"
        read.source.report(("tests",), "missing", why)
    for number, test in enumerate(tests):
        if mapping_of(test) is not None:
            for grader in prepare_test(read.source, ("tests", number), test):
                read.graders.append((read.source, grader))
        else:
            loc = ("tests", number) if isinstance(data["tests"], list) else ("tests",)
            read.take(read_tests(read.source, loc, test))
    data["tests"] = [test if mapping_of(test) is not None else None for test in tests]


def _take_right(read: ReadConfig, data: dict[str, Any]) -> None:
    """Take the valid parts even if others are wrong, so that all problems are reported at once."""
    source = read.source
    read.default = section(source, ("defaultTest",), TestSpec) or read.default
    for number in range(len(data["providers"])):
        provider = section(source, ("providers", number), ProviderSpec)
        if provider is not None:
            read.providers.append((number, provider))
    inline: list[Placed] = []
    for number, given in enumerate(data["tests"]):
        spec = section(source, ("tests", number), TestSpec) if given is not None else None
        if spec is not None:
            inline.append(Placed(spec, source, ("tests", number)))
    read.tests = [*inline, *read.tests]


def _take_default(source: Source, data: dict[str, Any]) -> None:
    """Read the default test from its file if it names one."""
    name = data.get("defaultTest")
    if not isinstance(name, str):
        return
    files = found_files(source, ("defaultTest",), name.removeprefix(FILE))
    text = read_file(source, ("defaultTest",), files[0]) if files else None
    data["defaultTest"] = {}
    if text is not None:
        try:
            data["defaultTest"] = read_values(text).data
        except YamlFault as fault:
            source.report(("defaultTest",), f"line {fault.line} is not YAML: {fault.message}")


def provider_of(given: object) -> object:
    """Return a provider, given as a text or a mapping by its id, as a mapping with an `id`."""
    if isinstance(given, str):
        return {"id": given}
    if is_dict(given):
        # `{openai:chat:gpt-5: {…}}`: the only key is the id
        if "id" not in given and len(given) == 1:
            (id_, more), *_ = given.items()
            rest = dict_in(more)
            return {"id": id_, **rest}
        if given.get("config") is None:
            given.pop("config", None)
        return given
    return given
