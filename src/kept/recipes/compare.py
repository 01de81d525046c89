"""A comparison: texts that a person wrote, run side by side on all the cases of a file.

Takes runner, scorer, objective and artifacts from a task; what the task says about proposing, about
gates, guards and steps is about something else and is left out.
"""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from math import log2
from pathlib import Path
from typing import Any, cast

from kept.core.artifact import Artifact, Candidate, Rules
from kept.core.budget import rollouts_within
from kept.core.copying import copy_guard
from kept.core.edit import changed_paths
from kept.core.plan import Plan
from kept.core.schedule import MEASURE, Turns
from kept.errors import SetupError
from kept.gates.compare import Compare
from kept.gates.subsets import fewest
from kept.proposers.measured import SEED_ALONE
from kept.proposers.variants import Variant, Variants
from kept.recipes import Compiled
from kept.recipes.artifact import plan_of
from kept.recipes.identity import hash_of
from kept.recipes.reading import ReadTask, read_task
from kept.recipes.versions import Version, read_version
from kept.spec.cases import copy_warnings
from kept.spec.source import Source, read_source

RECIPE = "compare"

FEWEST = 8
"""Cases below which nothing is said of others."""

PASSES = 16

WIDEST = 32
"""Challengers that are run at once, at most."""

_OTHERS = ("proposers", "mutation", "gate", "race", "guards", "logging")
"""Keys of a task that a comparison has no use for."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """What is to be compared, as the command line says it."""

    task: Path
    words: tuple[str, ...]
    """A, then its challengers."""
    here: Path
    """Where the words were typed."""
    cases: str | None = None
    plan: bool = False
    """Whether only the seed is measured, to say what a comparison could show."""
    passes: int | None = None
    least: float | None = None
    commits: Mapping[str, str] = field(default_factory=dict[str, str])
    """What revisions were when the run began, by word."""

    def facts(self, versions: Sequence[Version]) -> dict[str, object]:
        """What a resume and a report need to know of it."""
        return {
            **{name: value for name, value in asdict(self).items() if name != "task"},
            "words": list(self.words),
            "here": str(self.here),
            "commits": {version.word: version.commit for version in versions if version.commit},
            "labels": [version.label for version in versions],
        }

    @classmethod
    def of(cls, facts: Mapping[str, object]) -> "Asked":
        """As a run was asked, from the facts that it began with."""
        told = cast("dict[str, Any]", facts[RECIPE])
        return cls(
            task=Path(str(facts["spec"])),
            words=tuple(told["words"]),
            here=Path(told["here"]),
            cases=told["cases"],
            plan=told["plan"],
            passes=told["passes"],
            least=told["least"],
            commits=told["commits"],
        )


def compile_comparison(asked: Asked, overrides: Sequence[str] = ()) -> Compiled:
    """The plan of a comparison; raises what is wrong with the task, the cases or the texts."""
    task = _read(asked, overrides)
    versions = [
        read_version(word, asked.here, task, asked.commits.get(word, "")) for word in asked.words
    ]
    _check_texts(versions)
    first, *others = versions
    made = plan_of(task, Candidate(first.texts), overrides)
    plan = replace(
        made.plan,
        recipe=RECIPE,
        rules=Rules({name: Artifact(name) for name in first.texts}),
        proposers=(SEED_ALONE,) if asked.plan else (Variants(_variants(first, others)),),
        schedule=Turns(MEASURE, 1) if asked.plan else Turns("variants", len(others)),
        budget=replace(made.plan.budget, max_iterations=None, max_failures=None),
        width=max(1, min(WIDEST, len(others))),
        guards=(),
        inputs={**made.plan.inputs, **{f"`{v.word}`": hash_of(v.texts) for v in others}},
    )
    gate = _gate(plan, asked, max(1, len(others)))
    facts = {**plan.facts, RECIPE: {**asked.facts(versions), "most": gate.most}}
    return Compiled(
        replace(plan, gate=gate, facts=facts),
        (*made.warnings, *_copied(plan, others), *copy_warnings(plan.cases)),
    )


def most_rollouts(plan: Plan) -> int:
    """What a comparison comes to at most: the seed and every challenger, all passes."""
    assert isinstance(plan.gate, Compare)
    passes = 2 if plan.proposers == (SEED_ALONE,) else plan.gate.most
    sides = 1 if plan.proposers == (SEED_ALONE,) else 1 + plan.gate.challengers
    return sides * passes * len(plan.cases.holdout)


def _read(asked: Asked, overrides: Sequence[str]) -> ReadTask:
    source = read_source(asked.task, overrides)
    _lay_over(source, asked, overrides)
    task = read_task(source, proposes=False)
    if task.files.cases.implicit:
        raise SetupError(
            "a comparison needs cases", hint="give --cases FILE, one JSON value a line"
        )
    return task


def _lay_over(source: Source, asked: Asked, overrides: Sequence[str]) -> None:
    """What a comparison means by the task: all cases decide, and nothing is proposed."""
    data = cast("dict[str, Any]", source.data)
    for key in _OTHERS:
        data.pop(key, None)
    data.setdefault("budget", {"max_iterations": len(asked.words)})
    given = data.get("cases")
    cases = cast("dict[str, object] | None", given if isinstance(given, dict) else None)
    if asked.cases is not None:
        cases = data["cases"] = cases or {}
        # from where it was typed, and not from the task's folder
        cases["file"] = str((asked.here / asked.cases).absolute())
        source.override(("cases", "file"), f"--cases {asked.cases}")
    said = any(one.partition("=")[0].strip() == "cases.split" for one in overrides)
    if cases is not None and not said:
        cases["split"] = "0:1:0"


def _check_texts(versions: Sequence[Version]) -> None:
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


def _gate(plan: Plan, asked: Asked, challengers: int) -> Compare:
    """The gate, with as many passes as the budget has room for."""
    cases = len(plan.cases.holdout)
    gate = Compare(challengers, asked.least, asked.passes or PASSES)
    limit = rollouts_within(plan.budget, plan.worst_usd)
    each = cases * (1 if asked.plan else 1 + challengers)
    needed = each * (2 if asked.plan else 1)
    if limit is not None and limit < needed:
        what = "two runs of the seed" if asked.plan else "one pass of each side"
        message = f"the budget has room for {limit} rollouts, and {what} takes {needed}"
        raise SetupError(message, hint=f"give --set budget.max_rollouts={needed} or more")
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


def _copied(plan: Plan, others: Sequence[Version]) -> tuple[str, ...]:
    """Challengers that hold text of the cases: they were written for these, not for new ones."""
    guard = copy_guard(plan.cases)
    found = ((v, guard.check(plan.seed, plan.seed, Candidate(v.texts))) for v in others)
    return tuple(
        f"`{version.label}`: {why}; what it scores there says nothing of new cases"
        for version, why in found
        if why is not None
    )
