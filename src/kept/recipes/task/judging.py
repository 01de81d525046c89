"""From what a task says about judges to the scorer that asks them."""

from dataclasses import replace
from pathlib import Path
from typing import cast

from kept.core.case import Cases
from kept.core.ports import Model
from kept.evaluators.scorers.judge import Floor, JudgeScorer
from kept.evaluators.scorers.judging import Criterion, Sheet
from kept.evaluators.scorers.rules import Kind, RulesScorer, Target
from kept.evaluators.scorers.spec_judging import JudgeScorerSpec
from kept.models.roles import connect_role
from kept.recipes.task.fields import check_field
from kept.recipes.task.models import check_asked, check_price
from kept.recipes.task.prompts import read_prompt
from kept.spec.load import said, section
from kept.spec.models import ModelSpec, ModelsSpec
from kept.spec.source import Source
from kept.spec.yaml import Loc


def make_judge(
    spec: JudgeScorerSpec,
    folder: Path,
    judge: ModelSpec | None,
    rubric: str,
    rules: RulesScorer | None,
    seen: tuple[str, ...] = (),
) -> JudgeScorer:
    """The scorer that a task describes; a role stands for judges that it does not name.

    Unless it says otherwise, a judge sees of a case what the model saw that it judges.
    """
    texts = {key: (folder / name).read_text(encoding="utf-8") for key, name in spec.prompts}
    pairwise = spec.pairwise
    sheet = Sheet(
        tuple(Criterion(one.name, one.means, one.values, one.weight) for one in spec.criteria),
        seen if spec.input is None else spec.input,
        spec.reference,
        rubric=rubric.strip(),
        prompt=texts.get(("prompt",), ""),
    )
    if pairwise is not None:
        own = texts.get(("pairwise", "prompt"), "")
        sheet = replace(
            sheet, rival=pairwise.reference, rival_weight=pairwise.weight, rival_prompt=own
        )
    kind, _, path = spec.target.partition(":")
    target = Target(cast("Kind", kind), path or None)
    floor = Floor(rules, spec.cap or 0.0) if rules is not None else None
    judges = _judges(spec, folder, judge)
    return JudgeScorer(judges, sheet, spec.timeout_seconds, target=target, floor=floor)


def _judges(spec: JudgeScorerSpec, folder: Path, judge: ModelSpec | None) -> tuple[Model, ...]:
    named = spec.judges or ((judge,) if judge is not None else ())
    made = [connect_role("judge", one.config(folder)) for one in named]
    return tuple(model for model in made for _ in range(spec.draws))


def check_judge(source: Source, loc: Loc, spec: JudgeScorerSpec, cases: Cases | None) -> None:
    """Report judges that are nobody, fields that cases have not, files and prices that lack."""
    if spec.judges is None and said(source, ("models", "judge")) is None:
        hint = "name them here, or one for all in `models.judge`"
        source.report((*loc, "judges"), "missing", hint)
    for key, name in spec.prompts:
        read_prompt(source, (*loc, *key), name, "judge_pair" if len(key) > 1 else "judge")
    for key, name in spec.fields if cases is not None else ():
        check_field(source, (*loc, *key), name, cases or Cases())
    if said(source, ("cases",)) is None and spec.fields:
        source.report((*loc, *spec.fields[0][0]), "there are no cases to have such a field")
    for number, one in enumerate(spec.judges or ()):
        place: Loc = (*loc, "judges", number)
        check_price(source, place, one.config(source.folder))
        check_asked(source, place, one.config(source.folder))
    models = section(source, ("models",), ModelsSpec)
    if spec.judges is None and models is not None and models.judge is not None:
        check_asked(source, ("models", "judge"), models.judge.config(source.folder))
