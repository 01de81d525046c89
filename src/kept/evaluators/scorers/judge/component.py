"""Judges as a component: their spec, its checks, and how the scorer is built."""

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
"""Of a scale: nobody tells more apart."""

RESERVED = ("score", "spread", "preferred", "contradicted", "judged_chars", "violation_count")
"""Measures that a judge scorer emits by itself."""

Weight = Annotated[Finite, Field(ge=0)]


def _name(text: str) -> str:
    if not re.fullmatch(r"[\w-]+", text):
        raise ValueError(f"`{text}` is not a name; write letters, digits, `-` and `_`")
    if text in RESERVED:
        raise ValueError(f"no criterion can be named `{text}`: that is a measure of its own")
    return text


class CriterionSpec(SpecModel):
    """One thing that a judge looks at: what it means, and the values it may take."""

    name: Annotated[Text, AfterValidator(_name)]
    means: Text
    scale: Annotated[tuple[int, int], Field(strict=False)] | None = None
    """The worst and the best, all whole numbers between them included; 1 to 5 by default."""
    levels: SomeTexts | None = None
    """Instead of numbers: words, the worst first."""
    weight: Weight = 1.0

    @classmethod
    def faults(cls, said: Mapping[str, Any]) -> Iterator[str]:
        """Numbers or words, and more than one of them."""
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
        """All that a judge may choose from, the worst first."""
        if self.levels is not None:
            return self.levels
        low, high = self.scale or (1, 5)
        return tuple(range(low, high + 1))


class PairwiseSpec(SpecModel):
    """A comparison with an answer that the case has, in both orders."""

    reference: Text
    """The field of the case that holds it."""
    weight: Weight = 1.0
    prompt: Text | None = None
    """A file to stand for Kept's own prompt."""


class JudgeScorerSpec(SpecModel):
    """Criteria, and the models that judge by them."""

    type: Literal["judge"]
    judges: Annotated[tuple[RoleSpec, ...], Field(strict=False), AfterValidator(some)] | None = None
    """By default the one of `models.judge`."""
    draws: Count = 1
    """How often each of them is asked."""
    criteria: Annotated[tuple[CriterionSpec, ...], Field(strict=False)] = ()
    pairwise: PairwiseSpec | None = None
    input: OneOrMore | None = None
    """Fields of a case that judges see; by default those that a model which is the runner sees."""
    reference: Text | None = None
    """The field of a case with an answer that is known to be good."""
    target: TargetName = "output"
    """The text that is judged."""
    rules: Annotated[tuple[RuleSpec, ...], Field(strict=False)] = ()
    """What no judge can override."""
    cap: Share | None = None
    """The most that an output is worth which breaks a rule; 0 by default."""
    prompt: Text | None = None
    """A file to stand for Kept's own prompt."""
    timeout_seconds: Seconds = TIMEOUT
    """For one answer of a judge."""

    @classmethod
    def faults(cls, said: Mapping[str, Any]) -> Iterator[str]:
        """Something to judge by, and no key without an effect."""
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
        """The rules as a scorer of their own; they look at what is judged unless they say."""
        return RulesScorerSpec(type="rules", target=self.target, rules=self.rules)

    @property
    def rule_names(self) -> list[str]:
        """The measure of each rule."""
        return self.floor.names if self.rules else []

    @property
    def emitted(self) -> list[str]:
        """The measures that every rollout has."""
        found = ["score", *(one.name for one in self.criteria)]
        found += ["preferred"] if self.pairwise else []
        return [*found, *(["violation_count"] if self.rules else []), *self.rule_names]

    @property
    def fields(self) -> list[tuple[tuple[str, ...], str]]:
        """The fields of a case that are needed, each with the key that names it."""
        found = [(("input",), name) for name in self.input or ()]
        found += [(("reference",), self.reference)] if self.reference else []
        found += [(("pairwise", "reference"), self.pairwise.reference)] if self.pairwise else []
        return found

    @property
    def prompts(self) -> list[tuple[tuple[str, ...], str]]:
        """The files that stand for prompts of Kept's own, each with the key that names it."""
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
        """The judges; a role stands for judges that the spec does not name.

        Unless the spec says otherwise, a judge sees of a case what the model saw that it judges.
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
        """Its models, prompts and fields; its rules come first, and judges are asked at once."""
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
        """That of the criteria, and that of the comparison."""
        if given.get("criteria"):
            yield "judge", given
        if isinstance(given.get("pairwise"), dict):
            yield "judge_pair", cast("dict[str, object]", given["pairwise"])
