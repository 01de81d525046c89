"""Answers that a judge grades as a whole: four known criteria, or those of the user (geval)."""

from collections.abc import Mapping
from typing import cast

from kept.core.rollout import Failure
from kept.core.words import one_line
from kept.evaluators.metrics.asking import TEXT, Judge, schema
from kept.evaluators.metrics.config import GEvalMetric, Graded, Param, StandardMetric
from kept.evaluators.metrics.subject import Measured, Subject, lacking
from kept.evaluators.scorers.judging import LONGEST
from kept.models.fencing import Named
from kept.models.prompts import Name, filled, prompt

TENTHS = 10
"""Grades that geval asks for."""

ENOUGH = 0.5
"""What passes of geval without a threshold."""

NOTHING = "(nothing)"

Prompts = Mapping[Name, str]
"""Texts that stand for those of Kept's own."""


def saying_nothing(subject: Subject) -> Measured | None:
    """The worst score for an answer that is empty: no judge needs to be asked."""
    if subject.response.strip():
        return None
    return Measured(0.0, False, "the answer is empty")


async def graded(
    settings: StandardMetric, subject: Subject, judge: Judge, prompts: Prompts
) -> Measured | Failure:
    """A grade of one of the four, as a share of the greatest."""
    if (nothing := saying_nothing(subject)) is not None:
        return nothing
    name = cast("Graded", settings.metric)
    text = settings.custom_prompt or prompts.get(name) or prompt(name)
    told = filled(text, {"scale": str(settings.scale)})
    told += f"\n\nGrades are whole numbers from 1 (worst) to {settings.scale} (best)."
    grades = list(range(1, settings.scale + 1))
    wanted = schema(reason=TEXT, grade={"type": "integer", "enum": grades})
    shown = [("input", subject.input)]
    if name == "groundedness" and subject.context:
        shown += passages(subject)
    said = await judge.ask("grade", told, [*shown, ("answer", subject.response)], wanted)
    if isinstance(said, Failure):
        return said
    grade: int = said["grade"]
    details = {"grade": grade, "scale": settings.scale}
    # a threshold above 1 is one of the grades
    least = settings.threshold if settings.threshold is not None else 0.0
    passed = grade >= least if least > 1 else None
    return Measured(grade / settings.scale, passed, reason_of(said), details=details)


async def geval(
    settings: GEvalMetric, subject: Subject, judge: Judge, prompts: Prompts
) -> Measured | Failure:
    """A grade by criteria of the user; with `strict_mode`, all or nothing."""
    if "expected_output" in settings.evaluation_params and subject.ground_truth is None:
        return lacking("ground_truth")
    if (nothing := saying_nothing(subject)) is not None:
        return nothing
    text = prompts.get("geval") or prompt("geval")
    told = filled(text, {"name": settings.name, "criteria": settings.criteria})
    told += f"\n\n# Criteria\n\n{settings.criteria.strip()}"
    steps = settings.evaluation_steps
    if steps:
        listed = "\n".join(f"{n}. {step}" for n, step in enumerate(steps, 1))
        told += f"\n\n# Steps\n\nGo through these in their order:\n\n{listed}"
    else:
        told += "\n\nSay first by which steps you judge, then go through them."
    best = 1 if settings.strict_mode else TENTHS
    if settings.strict_mode:
        told += "\n\nGrade 1 where all of it is met without a fault, and 0 otherwise."
    else:
        told += f"\n\nGrades are whole numbers from 0 (not met at all) to {best} (met in full)."
    own = {} if steps else {"steps": {"type": "array", "items": TEXT}}
    wanted = schema(**own, reason=TEXT, grade={"type": "integer", "enum": list(range(best + 1))})
    said = await judge.ask("grade", told, _params(settings.evaluation_params, subject), wanted)
    if isinstance(said, Failure):
        return said
    score = said["grade"] / best
    passed = score >= ENOUGH
    return Measured(score, passed, reason_of(said), details={"grade": said["grade"], "scale": best})


def _params(params: tuple[Param, ...], subject: Subject) -> list[Named]:
    found: list[Named] = []
    for param in params:
        if param == "input":
            found.append(("input", subject.input))
        elif param == "actual_output":
            found.append(("answer", subject.response))
        elif param == "expected_output":
            found.append(("expected", subject.ground_truth or ""))
        elif not any(name.startswith("passage") for name, _ in found):
            found += passages(subject) or [("passage", NOTHING)]
    return found


def passages(subject: Subject) -> list[Named]:
    """The passages of an exchange, numbered."""
    return [(f"passage-{n}", text) for n, text in enumerate(subject.context, 1)]


def reason_of(said: Mapping[str, object]) -> str:
    """Why a judge says so, in one line."""
    return one_line(str(said["reason"]), LONGEST)
