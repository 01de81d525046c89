"""Scorers from the spec of a task: assertions, judges, and all others."""

import re
import shlex
from collections.abc import Callable, Collection, Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import cast

from pydantic import TypeAdapter, ValidationError

from kept.core.artifact import Candidate
from kept.core.case import Cases
from kept.core.parsing import compile_pattern, parse_python
from kept.core.ports import Scorer
from kept.evaluators.runners.command import ModelRunnerSpec
from kept.evaluators.runners.model import fields_of
from kept.evaluators.scorers.assertions.python import file_of, function_of
from kept.evaluators.scorers.assertions.scorer import AssertionsScorer, pattern_of
from kept.evaluators.scorers.assertions.spec import (
    GRADED,
    AssertionSpec,
    AssertionsScorerSpec,
    Fault,
    faults_of,
    leaves,
)
from kept.evaluators.scorers.assertions.spec import RESERVED as ASSERTED
from kept.evaluators.scorers.command import CommandScorer, Fields
from kept.evaluators.scorers.composite import CompositeScorer, Part
from kept.evaluators.scorers.function import Function, PythonScorer, problem_with
from kept.evaluators.scorers.judge import Criterion, Floor, JudgeScorer, JudgeScorerSpec, Sheet
from kept.evaluators.scorers.rules import (
    RESERVED,
    Check,
    Growth,
    HasSections,
    Keywords,
    Kind,
    Matches,
    Parses,
    Phrases,
    Rule,
    RuleSpec,
    RulesScorer,
    RulesScorerSpec,
    Target,
    Tokens,
)
from kept.evaluators.scorers.spec import (
    CommandScorerSpec,
    CompositeScorerSpec,
    PythonScorerSpec,
    ScorerSpec,
    leaves_of,
)
from kept.models.roles import connect_role, is_kept, is_priced
from kept.recipes.task.cases import check_field
from kept.recipes.task.command_lines import check_script
from kept.recipes.task.models import check_asked, check_price
from kept.recipes.task.prompts import read_prompt
from kept.recipes.task.spec import TaskSpec
from kept.sandbox.command import Command
from kept.sandbox.json_schema import check_schema
from kept.sandbox.workspace import Scratch
from kept.spec.shared_sections import ModelSpec, ModelsSpec, SandboxSpec
from kept.spec.source import Source, dotted
from kept.spec.validate import check_folder, said, section
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
        compile(parse_python(text), file or "<assertion>", "exec")
    except (SyntaxError, ValueError, RecursionError) as error:
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
            files = (file_of(str(leaf.value))[0] for leaf in leaves(one) if leaf.base == "python")
            for file in (name for name in files if name and name not in spec.files):
                message = f"`{file}` is not among `scorer.files`"
                yield case.id, Fault((number, "value"), message, "list it there")
        if not sum(one.weight for one in found):
            yield case.id, Fault((), "the weights add up to nothing")


def make_judge(
    spec: JudgeScorerSpec,
    folder: Path,
    judge: ModelSpec | None,
    rubric: str,
    rules: RulesScorer | None,
    seen: tuple[str, ...] = (),
) -> JudgeScorer:
    """The scorer that a task describes; a role stands for judges that it does not name.

    Unless it says otherwise, a judge sees of a case what the model saw that it judges.
    """
    texts = {key: (folder / name).read_text(encoding="utf-8") for key, name in spec.prompts}
    pairwise = spec.pairwise
    sheet = Sheet(
        tuple(Criterion(one.name, one.means, one.values, one.weight) for one in spec.criteria),
        seen if spec.input is None else spec.input,
        spec.reference,
        rubric=rubric.strip(),
        prompt=texts.get(("prompt",), ""),
    )
    if pairwise is not None:
        own = texts.get(("pairwise", "prompt"), "")
        sheet = replace(
            sheet, rival=pairwise.reference, rival_weight=pairwise.weight, rival_prompt=own
        )
    kind, _, path = spec.target.partition(":")
    target = Target(cast("Kind", kind), path or None)
    floor = Floor(rules, spec.cap or 0.0) if rules is not None else None
    named = spec.judges or ((judge,) if judge is not None else ())
    made = [connect_role("judge", one.config(folder)) for one in named]
    judges = tuple(model for model in made for _ in range(spec.draws))
    return JudgeScorer(judges, sheet, spec.timeout_seconds, target=target, floor=floor)


def check_judge(source: Source, loc: Loc, spec: JudgeScorerSpec, cases: Cases | None) -> None:
    """Report judges that are nobody, fields that cases have not, files and prices that lack."""
    if spec.judges is None and said(source, ("models", "judge")) is None:
        hint = "name them here, or one for all in `models.judge`"
        source.report((*loc, "judges"), "missing", hint)
    for key, name in spec.prompts:
        read_prompt(source, (*loc, *key), name, "judge_pair" if len(key) > 1 else "judge")
    for key, name in spec.fields if cases is not None else ():
        check_field(source, (*loc, *key), name, cases or Cases())
    if said(source, ("cases",)) is None and spec.fields:
        source.report((*loc, *spec.fields[0][0]), "there are no cases to have such a field")
    for number, one in enumerate(spec.judges or ()):
        place: Loc = (*loc, "judges", number)
        check_price(source, place, one.config(source.folder))
        check_asked(source, place, one.config(source.folder))
    models = section(source, ("models",), ModelsSpec)
    if spec.judges is None and models is not None and models.judge is not None:
        check_asked(source, ("models", "judge"), models.judge.config(source.folder))


_ADAPTER: TypeAdapter[ScorerSpec] = TypeAdapter(ScorerSpec)


@dataclass(frozen=True, slots=True)
class Scoring:
    """What the scorers of a task are made with."""

    folder: Path
    seed: Candidate
    metric: str
    """The primary one: what a bare number means."""
    scratch: Scratch
    hold: Callable[[Command], Command]
    """Puts walls round a command."""
    judge: ModelSpec | None = None
    """The model of that role."""
    rubric: str = ""
    """What somebody wrote for judges."""
    seen: tuple[str, ...] = ()
    """Fields of a case that the runner's model sees."""


def make_scorer(spec: ScorerSpec, kit: Scoring) -> Scorer:
    """The scorer that a task describes."""
    return _make(spec, kit, kit.metric)


def _make(spec: ScorerSpec, kit: Scoring, metric: str) -> Scorer:
    match spec:
        case CommandScorerSpec():
            command = Command(spec.command, kit.folder / spec.cwd, spec.timeout_seconds)
            fields = Fields(spec.parse.score_field, spec.parse.metrics_field, metric)
            return CommandScorer(kit.hold(command), kit.scratch, fields)
        case PythonScorerSpec():
            # as much of the environment as a command would see
            passed_on = kit.hold(Command("true", kit.folder)).passed_on
            return PythonScorer(_function(spec, kit.folder, passed_on), metric)
        case RulesScorerSpec():
            return _rules_scorer(spec, kit)
        case JudgeScorerSpec():
            rules = _rules_scorer(spec.floor, kit) if spec.rules else None
            return make_judge(spec, kit.folder, kit.judge, kit.rubric, rules, kit.seen)
        case AssertionsScorerSpec():
            passed_on = kit.hold(Command("true", kit.folder)).passed_on
            return make_asserting(spec, kit.folder, kit.judge, kit.seen, passed_on)
        case CompositeScorerSpec():
            parts = (
                Part(
                    part.name,
                    _make(part.scorer, kit, part.metric),
                    part.weight,
                    part.metric,
                    part.bounds,
                )
                for part in spec.parts
            )
            return CompositeScorer(tuple(parts))


def check_scorer(source: Source, texts: Collection[str], cases: Cases | None) -> None:
    """Report what is wrong with a scorer that is well formed: folders, functions, files, names.

    Of a scorer that is made of others, those that are well formed are looked at.
    """
    for loc, leaf in _right_ones(source, ("scorer",)):
        match leaf:
            case CommandScorerSpec() | CompositeScorerSpec():
                pass
            case JudgeScorerSpec():
                check_judge(source, loc, leaf, cases)
                if leaf.rules:
                    _check_targets(source, loc, leaf.floor, texts)
            case PythonScorerSpec():
                sandbox = section(source, ("sandbox",), SandboxSpec) or SandboxSpec()
                problem = problem_with(_function(leaf, source.folder, sandbox.env))
                if problem is not None:
                    source.report((*loc, "function"), problem)
            case RulesScorerSpec():
                _check_targets(source, loc, leaf, texts)
            case AssertionsScorerSpec():
                check_asserting(source, loc, leaf, cases)
        if loc == ("scorer",):
            metric = said(source, ("objective", "primary_metric"))
            _check_metric(source, leaf, metric if isinstance(metric, str) else "", cases)


def _right_ones(source: Source, loc: Loc) -> Iterator[tuple[Loc, ScorerSpec]]:
    """A scorer and all that it is made of, as far as they are right in themselves."""
    check_folder(source, (*loc, "cwd"))
    check_script(source, loc)
    with suppress(ValidationError):  # told already
        yield loc, _ADAPTER.validate_python(said(source, loc))
    parts = said(source, (*loc, "parts"))
    for number in range(len(cast("list[object]", parts)) if isinstance(parts, list) else 0):
        yield from _right_ones(source, (*loc, "parts", number, "scorer"))


def named_in(spec: ScorerSpec) -> list[str]:
    """The commands, functions and files that a scorer is made of, for whoever hides its files."""
    return [name for leaf in leaves_of(spec) for name in _names(leaf)]


def _names(leaf: ScorerSpec) -> Iterator[str]:
    match leaf:
        case CommandScorerSpec():
            yield leaf.command
        case PythonScorerSpec():
            yield leaf.function
        case JudgeScorerSpec():
            yield from (shlex.quote(name) for _, name in leaf.prompts)
        case AssertionsScorerSpec():
            yield from (shlex.quote(name) for name in leaf.files)
        case RulesScorerSpec() | CompositeScorerSpec():
            return


def scorer_seconds(spec: ScorerSpec) -> float:
    """The longest that scoring one rollout can take; parts are asked side by side."""
    return max((_seconds(leaf) for leaf in leaves_of(spec)), default=0.0)


def _seconds(leaf: ScorerSpec) -> float:
    match leaf:
        case CompositeScorerSpec():
            return 0.0
        case JudgeScorerSpec():
            # its rules come first, and its judges are asked side by side
            rules = leaf.floor.timeout_seconds if leaf.rules else 0.0
            return rules + leaf.timeout_seconds
        case _:
            return leaf.timeout_seconds


def _check_targets(source: Source, loc: Loc, spec: RulesScorerSpec, paths: Collection[str]) -> None:
    places: list[tuple[Loc, str | None]] = [((*loc, "target"), spec.target)]
    places += (((*loc, "rules", n, "target"), rule.target) for n, rule in enumerate(spec.rules))
    for place, target in places:
        kind, _, path = (target or "").partition(":")
        if kind == "candidate" and path and paths and path not in paths:
            known = ", ".join(sorted(paths)[:5])
            source.report(place, f"there is no artifact `{path}`", f"there are {known}")


def _check_metric(source: Source, spec: ScorerSpec, metric: str, cases: Cases | None) -> None:
    """A scorer of our own is known to emit what it emits."""
    emitted: list[str] = []
    if isinstance(spec, RulesScorerSpec):
        emitted = [*RESERVED, *spec.names]
    elif isinstance(spec, JudgeScorerSpec):
        emitted = spec.emitted
    elif isinstance(spec, AssertionsScorerSpec):
        named = (one.metric for _, one in asserted(cases or Cases(), spec.field))
        emitted = [*ASSERTED, *dict.fromkeys(name for name in named if name)]
    elif isinstance(spec, CompositeScorerSpec):
        emitted = ["score", *(f"{part.name}.{part.metric}" for part in spec.parts)]
        if any(metric.startswith(f"{part.name}.") for part in spec.parts):
            return  # which of its measures a part emits, only the part knows
    if emitted and metric and metric not in emitted:
        hint = f"it emits {', '.join(emitted)}"
        loc = ("objective", "primary_metric")
        source.report(loc, f"the scorer `{spec.type}` does not emit `{metric}`", hint)


def _function(spec: PythonScorerSpec, folder: Path, passed_on: tuple[str, ...]) -> Function:
    return Function(spec.function, folder, spec.timeout_seconds, passed_on)


def _rules_scorer(spec: RulesScorerSpec, kit: Scoring) -> RulesScorer:
    rules: list[Rule] = []
    for name, rule in zip(spec.names, spec.rules, strict=True):
        kind, _, path = (rule.target or spec.target).partition(":")
        target = Target(cast("Kind", kind), path or None)
        rules.append(Rule(name, _check(rule), rule.weight, target))
    return RulesScorer(tuple(rules), kit.seed, spec.timeout_seconds)


def _check(rule: RuleSpec) -> Check:
    match rule.kind:
        case "sections":
            return HasSections(rule.names)
        case "matches":
            return Matches(rule.pattern)
        case "lacks":
            return Matches(rule.pattern, wanted=False)
        case "tokens":
            return Tokens(rule.min, rule.max)
        case "phrases":
            return Phrases(rule.forbid)
        case "format":
            return Parses(rule.format)
        case "keywords":
            return Keywords(rule.words, rule.max_density)
        case "growth":
            return Growth(rule.max)
