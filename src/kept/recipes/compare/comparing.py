"""What every comparison is made of, whoever asks for it: texts, variants, a gate."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from math import inf, log2
from typing import NamedTuple

from kept.core.artifact import Artifact, Candidate, Rules
from kept.core.budget import rollouts_within
from kept.core.case import NAMED, Cases, bare, own_text
from kept.core.copying import copy_guard
from kept.core.edit import changed_paths
from kept.core.plan import COMPARE, Plan
from kept.core.schedules.schedule import MEASURE, Turns
from kept.errors import SetupError
from kept.gates.compare import Compare
from kept.gates.subsets import fewest
from kept.proposers.measured import SEED_ALONE
from kept.proposers.variants import Variant, Variants

FEWEST = 8
"""Cases below which nothing is said of others."""

PASSES = 16

WIDEST = 32
"""Challengers that are run at once, at most."""


class Version(NamedTuple):
    """One of the texts that are compared."""

    word: str
    """As it was typed."""
    texts: Mapping[str, str]
    """By the path of the artifact."""
    commit: str = ""
    """The commit that a revision was when this was read; empty for files."""

    @property
    def label(self) -> str:
        """As it is called in answers."""
        known = not self.commit or self.commit.startswith(self.word.partition(":")[0])
        return self.word if known else f"{self.word} ({self.commit[:7]})"


class Wanted(NamedTuple):
    """How far a comparison is to go."""

    challengers: int
    passes: int | None = None
    least: float | None = None
    """The least gain worth knowing of."""
    alone: bool = False
    """Whether the seed is measured alone, to say what a comparison could show."""
    more: str = "--set budget.max_rollouts={}"
    """How whoever asks would give it more rollouts."""


def as_comparison(
    plan: Plan, versions: Sequence[Version], wanted: Wanted, facts: Mapping[str, object]
) -> Plan:
    """A plan of the first version that compares the others with it, and changes nothing."""
    first, *others = versions
    plan = replace(
        plan,
        recipe=COMPARE,
        rules=Rules({name: Artifact(name) for name in first.texts}),
        proposers=(SEED_ALONE,) if wanted.alone else (Variants(_variants(first, others)),),
        schedule=Turns(MEASURE, 1) if wanted.alone else Turns("variants", len(others)),
        budget=replace(plan.budget, max_iterations=None, max_failures=None),
        width=max(1, min(WIDEST, len(others))),
        guards=(),
        probes=tuple(probe for probe in plan.probes if not probe.proposes),
    )
    gate = _gate(plan, wanted)
    labels = [version.label for version in versions]
    told = {**facts, "plan": wanted.alone, "least": wanted.least, "passes": wanted.passes}
    told |= {"labels": labels, "most": gate.most}
    return replace(plan, gate=gate, facts={**plan.facts, COMPARE: told})


def check_texts(versions: Sequence[Version]) -> None:
    """Refuse texts that are the same, and sets of files that cannot take each other's place."""
    first = versions[0]
    for at, other in enumerate(versions[1:], 1):
        _check_files(first, other)
        for before in versions[:at]:
            if before.texts == other.texts:
                raise SetupError(
                    f"`{before.label}` and `{other.label}` are the same text: nothing to compare"
                )


def _check_files(first: Version, other: Version) -> None:
    only = [
        (v, sorted(v.texts.keys() - w.texts.keys())) for v, w in ((first, other), (other, first))
    ]
    told = [f"only `{v.label}` has {', '.join(names[:5])}" for v, names in only if names]
    if told:
        raise SetupError(
            f"`{first.label}` and `{other.label}` are not the same files: {'; '.join(told)}",
            hint="a comparison puts texts in the place of others: give both the same files",
        )


def _variants(first: Version, others: Sequence[Version]) -> tuple[Variant, ...]:
    seed = Candidate(first.texts)
    changed = ((other, changed_paths(seed, Candidate(other.texts))) for other in others)
    return tuple(
        Variant({path: other.texts[path] for path in paths}, other.label)
        for other, paths in changed
    )


def _gate(plan: Plan, wanted: Wanted) -> Compare:
    """The gate, with as many passes as the budget has room for."""
    if wanted.least is not None and not 0 < wanted.least < inf:
        message = f"the least gain worth knowing of is {wanted.least}, which is no gain"
        raise SetupError(message, hint="give a number above 0, or leave it out")
    cases, challengers = len(plan.cases.holdout), wanted.challengers
    gate = Compare(challengers, wanted.least, wanted.passes or PASSES)
    limit = rollouts_within(plan.budget, plan.worst_usd)
    each = cases * (1 if wanted.alone else 1 + challengers)
    needed = each * (2 if wanted.alone else 1)
    if limit is not None and limit < needed:
        what = "two runs of the seed" if wanted.alone else "one pass of each side"
        message = f"the budget has room for {limit} rollouts, and {what} takes {needed}"
        raise SetupError(message, hint=f"give {wanted.more.format(needed)} or more")
    if limit is not None and limit < each * gate.most:
        # a power of two, as it looks after each of those
        gate = replace(gate, most=2 ** int(log2(limit // each)))
    enough = max(FEWEST, fewest(gate.final(cases, gate.most)))
    if cases < enough:
        among = f" for {challengers} challengers" if challengers > 1 else ""
        raise SetupError(
            f"{cases} cases cannot show anything for others like them",
            hint=f"give {enough} or more{among}",
        )
    return gate


def doubts(plan: Plan, others: Sequence[Version]) -> tuple[str, ...]:
    """What makes the answers say less than they seem to."""
    return (*_copied(plan, others), *_doubled(plan.cases))


def _copied(plan: Plan, others: Sequence[Version]) -> tuple[str, ...]:
    """Challengers that hold text of the cases: they were written for these, not for new ones."""
    guard = copy_guard(plan.cases)
    found = ((v, guard.check(plan.seed, plan.seed, Candidate(v.texts))) for v in others)
    return tuple(
        f"`{version.label}`: {why}; what it scores there says nothing of new cases"
        for version, why in found
        if why is not None
    )


def _doubled(cases: Cases) -> tuple[str, ...]:
    """Deciding cases that are the same: each copy passes for a case of its own."""
    first: dict[str, str] = {}
    found: list[tuple[str, str]] = []
    for case in cases.holdout:
        before = first.setdefault(own_text(bare(case)), case.id)
        if before != case.id:
            found.append((before, case.id))
    if len(found) == 1:
        ((one, copy),) = found
        return (f"case `{one}` and case `{copy}` are the same, and count as two",)
    named = "; ".join(f"`{copy}` of `{one}`" for one, copy in found[:NAMED])
    more = f"; and {len(found) - NAMED} more" if len(found) > NAMED else ""
    told = f"{len(found)} cases are copies of others, and count as cases of their own"
    return (f"{told}: {named}{more}",) if found else ()
