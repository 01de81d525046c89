"""Assertions as a component: checks of the assertions of cases, and construction."""

import re
import shlex
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import cast

from pydantic import TypeAdapter, ValidationError

from kept.core.case import Cases, fields_of
from kept.core.parsing import compile_pattern, parse_python
from kept.evaluators.runners.registry import model_asked, runner_needs
from kept.evaluators.scorers.assertions.python import file_of, function_of
from kept.evaluators.scorers.assertions.scorer import AssertionsScorer, pattern_of
from kept.evaluators.scorers.assertions.spec import (
    GRADED,
    RESERVED,
    AssertionSpec,
    AssertionsScorerSpec,
    Fault,
    faults_of,
    leaves,
)
from kept.models.roles import connect_role, is_kept, is_priced
from kept.sandbox.command import Command
from kept.sandbox.json_schema import check_schema
from kept.spec.checks import check_field
from kept.spec.components import BuildContext, CheckContext, Component, ModelNeed, Needs
from kept.spec.shared_sections import ModelsSpec
from kept.spec.source import Source, dotted
from kept.spec.validate import said, section

_ASSERTIONS: TypeAdapter[tuple[AssertionSpec, ...]] = TypeAdapter(tuple[AssertionSpec, ...])

MOST_TOLD = 10
"""Maximum number of faulty cases that are reported one by one."""


class AssertionsComponent(Component[AssertionsScorerSpec, AssertionsScorer]):
    """Scorer by assertions that each case has about a good output."""

    Spec = AssertionsScorerSpec

    def check(self, spec: AssertionsScorerSpec, context: CheckContext) -> None:
        """Report wrong assertions, cases without any, and missing judges and prices."""
        cases, source = context.cases, context.source
        if not context.has_cases:
            context.report("field", "there are no cases to have such a field")
        if cases is not None:
            for name in spec.input or ():
                check_field(source, context.at("input"), name, cases)
            told = list(_wrong(spec, context, cases))
            for case, fault in told[:MOST_TOLD]:
                where = dotted((spec.field, *fault.loc))
                context.report("field", f"case `{case}`, {where}: {fault.message}", fault.hint)
            if len(told) > MOST_TOLD:
                context.report("field", f"{len(told) - MOST_TOLD} more are wrong")
            needed = {one.base for _, one in asserted(cases, spec.field)}
            graded = sorted(needed & set(GRADED))
            if graded and said(source, ("models", "judge")) is None:
                message = f"missing: `{graded[0]}` is graded by a model"
                source.report(("models", "judge"), message, "name the model that grades it")
            _check_target(source, needed)
        named = (one.metric for _, one in asserted(cases or Cases(), spec.field))
        emitted = (*RESERVED, *dict.fromkeys(name for name in named if name))
        context.check_emitted(spec.type, emitted)

    def build(self, spec: AssertionsScorerSpec, context: BuildContext) -> AssertionsScorer:
        """Build the scorer, with the judge of the role if there is one."""
        judge, folder = context.models.judge, context.folder
        return AssertionsScorer(
            spec.field,
            connect_role("judge", judge.config(folder)) if judge is not None else None,
            spec.timeout_seconds,
            folder=folder,
            seen=context.shown if spec.input is None else spec.input,
            passed_on=context.sandbox.scorer(Command("true", folder)).passed_on,
        )

    def needs(self, spec: AssertionsScorerSpec) -> Needs:
        """Return the judge of the role, files of Python assertions, and the time."""
        return Needs(
            models=(ModelNeed("judge"),),
            commands=tuple(shlex.quote(name) for name in spec.files),
            case_fields=(spec.field, *(spec.input or ())),
            assertions=(spec.field,),
            worst_seconds=spec.timeout_seconds,
        )


def assert_usage(cases: Cases, fields: Iterable[str]) -> bool:
    """True if a case asserts latency or cost: only then are they measured."""
    found = (one.base for field in fields for _, one in asserted(cases, field))
    return any(base in ("latency", "cost") for base in found)


def faults_in(spec: AssertionSpec, folder: Path) -> Iterator[Fault]:
    """All faults of an assertion: of its keys, and of its patterns, code and schemas."""
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
        compile(parse_python(text), file or "<assertion>", "exec")
    except (SyntaxError, ValueError, RecursionError) as error:
        why = getattr(error, "msg", None) or str(error)
        line = f" in line {error.lineno}" if file and isinstance(error, SyntaxError) else ""
        yield Fault(("value",), f"is not Python: {why}{line}")


def asserted(cases: Cases, field: str) -> Iterator[tuple[str, AssertionSpec]]:
    """Every valid assertion with the id of its case; sets are flattened."""
    for case in cases.by_id.values():
        try:
            found = _ASSERTIONS.validate_python(fields_of(case).get(field), strict=False)
        except ValidationError:
            continue
        for one in found:
            yield from ((case.id, leaf) for leaf in leaves(one))


def _check_target(source: Source, needed: set[str]) -> None:
    """Report `latency` and `cost` assertions without a model, a price or fresh replies."""
    if not needed & {"latency", "cost"}:
        return
    asked = model_asked(runner_needs(source))
    if asked is None:
        source.report(("runner",), "`latency` and `cost` are known of a model alone")
        return
    models = section(source, ("models",), ModelsSpec) or ModelsSpec()
    config = asked.config(models, source.folder)
    if config is None:
        return  # reported already
    if "cost" in needed and not is_priced(config):
        message = f"what `{config.name}` costs is not known, and a case asserts it"
        source.report(("models", "target"), message, "give its `price`")
    if "cost" in needed and is_kept("target", config):
        message = "a case asserts what an answer costs, and a reply that is kept costs nothing"
        source.report(("models", "target"), message, "set `cache: false`")
    if "latency" in needed and config.cache is not False:
        message = "a case asserts how long an answer takes, and a reply that is kept takes no time"
        source.report(("models", "target"), message, "set `cache: false`")


def _wrong(
    spec: AssertionsScorerSpec, context: CheckContext, cases: Cases
) -> Iterator[tuple[str, Fault]]:
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
            for loc, message, hint in faults_in(one, context.folder):
                yield case.id, Fault((number, *loc), message, hint)
            files = (file_of(str(leaf.value))[0] for leaf in leaves(one) if leaf.base == "python")
            for file in (name for name in files if name and name not in spec.files):
                message = f"`{file}` is not among `scorer.files`"
                yield case.id, Fault((number, "value"), message, "list it there")
        if not sum(one.weight for one in found):
            yield case.id, Fault((), "the weights add up to nothing")
