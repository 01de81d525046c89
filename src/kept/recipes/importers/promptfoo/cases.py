"""Cases from promptfoo tests: variables are expanded and filled into the assertions."""

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from difflib import get_close_matches
from itertools import product
from math import prod
from typing import Any, NamedTuple, cast

from kept.errors import Problem, SpecError
from kept.evaluators.scorers.assertions.component import faults_in
from kept.evaluators.scorers.assertions.python import FILE, file_of
from kept.evaluators.scorers.assertions.spec import AssertionSpec
from kept.evaluators.templates.render import TemplateFault, is_template, names_of, render
from kept.recipes.importers.promptfoo.config import TestSpec
from kept.recipes.importers.promptfoo.prompts import (
    found_files,
    is_below,
    read_file,
    read_values,
    refuse_env,
    refuse_outside,
)
from kept.recipes.importers.promptfoo.read import Placed
from kept.spec.source import Source, kind_of
from kept.spec.yaml import Loc, YamlFault

MOST_CASES = 100_000
_ODD = re.compile(r"[^a-z0-9]+")


class Lack(NamedTuple):
    """Variable that an assertion asks for and that its test does not have."""

    source: Source
    loc: Loc
    name: str


class Made(NamedTuple):
    """A case before it is written."""

    description: str
    vars: dict[str, object]
    asserts: list[dict[str, Any]]
    metadata: Mapping[str, Any]
    where: str
    lacks: list[Lack]
    """Missing variables; another test may have them."""


def made_of(placed: Placed, default: Placed, root: Source) -> Iterator[Made]:
    """Yield the cases of one test, merged with the default test."""
    own, common = placed.spec, default.spec
    values = {**_vars(default, root), **_vars(placed, root)}
    without = own.options.disableDefaultAsserts
    rows = [(default, n, one) for n, one in enumerate(() if without else common.assert_)]
    rows += [(placed, n, one) for n, one in enumerate(own.assert_)]
    # values of the test override those of the default test
    threshold = own.threshold if own.threshold is not None else common.threshold
    metadata = {**common.metadata, **own.metadata}
    plain = own.options.disableVarExpansion or common.options.disableVarExpansion
    lists = {
        name: cast("list[object]", value)
        for name, value in values.items()
        if isinstance(value, list) and value and not plain
    }
    if (many := prod(map(len, lists.values()))) > MOST_CASES:
        message = f"the lists make {many:,} cases, {MOST_CASES:,} are taken"
        placed.source.report((*placed.loc, "vars"), message, "write down the ones that matter")
        return
    # every combination of the variables that are lists; a single case without lists
    for chosen in product(*lists.values()):
        given = _nested(placed, {**values, **dict(zip(lists, chosen, strict=True))})
        lacks: list[Lack] = []
        asserts = [
            _Filling(where, given, root, lacks).definite((*where.loc, "assert", n), one)
            for where, n, one in rows
        ]
        if threshold is not None and asserts:
            asserts = [{"type": "assert-set", "threshold": threshold, "assert": asserts}]
        at = placed.source.where(placed.loc)
        yield Made(own.description or "", given, asserts, metadata, at, lacks)


def check_assertions(placed: Placed, root: Source) -> None:
    """Report problems of the assertions of a test, before variables are filled in."""
    for number, one in enumerate(placed.spec.assert_):
        bare = _bare(placed, (*placed.loc, "assert", number), one, root)
        for loc, message, hint in faults_in(bare, root.folder):
            placed.source.report((*placed.loc, "assert", number, *loc), message, hint)
    own = placed.spec
    if own.assert_ and not sum(one.weight for one in own.assert_):
        placed.source.report((*placed.loc, "assert"), "the weights add up to nothing")


def _bare(placed: Placed, loc: Loc, one: AssertionSpec, root: Source) -> AssertionSpec:
    """Return an assertion for checks, with a valid sample for a value that is a template."""
    inner = one.assert_
    if inner is not None:
        inner = tuple(
            _bare(placed, (*loc, "assert", n), part, root) for n, part in enumerate(inner)
        )
    value = _loaded(placed, (*loc, "value"), one, root)
    if isinstance(value, str) and is_template(value) and one.base != "python":
        value = {"contains-any": ["x"], "word-count": 1}.get(one.base, "x")
        if one.base in ("is-json", "contains-json"):
            value = {}
    return one.model_copy(update={"value": value, "assert_": inner})


def _loaded(placed: Placed, loc: Loc, one: AssertionSpec, root: Source) -> object:
    """Return the value of an assertion, read from its file if it names one."""
    value = one.value
    if one.base in ("is-json", "contains-json") and isinstance(value, str):
        if value.startswith(FILE):
            return _file_value(placed.source, loc, value, root)
        try:
            return read_values(value).data if not is_template(value) else value
        except YamlFault:
            return value
    if isinstance(value, str) and value.startswith(FILE) and one.base != "python":
        return _file_value(placed.source, loc, value, root)
    if one.base == "python" and isinstance(value, str) and value.startswith(FILE):
        named = FILE + value.removeprefix(FILE).removeprefix("./")
        if is_below(root, root.folder / file_of(named)[0]):
            return named
        refuse_outside(placed.source, loc, value)
        return "True"  # the file is reported above, and its content is not checked
    return value


def _file_value(source: Source, loc: Loc, name: str, root: Source) -> object:
    """Read a file: values of JSON or YAML, or its text."""
    path = name.removeprefix(FILE)
    if path.endswith((".js", ".ts", ".py", ".mjs", ".cjs")):
        source.report(loc, f"`{name}` is a program, which is not run here", "write the value down")
        return None
    # a file is relative to the config, but its problems belong where it is named
    before = len(root.problems)
    files = found_files(root, loc, path)
    text = read_file(root, loc, files[0]) if files else None
    told = root.problems[before:]
    del root.problems[before:]
    for problem in told:
        source.report(loc, problem.message, problem.hint)
    if text is None or not path.endswith((".json", ".yaml", ".yml")):
        return text.strip() if text is not None else None
    try:
        return read_values(text).data
    except YamlFault as fault:
        source.report(loc, f"`{path}`, line {fault.line}, cannot be read: {fault.message}")
        return None


def _vars(placed: Placed, root: Source) -> dict[str, object]:
    given, loc = placed.spec.vars, (*placed.loc, "vars")
    if isinstance(given, str):
        given = _file_value(placed.source, loc, given, root)
    if given is None:
        return {}
    if not isinstance(given, dict):
        placed.source.report(loc, f"{kind_of(given)}, where a mapping was expected")
        return {}
    found = dict(cast("dict[str, object]", given))
    for name, value in found.items():
        if name == "id":
            message = "a variable cannot be named `id`, which is what a case is known by"
            placed.source.report((*loc, name), message, "give it another name, in prompts too")
        if isinstance(value, str) and value.startswith(FILE):
            found[name] = _file_value(placed.source, (*loc, name), value, root)
    return found


def _nested(placed: Placed, values: dict[str, object]) -> dict[str, object]:
    """Fill in variables that refer to other variables."""
    found = dict(values)
    for name, value in values.items():
        if isinstance(value, str) and is_template(value):
            loc = (*placed.loc, "vars", name)
            try:
                found[name] = render(value, values)
                if "env" in names_of(value) and "env" not in values:
                    refuse_env(placed.source, loc, "it")
            except TemplateFault as fault:
                placed.source.report(loc, f"is no template: {fault}")
    return found


class _Filling(NamedTuple):
    """Fills variables into the assertions of a test."""

    where: Placed
    given: Mapping[str, object]
    root: Source
    lacks: list[Lack]

    def definite(self, loc: Loc, one: AssertionSpec) -> dict[str, Any]:
        """Return an assertion with its variables filled in, as a case has it."""
        value = _loaded(self.where, (*loc, "value"), one, self.root)
        made = one.model_dump(by_alias=True, exclude_defaults=True)
        made["value"] = self._filled((*loc, "value"), value, one.base == "python")
        if made["value"] is None:
            del made["value"]
        if isinstance(one.metric, str):
            made["metric"] = self._filled((*loc, "metric"), one.metric)
        if one.assert_ is not None:
            inner = enumerate(one.assert_)
            made["assert"] = [self.definite((*loc, "assert", n), part) for n, part in inner]
        return made

    def _filled(self, loc: Loc, value: object, code: bool = False) -> object:
        if isinstance(value, str) and is_template(value):
            return self._text(loc, value, code)
        if isinstance(value, list):
            return [self._filled(loc, item, code) for item in cast("list[object]", value)]
        if isinstance(value, dict):
            inner = cast("dict[str, object]", value).items()
            return {key: self._filled(loc, item, code) for key, item in inner}
        return value

    def _text(self, loc: Loc, text: str, code: bool) -> str:
        try:
            names, made = names_of(text), render(text, self.given)
        except TemplateFault as fault:
            if not code:  # code may have braces of its own
                self.where.source.report(loc, f"is no template: {fault}")
            return text
        lack = [name for name in names if name not in self.given]
        if "env" in lack:
            refuse_env(self.where.source, loc, "it")
        elif lack and not made.strip():
            self.where.source.report(loc, *nowhere(lack[0], self.given))
        else:
            self.lacks.extend(Lack(self.where.source, loc, name) for name in lack)
        return made


def nowhere(name: str, known: Iterable[str]) -> tuple[str, str | None]:
    """Return the message for a missing variable, and a hint at a similar name."""
    near = get_close_matches(name, list(known), n=1, cutoff=0.7)
    hint = f"did you mean `{near[0]}`?" if near else None
    return f"asks for `{{{{{name}}}}}`, which is no variable of the test", hint


def as_lines(cases: list[Made], names: list[str], field: str) -> str:
    """Return the cases as JSON lines; a missing variable is null."""
    # numbers of equal width, so that ids sort in order
    wide = len(str(len(cases)))
    lines: list[str] = []
    for number, made in enumerate(cases, 1):
        slug = _ODD.sub("-", made.description.lower()).strip("-")[:40].strip("-")
        id_ = f"{number:0{wide}}-{slug}" if slug else f"{number:0{wide}}"
        row: dict[str, object] = {"id": id_, **{name: made.vars.get(name) for name in names}}
        if made.metadata and "metadata" not in names:
            row["metadata"] = dict(made.metadata)
        row[field] = made.asserts
        try:
            lines.append(json.dumps(row, ensure_ascii=False, allow_nan=False) + "\n")
        except (TypeError, ValueError, RecursionError) as error:
            raise SpecError([Problem(made.where, "", f"cannot be JSON: {error}")]) from error
    return "".join(lines)


def common_test(spec: TestSpec, source: Source) -> Placed:
    """Return the default test, with its place in the config."""
    return Placed(spec, source, ("defaultTest",))
