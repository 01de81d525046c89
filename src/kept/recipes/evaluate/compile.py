"""Plan of a measurement: all wanted cases, each repeated; nothing is proposed or kept."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from fnmatch import fnmatchcase

from kept.core.artifact import Artifact, Rules
from kept.core.case import Case, Cases
from kept.core.plan import EVALUATE, Plan
from kept.core.schedules.round_robin import MEASURE, Turns
from kept.errors import SetupError
from kept.evaluators.scorers.transforms import DescribedScorer
from kept.gates.fixed_cases import Sweep
from kept.proposers.variants import SEED_ALONE
from kept.recipes.base import Compiled, plan_facts
from kept.recipes.evaluate.request import Evaluation, EvaluationFacts, Wanted
from kept.results.cases import Evaluated


def measure_plan(made: Compiled, asked: Evaluation) -> Compiled:
    """Build the plan that measures the seed of another plan, with its cases described."""
    plan = made.plan
    if not plan.cases.implicit:
        plan = replace(plan, scorer=DescribedScorer(plan.scorer, plan.labels))
    return replace(made, plan=as_sweep(plan, asked, plan.spec.id))


def as_sweep(
    plan: Plan, asked: Evaluation, name: str, agent: Mapping[str, object] | None = None
) -> Plan:
    """Same runner and scorer, on the wanted cases."""
    wanted, known = asked.wanted, plan_facts(plan)
    # each case once: an implicit case, or a suite's task, may be in two splits
    cases = _chosen(tuple(plan.cases.by_id.values()), wanted)
    facts = EvaluationFacts(
        models=known.models,
        prompts=known.prompts,
        charges=known.charges,
        limited_by=known.limited_by,
        pass_at=known.pass_at,
        evaluated=Evaluated(
            of=asked.of,
            name=name,
            rollouts=len(cases) * wanted.repeats,
            cases=tuple([case.id for case in cases]),
            pass_at=known.pass_at,
            # an agent and a student are measured by whether they pass, a task by its own metric
            metric_is_pass=agent is not None,
            min_score=wanted.min_score,
            agent=agent or {},
        ),
    )
    return replace(
        plan,
        recipe=EVALUATE,
        cases=Cases(holdout=cases),
        rules=Rules({name: Artifact(name) for name in plan.seed.texts}),
        proposers=(SEED_ALONE,),
        schedule=Turns(MEASURE, 1),
        gate=Sweep(wanted.repeats),
        guards=(),
        probes=tuple(probe for probe in plan.probes if not probe.proposes),
        # a sweep is one step, limited only by its cost
        budget=replace(plan.budget, max_iterations=None, max_failures=None),
        width=1,
        # a case that cannot be run is reported, and does not stop the sweep
        tries_one=False,
        request=asked,
        facts=facts,
    )


def _chosen(cases: Sequence[Case], wanted: Wanted) -> tuple[Case, ...]:
    name = wanted.filter.casefold()
    if re.search(r"[*?\[]", name):
        found = [case for case in cases if fnmatchcase(case.id.casefold(), name)]
    else:
        found = [case for case in cases if name in case.id.casefold()]
    if not found:
        some = ", ".join(f"`{case.id}`" for case in cases[:5])
        hint = f"there are {len(cases)}: {some}{' …' if len(cases) > 5 else ''}" if cases else None
        message = f"no case is called like `{wanted.filter}`" if cases else "there are no cases"
        raise SetupError(message, hint=hint)
    return tuple(found[: wanted.limit])
