"""What a task may say about judges: models that give values on named scales."""

import re
from collections.abc import Iterator, Mapping
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, Field, ValidationError, model_validator

from kept.evaluators.scorers.spec_rules import RuleSpec, RulesScorerSpec, Share, Target
from kept.sandbox.command import TIMEOUT
from kept.spec.base import Count, Finite, Model, OneOrMore, Seconds, SomeTexts, Text, some
from kept.spec.models import RoleSpec

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


class CriterionSpec(Model):
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


class PairwiseSpec(Model):
    """A comparison with an answer that the case has, in both orders."""

    reference: Text
    """The field of the case that holds it."""
    weight: Weight = 1.0
    prompt: Text | None = None
    """A file to stand for Kept's own prompt."""


class JudgeScorerSpec(Model):
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
    target: Target = "output"
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
