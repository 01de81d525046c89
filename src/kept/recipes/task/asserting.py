"""From what cases assert to the scorer that grades it."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import cast

from pydantic import TypeAdapter, ValidationError

from kept.core.case import Cases
from kept.core.parsing import compile_pattern
from kept.evaluators.runners.model import fields_of
from kept.evaluators.runners.runners import ModelRunnerSpec
from kept.evaluators.scorers.assertions.assertions import (
    GRADED,
    AssertionSpec,
    AssertionsScorerSpec,
    Fault,
    faults_of,
    leaves,
)
from kept.evaluators.scorers.assertions.python import file_of, function_of
from kept.evaluators.scorers.assertions.scorer import AssertionsScorer, pattern_of
from kept.evaluators.scorers.spec import leaves_of
from kept.models.roles import connect_role, is_kept, is_priced
from kept.recipes.task.fields import check_field
from kept.recipes.task.task import TaskSpec
from kept.sandbox.json_schema import check_schema
from kept.spec.load import said, section
from kept.spec.models import ModelSpec, ModelsSpec
from kept.spec.source import Source, dotted
from kept.spec.yaml import Loc

_ASSERTIONS: TypeAdapter[tuple[AssertionSpec, ...]] = TypeAdapter(tuple[AssertionSpec, ...])

MOST_TOLD = 10
"""Cases with something wrong that are told one by one."""


def make_asserting(
    spec: AssertionsScorerSpec,
    folder: Path,
    judge: ModelSpec | None,
    seen: tuple[str, ...],
    passed_on: tuple[str, ...],
) -> AssertionsScorer:
    """The scorer that a task describes."""
    model = connect_role("judge", judge.config(folder)) if judge is not None else None
    seen = seen if spec.input is None else spec.input
    return AssertionsScorer(
        spec.field, model, spec.timeout_seconds, folder=folder, seen=seen, passed_on=passed_on
    )


def faults_in(spec: AssertionSpec, folder: Path) -> Iterator[Fault]:
    """All that is wrong with an assertion: its keys, and what only those can tell who use it."""
    yield from faults_of(spec)
    for number, inner in enumerate(spec.assert_ or ()):
        for loc, message, hint in _content_faults(inner, folder):
            yield Fault(("assert", number, *loc), message, hint)
    yield from _content_faults(spec, folder)


def _content_faults(spec: AssertionSpec, folder: Path) -> Iterator[Fault]:
    value = spec.value
    if spec.base == "regex" and isinstance(value, str):
        try:
            compile_pattern(pattern_of(value))
        except ValueError as error:
            yield Fault(("value",), f"`{value[:200]}` is not a regular expression: {error}")
    elif spec.base == "python" and isinstance(value, str):
        yield from _python_faults(value, folder)
    elif spec.base in ("is-json", "contains-json") and isinstance(value, dict):
        try:
            check_schema(cast("dict[str, object]", value))
        except (ValueError, TypeError) as error:
            yield Fault(("value",), f"is no JSON schema: {str(error).splitlines()[0]}")


def _python_faults(value: str, folder: Path) -> Iterator[Fault]:
    file, function = file_of(value)
    text = function_of(value) if not file else ""
    if file:
        try:
            text = (folder / file).read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError):
            yield Fault(("value",), f"cannot read `{file}`")
            return
        if not re.search(rf"^(?:async\s+)?def\s+{re.escape(function)}\b", text, re.MULTILINE):
            yield Fault(("value",), f"`{file}` has no function `{function}`")
    try:
        compile(text, file or "<assertion>", "exec")
    except (SyntaxError, ValueError) as error:
        why = getattr(error, "msg", None) or str(error)
        line = f" in line {error.lineno}" if file and isinstance(error, SyntaxError) else ""
        yield Fault(("value",), f"is not Python: {why}{line}")


def asserted(cases: Cases, field: str) -> Iterator[tuple[str, AssertionSpec]]:
    """Every assertion that is well formed, sets taken apart, with the case that makes it."""
    for case in cases.by_id.values():
        try:
            found = _ASSERTIONS.validate_python(fields_of(case).get(field), strict=False)
        except ValidationError:
            continue
        for one in found:
            yield from ((case.id, leaf) for leaf in leaves(one))


def check_asserting(
    source: Source, loc: Loc, spec: AssertionsScorerSpec, cases: Cases | None
) -> None:
    """Report assertions that are wrong, cases without any, and judges and prices that lack."""
    if said(source, ("cases",)) is None:
        source.report((*loc, "field"), "there are no cases to have such a field")
    if cases is None:
        return
    for name in spec.input or ():
        check_field(source, (*loc, "input"), name, cases)
    told = list(_wrong(source, spec, cases))
    for case, fault in told[:MOST_TOLD]:
        where = dotted((spec.field, *fault.loc))
        source.report((*loc, "field"), f"case `{case}`, {where}: {fault.message}", fault.hint)
    if len(told) > MOST_TOLD:
        source.report((*loc, "field"), f"{len(told) - MOST_TOLD} more are wrong")
    needed = {one.base for _, one in asserted(cases, spec.field)}
    graded = sorted(needed & set(GRADED))
    if graded and said(source, ("models", "judge")) is None:
        hint = "name the model that grades it"
        source.report(("models", "judge"), f"missing: `{graded[0]}` is graded by a model", hint)
    _check_target(source, needed)


def measured(task: TaskSpec, cases: Cases) -> bool:
    """Whether any case asserts what an answer takes or costs: else nobody measures it."""
    fields = [s.field for s in leaves_of(task.scorer) if isinstance(s, AssertionsScorerSpec)]
    found = (one.base for field in fields for _, one in asserted(cases, field))
    return any(base in ("latency", "cost") for base in found)


def _check_target(source: Source, needed: set[str]) -> None:
    """What an answer took and cost is known of models alone, and not of kept replies."""
    runner = section(source, ("runner",), ModelRunnerSpec)
    if not needed & {"latency", "cost"}:
        return
    if runner is None:
        source.report(("runner",), "`latency` and `cost` are known of a model alone")
        return
    models = section(source, ("models",), ModelsSpec) or ModelsSpec()
    target = runner.model or models.target
    if target is None:
        return  # told already
    config = target.config(source.folder)
    if "cost" in needed and not is_priced(config):
        message = f"what `{target.name}` costs is not known, and a case asserts it"
        source.report(("models", "target"), message, "give its `price`")
    if "cost" in needed and is_kept("target", config):
        message = "a case asserts what an answer costs, and a reply that is kept costs nothing"
        source.report(("models", "target"), message, "set `cache: false`")
    if "latency" in needed and target.cache is not False:
        message = "a case asserts how long an answer takes, and a reply that is kept takes no time"
        source.report(("models", "target"), message, "set `cache: false`")


def _wrong(source: Source, spec: AssertionsScorerSpec, cases: Cases) -> Iterator[tuple[str, Fault]]:
    for case in cases.by_id.values():
        given = fields_of(case).get(spec.field)
        if not isinstance(given, list) or not given:
            yield case.id, Fault((), "missing: a case asserts something")
            continue
        try:
            found = _ASSERTIONS.validate_python(given, strict=False)
        except ValidationError as error:
            for fault in error.errors(include_url=False):
                message = fault["msg"].removeprefix("Value error, ")
                yield case.id, Fault(tuple(fault["loc"]), message)
            continue
        for number, one in enumerate(found):
            for loc, message, hint in faults_in(one, source.folder):
                yield case.id, Fault((number, *loc), message, hint)
            for file in _unlisted(one, spec):
                message = f"`{file}` is not among `scorer.files`"
                yield case.id, Fault((number, "value"), message, "list it there")
        if not sum(one.weight for one in found):
            yield case.id, Fault((), "the weights add up to nothing")


def _unlisted(one: AssertionSpec, spec: AssertionsScorerSpec) -> Iterator[str]:
    for leaf in leaves(one):
        file = file_of(str(leaf.value))[0] if leaf.base == "python" else ""
        if file and file not in spec.files:
            yield file
