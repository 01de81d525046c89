"""A comparison: texts that a person wrote, run side by side on all the cases of a file.

Takes runner, scorer, objective and artifacts from a task; what the task says about proposing, about
gates, guards and steps is about something else and is left out.
"""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, cast

from kept.core.artifact import Candidate
from kept.core.plan import COMPARE, Plan
from kept.errors import SetupError
from kept.gates.compare import Compare
from kept.proposers.measured import SEED_ALONE
from kept.recipes.compare.comparing import Version, Wanted, as_comparison, check_texts, doubts
from kept.recipes.compare.versions import read_version
from kept.recipes.recipes import Compiled
from kept.recipes.task.compile import plan_of
from kept.recipes.task.hashing import hash_of
from kept.recipes.task.reading import ReadTask, read_task
from kept.spec.source import Source, read_source

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
        }

    @classmethod
    def of(cls, facts: Mapping[str, object]) -> "Asked":
        """As a run was asked, from the facts that it began with."""
        told = cast("dict[str, Any]", facts[COMPARE])
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
    check_texts(versions)
    first, *others = versions
    made = plan_of(task, Candidate(first.texts), overrides)
    wanted = Wanted(max(1, len(others)), asked.passes, asked.least, asked.plan)
    plan = as_comparison(made.plan, versions, wanted, asked.facts(versions))
    texts = {f"`{version.word}`": hash_of(version.texts) for version in others}
    plan = replace(plan, inputs={**plan.inputs, **texts})
    return Compiled(plan, (*made.warnings, *doubts(plan, others)))


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
