"""Rule-based scorer: checks of one text each, without running anything.

Every rule emits its measure under its own name. `score` is the weighted share of rules that hold
and `violation_count` the number of others; each violation has a finding. Checks use no models, so
the same text always gets the same result.

Some checks can be slow on hostile text, and these run in separate processes. A regular expression
can backtrack without end, and a short document can unfold to exhaust memory. A process that
exceeds its time is ended, and the next check gets another.
"""

import math
import re
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import astuple, dataclass
from typing import Annotated, Any, Literal, NamedTuple, Protocol, cast

from pydantic import AfterValidator, Field, model_validator

from kept.core.artifact import Candidate, is_safe_path
from kept.core.case import Case
from kept.core.parsing import ParseLimit, check_size, compile_pattern, parse_json, parse_toml
from kept.core.ports import Scope
from kept.core.rollout import Failure, Job, Rollout
from kept.core.score import Finding, Score
from kept.core.text import all_text, count, count_tokens, keyword_density, sections, title_key
from kept.sandbox.process import Turns
from kept.sandbox.worker import ChildEnded
from kept.sandbox.worker_pool import MEMORY, BoundedCalls, CallRaised
from kept.settings import processors
from kept.spec.components import BuildContext, CheckContext, Component, Needs
from kept.spec.validate import Count, Finite, Seconds, SomeTexts, SpecModel, Text
from kept.spec.yaml import Loc

Format = Literal["json", "yaml", "toml"]

QUICK = 2e7
"""Number of regex steps that take at most about 0.1 s."""

SHORT = 2000
"""Length of a document that parses in at most about 0.1 s."""

FLAT = 50
"""Maximum number of brackets of such a document."""

_NESTED = re.compile(r"\)[*+{]")
_REFERENCE = re.compile(r"\\\d|\(\?P=")


class Measured(NamedTuple):
    """Result of a check."""

    value: float
    broken: str | None = None
    """Text that says what is wrong; None if nothing is."""


class Check(Protocol):
    """Check of a text."""

    def measure(self, text: str, seed: str) -> Measured:
        """Check a text; `seed` is the text that the run started from."""
        ...


@dataclass(frozen=True, slots=True)
class HasSections:
    """Required headings with text below them. Measures the share that is there."""

    names: tuple[str, ...]

    def measure(self, text: str, seed: str) -> Measured:
        """Look for all headings."""
        found = {section.key: section.empty for section in reversed(sections(text))}
        missing = [f"`{name}`" for name in self.names if title_key(name) not in found]
        empty = [f"`{name}`" for name in self.names if found.get(title_key(name))]
        told = [
            f"{what}: {', '.join(names)}"
            for what, names in (("missing", missing), ("empty", empty))
            if names
        ]
        share = 1 - (len(missing) + len(empty)) / len(self.names)
        return Measured(share, "; ".join(told) or None)


@dataclass(frozen=True, slots=True)
class Matches:
    """Required or forbidden pattern. Measures the number of matches."""

    pattern: str
    wanted: bool = True
    by_line: bool = True
    """True if `^` and `$` match at line ends as well."""

    def quick(self, text: str) -> bool:
        """True if no text of this length can make it slow; False if in doubt.

        Each repetition may try every place of the text; each choice doubles the ways to match.
        """
        marks = Counter(self.pattern.replace("(?", "("))
        loops = marks["*"] + marks["+"] + marks["{"] + len(_REFERENCE.findall(self.pattern))
        # in verbose patterns, space may stand between a group and its repetition
        verbose = re.compile(self.pattern).flags & re.VERBOSE
        nested = verbose or _NESTED.search(self.pattern) is not None
        # logarithm of len(text)^(loops + 1) * 2^choices, which bounds the number of steps
        choices = marks["?"] + marks["|"]
        steps = (loops + 1) * math.log(len(text) + 1) + choices * math.log(2)
        return not nested and steps <= math.log(QUICK)

    def measure(self, text: str, seed: str) -> Measured:
        """Count the matches."""
        times = sum(1 for _ in re.finditer(self.pattern, text, re.MULTILINE if self.by_line else 0))
        if bool(times) == self.wanted:
            return Measured(times)
        found = "does not match" if self.wanted else f"matches {count(times, 'time')}"
        return Measured(times, f"`{self.pattern}` {found}")


@dataclass(frozen=True, slots=True)
class Tokens:
    """Bounds for the length. Measures tokens: words and punctuation marks."""

    least: int | None = None
    most: int | None = None

    def measure(self, text: str, seed: str) -> Measured:
        """Count the tokens."""
        length = count_tokens(text)
        tokens = count(length, "token")
        if self.least is not None and length < self.least:
            return Measured(length, f"{tokens}, at least {self.least} wanted")
        if self.most is not None and length > self.most:
            return Measured(length, f"{tokens}, {self.most} allowed")
        return Measured(length)


@dataclass(frozen=True, slots=True)
class Phrases:
    """Forbidden phrases, case-insensitive. Measures the number found."""

    forbidden: tuple[str, ...]

    def measure(self, text: str, seed: str) -> Measured:
        """Look for each phrase."""
        folded = " ".join(text.casefold().split())
        found = [p for p in self.forbidden if " ".join(p.casefold().split()) in folded]
        named = ", ".join(f"`{phrase}`" for phrase in found)
        return Measured(len(found), f"forbidden: {named}" if found else None)


@dataclass(frozen=True, slots=True)
class Parses:
    """Required format of the text. Measures 1 or 0."""

    format: Format

    def quick(self, text: str) -> bool:
        """True if no text of this length can make it slow; False if in doubt."""
        if self.format == "json":
            return True
        # YAML anchors expand, and unclosed brackets take quadratic time
        nested = text.count("[") + text.count("{") > FLAT
        return len(text) <= SHORT and "&" not in text and not nested

    def measure(self, text: str, seed: str) -> Measured:
        """Parse the text."""
        try:
            _PARSERS[self.format](text)
        except ValueError as error:
            why = str(error).partition("\n")[0]
            return Measured(0, f"not {self.format.upper()}: {why}")
        return Measured(1)


@dataclass(frozen=True, slots=True)
class Keywords:
    """Limited keywords. Measures their share of all words."""

    words: tuple[str, ...]
    most: float

    def measure(self, text: str, seed: str) -> Measured:
        """Measure their density."""
        share = keyword_density(text, self.words)
        if share <= self.most:
            return Measured(share)
        return Measured(share, f"keywords take {share:.1%} of the words, {self.most:.1%} allowed")


@dataclass(frozen=True, slots=True)
class Growth:
    """Limit of the length relative to the seed. Measures the ratio of tokens."""

    most: float

    def measure(self, text: str, seed: str) -> Measured:
        """Compare the numbers of tokens."""
        times = count_tokens(text) / max(1, count_tokens(seed))
        if times <= self.most:
            return Measured(times)
        return Measured(times, f"{times:.2f} times as long as the seed, {self.most:g} allowed")


def measured(kind: str, of: list[Any], text: str) -> Measured:
    """Run a check on a text; `Bounded` calls it in another process."""
    return {"Matches": Matches, "Parses": Parses}[kind](*of).measure(text, "")


def _read_yaml(text: str) -> None:
    # slow to import, and rarely needed
    from ruamel.yaml import YAMLError

    from kept.spec.yaml import MAX_CHARS, ruamel

    check_size(text, MAX_CHARS)
    try:
        ruamel().load(text)
    except (MemoryError, ParseLimit):
        raise
    except YAMLError as error:
        raise ValueError(getattr(error, "problem", None) or str(error)) from error
    except Exception as error:  # its readers of numbers and the like may raise anything
        raise ValueError(f"{type(error).__name__}: {error}") from error


_PARSERS: Mapping[Format, Callable[[str], object]] = {
    "json": parse_json,
    "yaml": _read_yaml,
    "toml": parse_toml,
}


BOUNDED = (Matches, Parses)
"""Checks that may be slow; all others are linear in the text."""

LEAST = 0.01
"""Minimum time for a rule in seconds, even if earlier ones used up the time."""


class Patience:
    """Remaining seconds for the rules of one rollout; time spent waiting does not count."""

    def __init__(self, left: float) -> None:
        self.left = left


class Bounded:
    """Worker processes for slow checks, started on demand and reused."""

    def __init__(self) -> None:
        self._calls = BoundedCalls("kept.evaluators.scorers.rules:measured")
        # at most one per processor, however many rollouts are running
        self._turns = Turns(processors())

    async def measure(
        self, name: str, check: Matches | Parses, text: str, patience: Patience
    ) -> Measured | Failure:
        """Run a check on a text; a failure if it takes too much time or memory."""
        given = {"kind": type(check).__name__, "of": astuple(check), "text": text}
        try:
            async with self._turns.take():
                return Measured(*await self._ask(given, patience))
        except TimeoutError:
            message = f"the rule `{name}` took too long on this candidate"
            return Failure("timeout", "candidate", message)
        except MemoryError:
            message = f"the rule `{name}` took more than {MEMORY // 2**30} GiB on this candidate"
            return Failure("limit", "candidate", message)
        except ChildEnded as error:
            message = f"the process of the rule `{name}` {error}"
            return Failure("harness", "infrastructure", message, error.detail)
        except CallRaised as error:
            message = f"the rule `{name}` raised {error}"
            return Failure("harness", "infrastructure", message, error.detail)
        except OSError as error:
            message = f"cannot start a process for the rule `{name}`: {error.strerror}"
            return Failure("limit", "infrastructure", message)

    def close(self) -> None:
        """End the processes."""
        self._calls.close()

    async def _ask(self, given: Mapping[str, object], patience: Patience) -> list[Any]:
        await self._calls.prepare()
        seconds = max(patience.left, LEAST)
        began = time.monotonic()
        try:
            return await self._calls.ask(given, seconds)
        finally:
            patience.left -= time.monotonic() - began


TIMEOUT = 10.0
"""Time limit for all rules together in seconds; normal ones take milliseconds."""

Kind = Literal["candidate", "output", "file"]


class Target(NamedTuple):
    """Text that a rule checks."""

    kind: Kind = "candidate"
    """Candidate, output of the runner, or a file left by the runner."""
    path: str | None = None
    """Path of the file; None for all files of a candidate, joined."""


CANDIDATE = Target()


@dataclass(frozen=True, slots=True)
class Rule:
    """Rule with a name, a check and a weight."""

    name: str
    check: Check
    weight: float = 1.0
    target: Target = CANDIDATE


class RulesScorer:
    """Scorer that checks rules; growth is measured against `seed`."""

    def __init__(self, rules: tuple[Rule, ...], seed: Candidate, timeout: float = TIMEOUT) -> None:
        """A candidate is to blame if its rules take longer than `timeout` seconds together."""
        self._rules = rules
        self._seed = seed
        self._timeout = timeout
        self._total = sum(rule.weight for rule in rules)
        self._bounded = Bounded()

    async def score(
        self, job: Job, rollout: Rollout, candidate: Candidate, case: Case, scope: Scope
    ) -> Score | Failure:
        """Check every rule once."""
        metrics = dict(rollout.metrics)
        findings: list[Finding] = []
        held = 0.0
        patience = Patience(self._timeout)
        for rule in self._rules:
            measured = await self._measure(rule, rollout, candidate, patience)
            if isinstance(measured, Failure):
                return measured
            metrics[rule.name] = measured.value
            if measured.broken is None:
                held += rule.weight
            else:
                findings.append(Finding(f"{rule.name}: {measured.broken}", metric=rule.name))
        metrics["score"] = held / self._total
        metrics["violation_count"] = len(findings)
        return Score(metrics, tuple(findings))

    async def close(self) -> None:
        """End the processes that measure."""
        self._bounded.close()

    async def _measure(
        self, rule: Rule, rollout: Rollout, candidate: Candidate, patience: Patience
    ) -> Measured | Failure:
        text = text_of(rule.target, rollout, candidate)
        if text is None:
            return Measured(0, f"there is no text `{rule.target.path}`")
        if isinstance(rule.check, BOUNDED) and not rule.check.quick(text):
            return await self._bounded.measure(rule.name, rule.check, text, patience)
        seed = text_of(rule.target, Rollout(), self._seed) or ""
        return rule.check.measure(text, seed)


def text_of(target: Target, rollout: Rollout, candidate: Candidate) -> str | None:
    """Text of a target; None if there is none."""
    kind, path = target
    if kind == "output":
        return rollout.output
    if kind == "candidate":
        return all_text(candidate.texts) if path is None else candidate.texts.get(path)
    try:
        return rollout.files[path or ""].decode()
    except (KeyError, UnicodeDecodeError):
        return None


RESERVED = ("score", "violation_count")
"""Metrics that a rules scorer emits by itself."""


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
TargetName = Annotated[Text, AfterValidator(_target)]
Share = Annotated[Finite, Field(ge=0, le=1)]


class _RuleSpec(SpecModel):
    """Keys that all rules share."""

    name: Text | None = None
    """Name of the emitted metric; by default the kind of the rule."""
    weight: Annotated[Finite, Field(ge=0)] = 1.0
    target: TargetName | None = None
    """Text to check; by default that of the scorer."""


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
        """Check that there are bounds, in order."""
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


class RulesScorerSpec(SpecModel):
    """Rules, and the text they look at."""

    type: Literal["rules"]
    target: TargetName = "candidate"
    timeout_seconds: Seconds = 10.0
    """Time limit for all rules of one rollout together."""
    rules: Annotated[tuple[RuleSpec, ...], Field(strict=False)]

    @property
    def names(self) -> list[str]:
        """Metric of each rule: its name, or its kind with a number from the second on."""
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


def target_of(name: str) -> Target:
    """Target that a spec names: `output`, `candidate`, `candidate:PATH` or `file:PATH`."""
    kind, _, path = name.partition(":")
    return Target(cast("Kind", kind), path or None)


def rules_scorer(spec: RulesScorerSpec, seed: Candidate) -> RulesScorer:
    """Build the scorer of these rules; growth is measured against the seed."""
    rules = tuple(
        Rule(name, _check(rule), rule.weight, target_of(rule.target or spec.target))
        for name, rule in zip(spec.names, spec.rules, strict=True)
    )
    return RulesScorer(rules, seed, spec.timeout_seconds)


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


def check_targets(spec: RulesScorerSpec, context: CheckContext) -> None:
    """Report rules on artifacts that do not exist."""
    texts = context.texts
    places: list[tuple[Loc, str | None]] = [(("target",), spec.target)]
    places += ((("rules", n, "target"), rule.target) for n, rule in enumerate(spec.rules))
    for place, target in places:
        kind, _, path = (target or "").partition(":")
        if kind == "candidate" and path and texts and path not in texts:
            known = ", ".join(sorted(texts)[:5])
            context.report(place, f"there is no artifact `{path}`", f"there are {known}")


class RulesComponent(Component[RulesScorerSpec, RulesScorer]):
    """Rules, and the text they look at."""

    Spec = RulesScorerSpec

    def check(self, spec: RulesScorerSpec, context: CheckContext) -> None:
        """Report rules on artifacts that do not exist."""
        check_targets(spec, context)
        super().check(spec, context)

    def build(self, spec: RulesScorerSpec, context: BuildContext) -> RulesScorer:
        """Build the scorer of these rules."""
        return rules_scorer(spec, context.seed)

    def needs(self, spec: RulesScorerSpec) -> Needs:
        """Return the time limit, and a metric for each rule."""
        return Needs(worst_seconds=spec.timeout_seconds, metrics=(*RESERVED, *spec.names))
