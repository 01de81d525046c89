"""Numbers, words and examples in turn, on the engine: paid once, on record, resumed to one end."""

import asyncio
import json
from collections import Counter
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, cast

import pytest

from kept.core.artifact import Artifact, Candidate, Rules
from kept.core.budget import StopReason
from kept.core.case import Case, Cases
from kept.core.llm import PASSED, Message, ModelRequest, answered, said
from kept.core.plan import Plan
from kept.core.ports import Scope
from kept.core.proposal import Turn
from kept.core.rollout import Failure, Job, Rollout
from kept.core.state import State
from kept.gates.sigma import Sigma
from kept.proposers.critique import DIAGNOSIS, REVISION, Critique
from kept.proposers.few_shot import Shots
from kept.proposers.llm import Asked
from kept.proposers.numeric.search import Numeric
from kept.proposers.numeric.space import Axis, Numbers, Space
from kept.proposers.text_units import TextAxis
from kept.run import Watch, resume, start
from kept.spec.locate.tree import locate
from kept.testing import MemoryJournal, ScriptedModel
from kept.testing.run import sit, small_plan
from tests.engine.cutting import Home1, Moments, cut

SPACE = Space((Axis("agent.yaml", "temperature", Numbers(0.0, 1.0)),))
AXIS = TextAxis("instructions", "prompt.md")
SEED = Candidate({"agent.yaml": "temperature: 0.1\n", "prompt.md": "Follow rule 0.\n"})
TURNS = tuple(
    Turn(name, f"c{cycle}/{phase}", n, settings)
    for cycle in (1, 2)
    for name, phase, trials, settings in (
        ("numeric", "numeric", 5, {}),
        ("critique", "textual", 2, {"axis": "instructions"}),
        ("demos", "demos", 2, {}),
    )
    for n in range(trials)
)


@dataclass(frozen=True)
class Listed:
    """A schedule of these turns and no others."""

    def next(self, state: State) -> Turn | StopReason:
        if state.next_step < len(TURNS):
            return TURNS[state.next_step]
        return StopReason("iterations", "all turns were had")

    def last(self, state: State) -> Turn | None:
        return None


@dataclass
class World:
    """An agent that passes a case whose rule it is told, or shown an example of the last kind."""

    tries: Counter[Job] = field(default_factory=Counter[Job])

    async def run(self, job: Job, candidate: Candidate, case: Case, scope: Scope) -> Rollout:
        self.tries[job] += 1
        await asyncio.sleep(0)
        point, kind = SPACE.read(candidate.texts), cast("int", case.data) % 4
        assert isinstance(point, tuple)
        prompt = candidate["prompt.md"]
        passed = f"rule {kind}" in prompt or (kind == 3 and "Example" in prompt)
        score = 0.7 * passed + 0.3 * (1 - abs(float(point[0]) - 0.6))
        trace = (said(Message("user", f"of kind {kind}")), answered(f"said {passed}", 0.1))
        return Rollout("", metrics={"score": score, PASSED: float(passed)}, trace=trace)

    async def close(self) -> None: ...


def critic(request: ModelRequest) -> str:
    shown = request.messages[-1].text
    kind = next(k for k in "123" if f"[input] of kind {k}" in shown)
    words = {"failing_pattern": f"kind {kind}", "root_cause_hypothesis": "", "citations": ["t1"]}
    return json.dumps(words | {"suggested_change_direction": f"add rule {kind}", "confidence": 0.9})


def applier(request: ModelRequest) -> str:
    shown = request.messages[-1].text
    kind = shown.split("failing pattern: kind ")[1][0]
    text = shown.split("as it is now\n\n<text-")[1].split(">\n", 1)[1].split("\n</text-")[0]
    said = {"edit_type": "insert", "rationale": f"rule {kind}", "diff_summary": "one line"}
    return json.dumps(said | {"new_text": f"Follow rule {kind}.\n{text}"})


def make_plan() -> tuple[Plan, World, ScriptedModel]:
    world, model = World(), ScriptedModel(critic)
    tells = Asked(model, ModelRequest((Message("system", "Find out."),), schema=DIAGNOSIS))
    writes = ScriptedModel(applier)
    mends = Asked(writes, ModelRequest((Message("system", "Mend it."),), schema=REVISION))
    proposers = (
        Numeric(SPACE, (0.1,), startup=3, eps=1e-9),
        Critique({"instructions": AXIS}, tells, mends),
        Shots(AXIS, most=2),
    )
    plan = replace(
        small_plan(cast("Any", world), *proposers),
        seed=SEED,
        rules=Rules({path: Artifact(path) for path in SEED.texts}),
        cases=Cases(
            tuple(Case(f"t{n}", n) for n in range(8)), tuple(Case(f"h{n}", n) for n in range(8))
        ),
        schedule=Listed(),
        gate=Sigma(repeats=2),
        locate=locate,
    )
    return replace(plan, budget=replace(plan.budget, max_iterations=len(TURNS))), world, model


def test_each_kind_of_change_is_kept_and_nothing_is_run_twice():
    plan, world, _ = make_plan()
    state = asyncio.run(sit(plan, MemoryJournal()))
    kept = [step for step in state.history if step.verdict.outcome == "keep"]
    assert {step.turn.proposer for step in kept} == {"numeric", "critique", "demos"}
    assert max(world.tries.values()) == 1
    looked = [job for job in world.tries if job.purpose == "feedback"]
    by_candidate = Counter(job.candidate_id for job in looked)
    assert set(by_candidate.values()) == {8, 24}, "every train case, once or till one fails"
    judged = {step.incumbent for step in state.history if step.turn.proposer != "numeric"}
    assert by_candidate.keys() == judged, "numbers are told by verdicts alone"
    over = [step.turn.phase for step in state.history if step.skip and step.skip.ends]
    assert "c2/textual" in over, "then every case passes"


def test_a_model_that_is_away_costs_its_step_and_not_the_run():
    """Bug 10 of the original: an error of the backend ended the run."""
    plan, _, model = make_plan()
    model.fail(Failure("server", "infrastructure", "503"), 1)
    state = asyncio.run(sit(plan, MemoryJournal()))
    failed = [s for s in state.history if s.verdict.code == "proposer failed"]
    assert [step.turn.phase for step in failed] == ["c1/textual"]
    assert len(state.history) == len(TURNS)


@pytest.mark.slow
def test_a_run_cut_anywhere_resumes_to_the_same_end(tmp_path: Path):
    moments = Moments()
    folder, whole = asyncio.run(start(make_plan()[0], Home1(tmp_path, moments), Watch((moments,))))
    assert whole.keeps >= 3
    records = [step.proposal.about for step in whole.history if step.proposal]
    assert {str(about["kind"]) for about in records} == {"numeric", "textual", "demos"}
    for sizes in moments.sizes[:: max(1, len(moments.sizes) // 10)]:
        part = cut(folder, sizes, tmp_path / "part")
        again, world, _ = make_plan()
        _, state = asyncio.run(resume(again, part))
        assert state.settled() == whole.settled()
        assert max(world.tries.values(), default=0) <= 1
