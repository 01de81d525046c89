"""Who decides whether an iteration is better: its own loss, or readings of what it left.

By default the loss that a run ends with is believed, as the source does. In a race what an
iteration left is read again and again beside the best so far, and is kept when that says so.
"""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple, cast

from kept.core.budget import Budget
from kept.core.case import IMPLICIT_CASE, Case, Cases
from kept.core.objective import Objective
from kept.core.ports import Gate, Runner
from kept.errors import SetupError
from kept.gates.follow import Follow
from kept.gates.race import PRESETS
from kept.gates.repeats import Repeats
from kept.orchestrator.refine.best import FOLLOW
from kept.orchestrator.refine.made import LOSS, MadeRunner
from kept.orchestrator.refine.rescore import CRITERION, Reading
from kept.recipes.agent_run.spec import AgentRunSpec
from kept.recipes.race_choice import FEWEST
from kept.recipes.refine.refine_asked import Refinement
from kept.recipes.task.cases import read_cases
from kept.recipes.task.hashing import hash_of
from kept.spec.load import validate
from kept.spec.source import source_of

RACE = "race"
MAX_USD = "budget.max_usd"


class Judging(NamedTuple):
    """The part of a plan that decides."""

    gate: Gate
    cases: Cases
    runner: Runner
    objective: Objective
    measure: str = FOLLOW
    """What its losses are, by a name: others are not compared with them."""
    budget: Budget = Budget()


def follows(task: str, close: Callable[[], None], *, from_last: bool) -> Judging:
    """An iteration is what its own run says."""
    return Judging(
        # the incumbent is what the next iteration starts from
        Follow(advances=from_last),
        Cases(holdout=(Case("task", {"task": task}),)),
        MadeRunner(close),
        Objective(LOSS, "minimize", (0.0, 1.0)),
    )


def races(asked: Refinement, reading: Reading) -> Judging:
    """An iteration is what readings of its deliverable say, beside those of the best so far."""
    # gains are small on the scale of a loss: which is better says more than by how much
    objective = Objective(LOSS, "minimize")
    if asked.cases is None:
        gate, cases = Repeats(most=asked.repeats), Cases(holdout=(IMPLICIT_CASE,))
    else:
        gate, cases = PRESETS["balanced"], criteria(asked)
    # as much money as an iteration has, for all readings together
    usd = reading.kit.limits.usd if asked.readings_usd is None else asked.readings_usd
    budget = Budget(max_rollouts_usd=usd)
    return Judging(gate, cases, reading, objective, _measure(reading, cases), budget)


def with_more(asked: Refinement, settings: tuple[str, ...], before: float | None) -> Refinement:
    """The same with as much money for readings as a resume says; `before` is what they had.

    Iterations keep the limits that they began with: their managers are told of them.
    """
    if not settings:
        return asked
    if before is None:
        hint = "it goes on as it began; `kept refine` begins another"
        raise SetupError(f"this refinement has no readings that `{MAX_USD}` limits", hint=hint)
    source = source_of(Path(asked.folder) / "(command line)", "{}", settings)
    spec = validate(source, AgentRunSpec)
    source.check()
    assert spec is not None, "a spec without problems is one"
    if spec.budget.max_usd is None:
        hint = "give what they may cost together, in US dollars"
        raise SetupError(f"`{MAX_USD}` of readings cannot be taken away", hint=hint)
    return replace(asked, readings_usd=spec.budget.max_usd)


def _measure(reading: Reading, cases: Cases) -> str:
    """Readings by this critic, about these criteria."""
    models = reading.kit.models
    about = [[case.id, case.data] for case in cases.holdout]
    return f"{RACE}:{hash_of([models.critic or models.manager, about])}"


def criteria(asked: Refinement) -> Cases:
    """The cases of a file: a criterion each, all of which decide."""
    settings = (f"cases.file={asked.cases}", "cases.split=0:1:0")
    source = source_of(Path(asked.folder) / "(command line)", "{}", settings)
    read = read_cases(source, lambda case: None if criterion_of(case) else _WORDS)
    source.check()
    found = [Case(case.id, criterion_of(case)) for case in (read.holdout if read else ())]
    if len(found) < FEWEST:
        raise SetupError(
            f"a race over criteria needs {FEWEST} of them or more, and `{asked.cases}` has "
            f"{len(found)}",
            hint="give more, or leave out --cases: then the whole deliverable is read repeatedly",
        )
    return Cases(holdout=tuple(found))


_WORDS = f"a case is a text, or has a `{CRITERION}`, perhaps an `id`, and nothing else"


def criterion_of(case: Case) -> str:
    """What a case is about; empty where it is none."""
    said = case.data
    if isinstance(said, dict):
        row = cast("dict[str, object]", said)
        said = row.get(CRITERION) if set(row) <= {"id", CRITERION} else None
    return said.strip() if isinstance(said, str) else ""
