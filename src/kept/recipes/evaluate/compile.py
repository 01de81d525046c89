"""A plan that only measures: every case of it, so often, and nothing is proposed or kept."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from fnmatch import fnmatchcase
from typing import Any, cast

from kept.core.artifact import Artifact, Rules
from kept.core.case import Case, Cases
from kept.core.plan import EVAL, Plan
from kept.core.schedules.round_robin import MEASURE, Turns
from kept.errors import SetupError
from kept.gates.fixed_cases import Sweep
from kept.proposers.variants import SEED_ALONE


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """Which cases, and how often."""

    repeats: int = 1
    limit: int | None = None
    """The first so many of those that are meant."""
    timeout: float | None = None
    """Seconds for one case of an agent; None leaves it to the agent."""
    filter: str = ""
    """Only cases whose name has this in it, or fits it where it is a pattern with `*` or `?`."""
    min_score: float | None = None
    """The mean of the primary metric that the command requires, in its direction."""
    split: str = ""
    """Of a skill config: which cases are meant; empty for those that nobody has seen."""
    output_json: str = ""
    """Of a skill config: the document of a standalone script that is written; empty for none."""

    @classmethod
    def of(cls, fact: object) -> "Wanted":
        """As a run was asked, from the fact that it began with."""
        told = cast("Mapping[str, Any]", cast("Mapping[str, Any]", fact)["wanted"])
        return cls(**told)


def as_sweep(plan: Plan, wanted: Wanted, told: Mapping[str, object]) -> Plan:
    """The same runner and scorer, on the cases that are wanted."""
    # each once: the one case of a run without any stands in two splits, as do tasks of a suite
    cases = _chosen(tuple(plan.cases.by_id.values()), wanted)
    names = [case.id for case in cases]
    facts = {
        EVAL: {
            **told,
            "asked": len(cases) * wanted.repeats,
            "cases": names,
            "wanted": asdict(wanted),
        }
    }
    return replace(
        plan,
        recipe=EVAL,
        cases=Cases(holdout=cases),
        rules=Rules({name: Artifact(name) for name in plan.seed.texts}),
        proposers=(SEED_ALONE,),
        schedule=Turns(MEASURE, 1),
        gate=Sweep(wanted.repeats),
        guards=(),
        probes=tuple(probe for probe in plan.probes if not probe.proposes),
        # a sweep is one step; what limits it is what it may cost
        budget=replace(plan.budget, max_iterations=None, max_failures=None),
        width=1,
        # a case that cannot be run is what the report tells of
        tries_one=False,
        facts={**plan.facts, **facts},
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
