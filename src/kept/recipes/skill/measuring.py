"""A skill measured on a split of its environment: a run that proposes and changes nothing."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from kept.core.artifact import Artifact, Candidate, Rules
from kept.core.budget import Budget
from kept.core.case import SPLITS, Case, Split
from kept.core.exchange import PASSED
from kept.core.objective import Objective
from kept.core.plan import Plan
from kept.core.schedules.schedule import MEASURE, Turns
from kept.errors import Problem, SetupError
from kept.evaluators.environments.opened import Opened
from kept.evaluators.scorers.passing import Passing
from kept.gates.sweep import Sweep
from kept.models.roles import is_priced, probes_of
from kept.proposers.measured import SEED_ALONE
from kept.recipes.evaluate.compile import Wanted, as_sweep
from kept.recipes.recipes import Compiled
from kept.recipes.skill.judging import judge_facts
from kept.recipes.skill.money import check_money
from kept.recipes.skill.opening import has_problems, heard, open_skill
from kept.recipes.skill.read import SkillSpec, read_skill
from kept.recipes.skill.standalone import check_document, script_views
from kept.recipes.task.hashing import hash_of

NAMES: Mapping[str, tuple[Split, ...]] = {
    "train": ("train",),
    "val": ("holdout",),
    "selection": ("holdout",),
    "valid_seen": ("holdout",),
    "holdout": ("holdout",),
    "test": ("test",),
    "valid_unseen": ("test",),
    "all": SPLITS,
}
"""What a split may be called."""

ASKED = ("prompt", "mode")
"""Options of environments that a report names: how a student is asked."""

KIND = "skill"
"""Told in the facts of such a run: to fail some cases is what most skills do, and no error."""


def compile_measure(
    path: Path,
    wanted: Wanted,
    overrides: Sequence[str] = (),
    *,
    workers: int | None = None,
    folder: Path | None = None,
    problems: Sequence[Problem] = (),
) -> Compiled:
    """The plan that measures the skill of a config; a `SpecError` with all that is wrong.

    `problems` are those of the command line that the overrides come from.
    """
    spec = read_skill(path, overrides, folder)
    spec.source.problems += problems
    opened = open_skill(spec, deciding=False)
    if not has_problems(spec, "model"):
        heard(spec, lambda: check_money(spec, spec.student), ("budget", "max_usd"))
    spec.source.check()
    assert opened is not None, "what keeps it is reported"
    check_document(opened, wanted.output_json)
    split, cases = cases_of(opened, wanted.split)
    plan = Plan(
        recipe="skill",
        seed=Candidate(dict(opened.skill)),
        rules=Rules({name: Artifact(name) for name in opened.skill}),
        cases=replace(opened.cases, train=(), holdout=cases, test=()),
        runner=opened.runner,
        scorer=Passing(opened.scorer),
        objective=Objective(PASSED, "maximize", (0.0, 1.0)),
        proposers=(SEED_ALONE,),
        schedule=Turns(MEASURE, 1),
        gate=Sweep(),
        budget=Budget(
            max_minutes=spec.budget.max_minutes,
            max_usd=spec.budget.max_usd,
            max_rollouts=spec.budget.max_rollouts,
        ),
        workers=workers or spec.env.workers,
        probes=probes_of(
            [],
            [
                ("target", spec.student if spec.agent is None else None),
                ("judge", opened.judge),
            ],
        ),
        inputs={**(opened.inputs or {}), "config": hash_of(_deciding(spec))},
        views=script_views(spec, opened, cases, wanted.output_json),
        facts={
            "spec": str(spec.source.path.resolve()),
            "set": list(overrides),
            "folder": str(spec.folder),
            "id": opened.name,
            **judge_facts(opened.judge),
        },
    )
    told = {"name": f"{opened.name}, {split}", "kind": KIND, "agent": _about(spec, opened)}
    return Compiled(as_sweep(plan, wanted, told), (*opened.ignored, *_warnings(spec)))


def cases_of(opened: Opened, name: str) -> tuple[str, tuple[Case, ...]]:
    """The cases of a split, and what it is called; without a name, of those nobody has seen."""
    if name and name not in NAMES:
        raise SetupError(f"there is no split `{name}`", hint=f"there are {', '.join(NAMES)}")
    if not name:
        name = next((one for one in ("test", "selection") if opened.cases.of(NAMES[one][0])), "all")
    found = tuple(case for split in NAMES[name] for case in opened.cases.of(split))
    if not found:
        raise SetupError(f"the split `{name}` of `{opened.name}` has no cases")
    return name, found


def _about(spec: SkillSpec, opened: Opened) -> dict[str, object]:
    student = spec.agent or (spec.student.name if spec.student else "")
    asked = {name: spec.told()["env"].get(name) for name in ASKED}
    skill = Candidate(dict(opened.skill)).id
    return {"student": student, "skill": skill, **{k: v for k, v in asked.items() if v}}


def _deciding(spec: SkillSpec) -> dict[str, object]:
    """What scores depend on: who works, and where."""
    told = spec.told()
    other = ("out_root", "exports", "workers", "skill_init", "limit")
    env = {k: v for k, v in told["env"].items() if k not in other}
    return {"model": told["model"], "env": env}


def _warnings(spec: SkillSpec) -> Iterator[str]:
    if spec.student is not None and not is_priced(spec.student):
        yield f"the price of `{spec.student.name}` is not known: what it costs is not counted"
