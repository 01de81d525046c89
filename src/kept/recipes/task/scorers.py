"""From what a task says about scoring to a scorer."""

import shlex
from collections.abc import Callable, Collection, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import cast

from pydantic import TypeAdapter, ValidationError

from kept.core.artifact import Candidate
from kept.core.case import Cases
from kept.core.ports import Scorer
from kept.evaluators.scorers.assertions.assertions import RESERVED as ASSERTED
from kept.evaluators.scorers.assertions.assertions import AssertionsScorerSpec
from kept.evaluators.scorers.checks import (
    Check,
    Growth,
    HasSections,
    Keywords,
    Matches,
    Parses,
    Phrases,
    Tokens,
)
from kept.evaluators.scorers.command import CommandScorer, Fields
from kept.evaluators.scorers.composite import CompositeScorer, Part
from kept.evaluators.scorers.function import Function, PythonScorer, problem_with
from kept.evaluators.scorers.rules import Kind, Rule, RulesScorer, Target
from kept.evaluators.scorers.spec import (
    CommandScorerSpec,
    CompositeScorerSpec,
    PythonScorerSpec,
    ScorerSpec,
    leaves_of,
)
from kept.evaluators.scorers.spec_judging import JudgeScorerSpec
from kept.evaluators.scorers.spec_rules import RESERVED, RuleSpec, RulesScorerSpec
from kept.recipes.task.asserting import asserted, check_asserting, make_asserting
from kept.recipes.task.judging import check_judge, make_judge
from kept.recipes.task.scripts import check_script
from kept.sandbox.command import Command
from kept.sandbox.workspace import Scratch
from kept.spec.load import check_folder, said, section
from kept.spec.models import ModelSpec
from kept.spec.sandbox import SandboxSpec
from kept.spec.source import Source
from kept.spec.yaml import Loc

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
    return RulesScorer(tuple(_rules(spec)), kit.seed, spec.timeout_seconds)


def _rules(spec: RulesScorerSpec) -> Iterator[Rule]:
    for name, rule in zip(spec.names, spec.rules, strict=True):
        kind, _, path = (rule.target or spec.target).partition(":")
        target = Target(cast("Kind", kind), path or None)
        yield Rule(name, _check(rule), rule.weight, target)


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
