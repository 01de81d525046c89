"""What a task may say about rules: each looks for one thing in one text."""

import re
from collections.abc import Iterator, Mapping
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, Field, model_validator

from kept.core.artifact import is_safe_path
from kept.core.parsing import compile_pattern
from kept.spec.base import Count, Finite, Model, Seconds, SomeTexts, Text

RESERVED = ("score", "violation_count")
"""Measures that a rules scorer emits by itself."""


def _pattern(text: str) -> str:
    try:
        compile_pattern(text, re.MULTILINE)
    except ValueError as error:
        raise ValueError(f"`{text[:200]}` is not a regular expression: {error}") from error
    return text


def _target(text: str) -> str:
    kind, colon, path = text.partition(":")
    named = kind in ("candidate", "file") and is_safe_path(path)
    if not (named if colon else kind in ("candidate", "output")):
        known = "`candidate`, `candidate:PATH`, `output` or `file:PATH`"
        raise ValueError(f"`{text}` is not a target; write {known}")
    return text


Pattern = Annotated[Text, AfterValidator(_pattern)]
Target = Annotated[Text, AfterValidator(_target)]
Share = Annotated[Finite, Field(ge=0, le=1)]


class _RuleSpec(Model):
    """What all rules have in common."""

    name: Text | None = None
    """Of the measure that it emits; by default its kind."""
    weight: Annotated[Finite, Field(ge=0)] = 1.0
    target: Target | None = None
    """The text it looks at; by default that of the scorer."""


class SectionsRuleSpec(_RuleSpec):
    """Headings that must be there, with something below them."""

    kind: Literal["sections"]
    names: SomeTexts


class MatchesRuleSpec(_RuleSpec):
    """A pattern that must be there."""

    kind: Literal["matches"]
    pattern: Pattern


class LacksRuleSpec(_RuleSpec):
    """A pattern that must not be there."""

    kind: Literal["lacks"]
    pattern: Pattern


class TokensRuleSpec(_RuleSpec):
    """Bounds for the length."""

    kind: Literal["tokens"]
    min: Count | None = None
    max: Count | None = None

    @classmethod
    def faults(cls, said: Mapping[str, Any]) -> Iterator[str]:
        """Bounds, and in order."""
        if not {"min", "max"} <= said.keys():
            return
        low, high = said["min"], said["max"]
        if low is None and high is None:
            yield "no bound; give `min`, `max` or both"
        elif low is not None and high is not None and low > high:
            yield "`min` is more than `max`"


class PhrasesRuleSpec(_RuleSpec):
    """Phrases that must not be there."""

    kind: Literal["phrases"]
    forbid: SomeTexts


class FormatRuleSpec(_RuleSpec):
    """A format that the text must be in."""

    kind: Literal["format"]
    format: Literal["json", "yaml", "toml"]


class KeywordsRuleSpec(_RuleSpec):
    """Words that must not crowd the text."""

    kind: Literal["keywords"]
    words: SomeTexts
    max_density: Share = 0.05


class GrowthRuleSpec(_RuleSpec):
    """A bound for the length against the seed's."""

    kind: Literal["growth"]
    max: Annotated[Finite, Field(gt=0)]


RuleSpec = Annotated[
    SectionsRuleSpec
    | MatchesRuleSpec
    | LacksRuleSpec
    | TokensRuleSpec
    | PhrasesRuleSpec
    | FormatRuleSpec
    | KeywordsRuleSpec
    | GrowthRuleSpec,
    Field(discriminator="kind"),
]


class RulesScorerSpec(Model):
    """Rules, and the text they look at."""

    type: Literal["rules"]
    target: Target = "candidate"
    timeout_seconds: Seconds = 10.0
    """For all rules of one rollout together."""
    rules: Annotated[tuple[RuleSpec, ...], Field(strict=False)]

    @property
    def names(self) -> list[str]:
        """The measure of each rule: its name, or its kind with a number from the second on."""
        kinds = [rule.kind for rule in self.rules]
        nth = [kinds[: at + 1].count(kind) for at, kind in enumerate(kinds)]
        plain = [f"{kind}_{n}" if n > 1 else kind for kind, n in zip(kinds, nth, strict=True)]
        return [rule.name or name for rule, name in zip(self.rules, plain, strict=True)]

    @model_validator(mode="after")
    def _can_be_told_apart(self) -> "RulesScorerSpec":
        if not self.rules:
            raise ValueError("there are no rules")
        names = self.names
        doubled = [name for name in dict.fromkeys(names) if names.count(name) > 1]
        told = [f"two rules are named `{name}`" for name in doubled]
        taken = [name for name in RESERVED if name in names]
        told += [f"no rule can be named `{name}`: that is a measure of its own" for name in taken]
        if not sum(rule.weight for rule in self.rules):
            told.append("the weights add up to nothing")
        grows = [rule.target or self.target for rule in self.rules if rule.kind == "growth"]
        if not all(target.startswith("candidate") for target in grows):
            told.append("growth is measured on the candidate; give that rule its target")
        if told:
            raise ValueError("; ".join(told))
        return self
