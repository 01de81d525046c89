"""A skill for a model that runs here: what training promotes is truly better.

The teacher is scripted: it has a skill that helps, one that does nothing and one that harms. The
student is real, and what is promoted is measured on sealed cases by asking that model itself.
"""

import asyncio
import json
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from kept.core.artifact import Candidate
from kept.core.case import Case, Cases, split_cases
from kept.core.llm import Message, ModelRequest
from kept.core.plan import Plan
from kept.core.ports import Gate, Model, Scope
from kept.core.rollout import Failure, Job, Rollout, TraceItem
from kept.core.schedules.epochs import Epochs
from kept.evaluators.environments.base import About
from kept.models.ask import ask
from kept.models.providers import ModelConfig
from kept.models.roles import connect_role
from kept.run import start
from kept.store.home import Home
from kept.store.reader import Run
from kept.testing import AcceptAll, RejectAll
from kept.testing.server import ModelServer, Seen
from kept.ui.demo import REVIEWS
from tests.recipes.skill import world
from tests.recipes.task.test_edit_model import GOOD, MARGIN, POOL, SEED, share_right

pytestmark = [pytest.mark.model, pytest.mark.slow, pytest.mark.usefixtures("fresh_replies")]

SCHEMA = json.loads((REVIEWS / "schema.json").read_text(encoding="utf-8"))
CASES = 36


@pytest.fixture(scope="module")
def fresh_replies(smollm2: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Replies of this module alone, so that no run before it answers, and none is made twice."""
    folder = tmp_path_factory.mktemp("cache")
    (folder / "models").symlink_to(smollm2.parent)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("KEPT_CACHE", str(folder))
        yield


class Teacher:
    """Has the next skill of the pool for every step: a step is known by the seed of its calls."""

    def __init__(self) -> None:
        self.steps: list[object] = []

    def __call__(self, seen: Seen) -> str:
        wanted = world.properties(seen)
        if "patch" not in wanted:
            return json.dumps(world.merged(seen, "edits"))
        if seen.body.get("seed") not in self.steps:
            self.steps.append(seen.body.get("seed"))
        new = POOL[self.steps.index(seen.body.get("seed"))]
        shown = seen.text.partition("## Current Skill")[2].partition("</skill-")[0]
        now = next(text for text in (SEED, *POOL) if text.strip() in shown)
        edit = {"op": "replace", "target": now.strip(), "content": new.strip()}
        side = "failure_summary" if "failure_summary" in wanted else "success_patterns"
        nothing: list[str] = []
        return json.dumps({side: nothing, "patch": {"reasoning": "another", "edits": [edit]}})


@dataclass(frozen=True)
class Labels:
    """Says what mood a review has, by the skill; held to the labels that there are."""

    model: Model

    async def run(
        self, job: Job, candidate: Candidate, case: Case, scope: Scope
    ) -> Rollout | Failure:
        skill, review = candidate["SKILL.md"], world.fields(case)["question"]
        asked = (Message("system", skill.strip()), Message("user", review))
        request = ModelRequest(asked, schema=SCHEMA, temperature=0.0, max_tokens=16)
        reply = await ask(scope, self.model, request)
        if isinstance(reply, Failure):
            return reply
        label = json.loads(reply.text)["label"]
        trace = [TraceItem("system", skill), TraceItem("user", review)]
        return Rollout(label, trace=(*trace, TraceItem("assistant", label)), usage=reply.usage)

    async def close(self) -> None:
        """Nothing is open."""


def reviews() -> Cases:
    lines = (REVIEWS / "cases.jsonl").read_text(encoding="utf-8").splitlines()[:CASES]
    rows = [json.loads(line) for line in lines]
    made = [
        Case(f"r{n}", {"question": row["review"], "answer": row["label"]})
        for n, row in enumerate(rows)
    ]
    return split_cases(made, (3, 12, 5))


def about(case: Case) -> About:
    return About(world.fields(case)["question"], "review")


def plan_of(folder: Path, server: ModelServer, gate: str) -> Plan:
    config = ModelConfig(provider="local", model="smollm2", temperature=0.0, cache=True)
    path = world.write_config(folder, server.v1, epochs=len(POOL), batch=CASES, gate=gate)
    more: dict[str, Any] = {
        "cases": reviews(),
        "runner": Labels(connect_role("target", config)),
        "skill": {"SKILL.md": SEED},
        "about": about,
    }
    return world.make_plan(path, **more)


def check(best: Candidate, plan: Plan) -> None:
    """What a user is promised, on cases that nothing of the run has seen."""
    sealed = tuple(
        (world.fields(case)["question"], world.fields(case)["answer"]) for case in plan.cases.test
    )
    before, after = (share_right(text, sealed) for text in (SEED, best["SKILL.md"]))
    assert after >= before + MARGIN, f"{before:g} → {after:g} is no real gain"


def test_a_bad_skill_of_a_real_model_becomes_a_better_one(tmp_path: Path):
    teacher = Teacher()
    with ModelServer(teacher) as server:
        # with so few cases the race would rightly ask for more
        plan = plan_of(tmp_path, server, "selection")
        folder, state = asyncio.run(start(plan, Home(tmp_path / "home")))
    with Run(folder) as run:
        check(run.best, plan)
        assert run.best["SKILL.md"].strip() == GOOD.strip()
    assert len(teacher.steps) == len(POOL), "all of the pool was proposed"
    (claim,) = (step.verdict for step in state.history if step.verdict.code == "claim")
    assert claim.numbers["gain"] >= MARGIN, claim.reason
    kept = [step for step in state.history if step.verdict.outcome == "keep"]
    assert [step.turn.settings["epoch"] for step in kept] in ([2], [1, 2]), "not the harmful one"


@pytest.mark.nightly
@pytest.mark.parametrize("gate", [AcceptAll(), RejectAll()], ids=lambda gate: gate.name)
def test_a_gate_that_does_not_look_brings_no_real_gain(gate: Gate, tmp_path: Path):
    teacher = Teacher()
    with ModelServer(teacher) as server:
        plan = plan_of(tmp_path, server, "selection")
        assert isinstance(plan.schedule, Epochs)
        plan = replace(plan, gate=gate, schedule=replace(plan.schedule, sealed=False))
        folder, _ = asyncio.run(start(plan, Home(tmp_path / "home")))
    assert len(teacher.steps) == len(POOL), "it was shown what the race was shown"
    with Run(folder) as run, pytest.raises(AssertionError, match="no real gain"):
        check(run.best, plan)
