"""Judges as a component: their spec, its checks, and the construction of the scorer."""

import re
import shlex
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Annotated, Any, Literal, cast

from pydantic import AfterValidator, Field, ValidationError, model_validator

from kept.core.case import Cases
from kept.evaluators.scorers.judge.scorer import Floor, JudgeScorer
from kept.evaluators.scorers.judge.sheet import Criterion, Sheet
from kept.evaluators.scorers.rules import (
    RuleSpec,
    RulesScorerSpec,
    Share,
    TargetName,
    check_targets,
    rules_scorer,
    target_of,
)
from kept.models.prompts import Name
from kept.models.roles import connect_role
from kept.sandbox.command import TIMEOUT
from kept.spec.checks import check_asked, check_field, check_price, read_prompt
from kept.spec.components import BuildContext, CheckContext, Component, ModelNeed, Needs
from kept.spec.shared_sections import ModelsSpec, RoleSpec
from kept.spec.validate import (
    Count,
    Finite,
    OneOrMore,
    Seconds,
    SomeTexts,
    SpecModel,
    Text,
    said,
    section,
    some,
)
from kept.spec.yaml import Loc

MOST_LEVELS = 101
"""Maximum number of levels of a scale: a judge cannot distinguish more."""

RESERVED = ("score", "spread", "preferred", "contradicted", "judged_chars", "violation_count")
"""Metrics that a judge scorer emits by itself."""

Weight = Annotated[Finite, Field(ge=0)]


def _name(text: str) -> str:
    if not re.fullmatch(r"[\w-]+", text):
        raise ValueError(f"`{text}` is not a name; write letters, digits, `-` and `_`")
    if text in RESERVED:
        raise ValueError(f"no criterion can be named `{text}`: that is a measure of its own")
    return text


class CriterionSpec(SpecModel):
    """Criterion of a judge: its meaning and its possible values."""

    name: Annotated[Text, AfterValidator(_name)]
    means: Text
    scale: Annotated[tuple[int, int], Field(strict=False)] | None = None
    """Worst and best value of a whole-number scale; 1 to 5 by default."""
    levels: SomeTexts | None = None
    """Words in place of numbers, the worst first."""
    weight: Weight = 1.0

    @classmethod
    def faults(cls, said: Mapping[str, Any]) -> Iterator[str]:
        """Check that there are either numbers or words, and more than one."""
        scale, levels = said.get("scale"), said.get("levels")
        if scale is not None and levels is not None:
            yield "a criterion has either a `scale` or `levels`"
        if scale is not None and scale[0] >= scale[1]:
            yield "`scale` is reversed: write the worst value, then the best"
        elif scale is not None and scale[1] - scale[0] >= MOST_LEVELS:
            yield f"`scale` has more than {MOST_LEVELS} values"
        if levels is not None and len(set(levels)) < max(2, len(levels)):
            yield "`levels` are two words or more, each another"

    @property
    def values(self) -> tuple[str | int, ...]:
        """Values that a judge may choose from, the worst first."""
        if self.levels is not None:
            return self.levels
        low, high = self.scale or (1, 5)
        return tuple(range(low, high + 1))


class PairwiseSpec(SpecModel):
    """Pairwise comparison with an answer of the case, in both orders."""

    reference: Text
    """Case field with the reference answer."""
    weight: Weight = 1.0
    prompt: Text | None = None
    """File with a prompt in place of Kept's own."""


class JudgeScorerSpec(SpecModel):
    """Criteria, and the models that judge by them."""

    type: Literal["judge"]
    judges: Annotated[tuple[RoleSpec, ...], Field(strict=False), AfterValidator(some)] | None = None
    """Models that judge; by default the one of `models.judge`."""
    draws: Count = 1
    """Number of replies of each judge."""
    criteria: Annotated[tuple[CriterionSpec, ...], Field(strict=False)] = ()
    pairwise: PairwiseSpec | None = None
    input: OneOrMore | None = None
    """Case fields that judges see; by default those that the runner's model sees."""
    reference: Text | None = None
    """Case field with an answer that is known to be good."""
    target: TargetName = "output"
    """Text that is judged."""
    rules: Annotated[tuple[RuleSpec, ...], Field(strict=False)] = ()
    """Rules that no judge can override."""
    cap: Share | None = None
    """Maximum score of an output that breaks a rule; 0 by default."""
    prompt: Text | None = None
    """File with a prompt in place of Kept's own."""
    timeout_seconds: Seconds = TIMEOUT
    """Time limit for one answer of a judge."""

    @classmethod
    def faults(cls, said: Mapping[str, Any]) -> Iterator[str]:
        """Check that there is something to judge by, and that every key has an effect."""
        if not {"criteria", "pairwise", "rules", "cap", "prompt", "reference"} <= said.keys():
            return
        criteria, pairwise = said["criteria"], said["pairwise"]
        if not criteria and pairwise is None:
            yield "there is nothing to judge by; give `criteria`, `pairwise` or both"
        if said["cap"] is not None and not said["rules"]:
            yield "`cap` is what a broken rule leaves, and there are no `rules`"
        if not criteria and (said["prompt"] is not None or said["reference"] is not None):
            yield "`prompt` and `reference` go with `criteria`; `pairwise` has its own"

    @model_validator(mode="after")
    def _can_be_weighed_and_told_apart(self) -> "JudgeScorerSpec":
        names = [one.name for one in self.criteria]
        doubled = [name for name in dict.fromkeys(names) if names.count(name) > 1]
        told = [f"two criteria are named `{name}`" for name in doubled]
        if not sum(one.weight for one in (*self.criteria, *filter(None, (self.pairwise,)))):
            told.append("the weights add up to nothing")
        try:
            taken = [name for name in self.rule_names if name in {*RESERVED, *names}]
        except ValidationError as error:
            told += [fault["msg"].removeprefix("Value error, ") for fault in error.errors()]
            taken = []
        told += [f"a rule cannot be named `{name}`: that is a judge's measure" for name in taken]
        if told:
            raise ValueError("; ".join(told))
        return self

    @property
    def floor(self) -> RulesScorerSpec:
        """Rules as a rules scorer; by default they check the judged text."""
        return RulesScorerSpec(type="rules", target=self.target, rules=self.rules)

    @property
    def rule_names(self) -> list[str]:
        """Metric names of the rules."""
        return self.floor.names if self.rules else []

    @property
    def emitted(self) -> list[str]:
        """Metric names that every rollout has."""
        found = ["score", *(one.name for one in self.criteria)]
        found += ["preferred"] if self.pairwise else []
        return [*found, *(["violation_count"] if self.rules else []), *self.rule_names]

    @property
    def fields(self) -> list[tuple[tuple[str, ...], str]]:
        """Case fields that are needed, each with the spec key that names it."""
        found = [(("input",), name) for name in self.input or ()]
        found += [(("reference",), self.reference)] if self.reference else []
        found += [(("pairwise", "reference"), self.pairwise.reference)] if self.pairwise else []
        return found

    @property
    def prompts(self) -> list[tuple[tuple[str, ...], str]]:
        """Prompt files in place of Kept's own, each with the spec key that names it."""
        found = [(("prompt",), self.prompt)] if self.prompt else []
        pair = self.pairwise.prompt if self.pairwise else None
        return [*found, *([(("pairwise", "prompt"), pair)] if pair else [])]


class JudgeComponent(Component[JudgeScorerSpec, JudgeScorer]):
    """Criteria, and the models that judge by them."""

    Spec = JudgeScorerSpec

    def check(self, spec: JudgeScorerSpec, context: CheckContext) -> None:
        """Report judges and fields that do not exist, and files and prices that are missing."""
        source, loc = context.source, context.loc
        if spec.judges is None and said(source, ("models", "judge")) is None:
            context.report("judges", "missing", "name them here, or one for all in `models.judge`")
        for key, name in spec.prompts:
            read_prompt(source, (*loc, *key), name, "judge_pair" if len(key) > 1 else "judge")
        for key, name in spec.fields if context.cases is not None else ():
            check_field(source, (*loc, *key), name, context.cases or Cases())
        if not context.has_cases and spec.fields:
            context.report(spec.fields[0][0], "there are no cases to have such a field")
        for number, one in enumerate(spec.judges or ()):
            place: Loc = (*loc, "judges", number)
            check_price(source, place, one.config(source.folder))
            check_asked(source, place, one.config(source.folder))
        models = section(source, ("models",), ModelsSpec)
        if spec.judges is None and models is not None and models.judge is not None:
            check_asked(source, ("models", "judge"), models.judge.config(source.folder))
        if spec.rules:
            check_targets(spec.floor, context)
        super().check(spec, context)

    def build(self, spec: JudgeScorerSpec, context: BuildContext) -> JudgeScorer:
        """Build the scorer; the role is used if the spec names no judges.

        Unless the spec says otherwise, a judge sees the same case fields as the judged model.
        """
        folder, pairwise, judge = context.folder, spec.pairwise, context.models.judge
        texts = {key: (folder / name).read_text(encoding="utf-8") for key, name in spec.prompts}
        sheet = Sheet(
            tuple(Criterion(one.name, one.means, one.values, one.weight) for one in spec.criteria),
            context.shown if spec.input is None else spec.input,
            spec.reference,
            rubric=context.rubric.strip(),
            prompt=texts.get(("prompt",), ""),
        )
        if pairwise is not None:
            own = texts.get(("pairwise", "prompt"), "")
            sheet = replace(
                sheet, rival=pairwise.reference, rival_weight=pairwise.weight, rival_prompt=own
            )
        rules = rules_scorer(spec.floor, context.seed) if spec.rules else None
        floor = Floor(rules, spec.cap or 0.0) if rules is not None else None
        named = spec.judges or ((judge,) if judge is not None else ())
        made = [connect_role("judge", one.config(folder)) for one in named]
        judges = tuple(model for model in made for _ in range(spec.draws))
        target = target_of(spec.target)
        return JudgeScorer(judges, sheet, spec.timeout_seconds, target=target, floor=floor)

    def needs(self, spec: JudgeScorerSpec) -> Needs:
        """Return models, prompts, fields and time: rules run first, then all judges at once."""
        rules = spec.floor.timeout_seconds if spec.rules else 0.0
        named = spec.judges or (None,)
        return Needs(
            models=tuple(ModelNeed("judge", one) for one in named),
            commands=tuple(shlex.quote(name) for _, name in spec.prompts),
            prompts=tuple(name for _, name in spec.prompts),
            case_fields=tuple(name for _, name in spec.fields),
            worst_seconds=rules + spec.timeout_seconds,
            metrics=tuple(spec.emitted),
        )

    def prompt_places(self, given: dict[str, object]) -> Iterator[tuple[Name, dict[str, object]]]:
        """Yield the prompts of the criteria and of the comparison, with their spec sections."""
        if given.get("criteria"):
            yield "judge", given
        if isinstance(given.get("pairwise"), dict):
            yield "judge_pair", cast("dict[str, object]", given["pairwise"])
