"""The same epoch on a clock that moves only when everybody waits.

Processor time is nothing on it: what is lost of the ideal is what stages wait for each other.
"""

import asyncio
import json
import re
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from bench.train.shape import AT_ONCE, BATCH, SECONDS, ideal, is_right
from kept.core.artifact import Candidate
from kept.core.case import Case, Cases
from kept.core.llm import ModelReply, ModelRequest
from kept.core.ports import Scope
from kept.core.rollout import Failure, Job, Rollout, TraceItem
from kept.core.score import Finding, Score
from kept.evaluators.environments.base import About, Opened
from kept.models.providers import ModelConfig
from kept.models.scripted import ScriptedModel
from kept.recipes.skill.compile import Asked, plan_of
from kept.recipes.skill.read import read_skill
from kept.testing import FakeClock, MemoryJournal, sit

CONFIG = f"""\
train: {{num_epochs: 1, batch_size: {BATCH}}}
gradient: {{minibatch_size: 8, merge_batch_size: 8}}
optimizer: {{learning_rate: 4}}
env: {{workers: {AT_ONCE}}}
"""


@dataclass
class Counting:
    """Calls on a clock; each takes as long as a reply."""

    clock: FakeClock
    calls: int = 0

    async def call(self) -> None:
        self.calls += 1
        await self.clock.sleep(SECONDS)


@dataclass(frozen=True)
class Student:
    """Right more often with more rules in its skill."""

    counting: Counting

    async def run(
        self, job: Job, candidate: Candidate, case: Case, scope: Scope
    ) -> Rollout | Failure:
        await self.counting.call()
        said = str(is_right(int(case.id), (job.repeat, job.purpose), candidate["SKILL.md"]))
        return Rollout(said, trace=(TraceItem("user", case.id), TraceItem("assistant", said)))

    async def close(self) -> None:
        """Nothing is open."""


class Solved:
    """Whether it was."""

    async def score(
        self, job: Job, rollout: Rollout, candidate: Candidate, case: Case, scope: Scope
    ) -> Score | Failure:
        solved = float(rollout.output == "True")
        return Score({"hard": solved, "soft": solved}, () if solved else (Finding("wrong"),))

    async def close(self) -> None:
        """Nothing is open."""


def taught(request: ModelRequest) -> str:
    """One rule more than the skill has."""
    wanted: Any = request.schema["properties"]
    text = request.messages[-1].text
    item = {"op": "append", "target": "", "content": f"- Rule {text.count('- Rule') + 1}."}
    if "patch" in wanted:
        side = "failure_summary" if "failure_summary" in wanted else "success_patterns"
        return json.dumps({side: [], "patch": {"reasoning": "seen", "edits": [item]}})
    if "selected_indices" in wanted:
        return json.dumps({"reasoning": "first", "selected_indices": [0]})
    places = [int(n) for n in re.findall(r"^(\d+): \{", text, re.MULTILINE)]
    return json.dumps({"reasoning": "one", "edits": [{"from": places, **item}]})


@dataclass(frozen=True)
class Teacher:
    """Implements `kept.core.ports.Model`."""

    counting: Counting
    script: ScriptedModel
    name: str = "teacher"

    async def complete(self, request: ModelRequest) -> ModelReply | Failure:
        await self.counting.call()
        return await self.script.complete(request)


def busy(gate: str, at_once: int, sizes: tuple[int, int, int]) -> tuple[int, float]:
    """Calls of an epoch, and the share of the ideal that its stages leave."""
    clock = FakeClock()
    counting = Counting(clock)
    with tempfile.TemporaryDirectory() as name:
        path = Path(name) / "skill.yaml"
        path.write_text(CONFIG)
        more = (f"evaluation.gate={gate}", f"train.steps_at_once={at_once}")
        spec = read_skill(path, [*more, f"env.out_root={name}/out"])
        cases = [Case(str(n), n) for n in range(sum(sizes))]
        train, val = sizes[0], sizes[0] + sizes[1]
        opened = Opened(
            name="schedule",
            cases=Cases(tuple(cases[:train]), tuple(cases[train:val]), tuple(cases[val:])),
            runner=Student(counting),
            scorer=Solved(),
            about=lambda case: About(f"number {case.id}"),
            prompts={},
            skill={"SKILL.md": "# Skill\n\nAnswer the question.\n"},
            probe=_as_it_is,
            materialise=lambda _: None,
        )
        teacher = Teacher(counting, ScriptedModel(taught))
        asked = Asked(teacher, ModelConfig(provider="scripted", model="teacher"))
        plan = replace(plan_of(spec, opened, (), "", asked).plan, views=())
        began = clock.monotonic()
        asyncio.run(sit(plan, MemoryJournal(), clock))
    return counting.calls, ideal(counting.calls, clock.monotonic() - began)


def _as_it_is(
    texts: Mapping[str, str],
    instruction: str,
    trace: Sequence[TraceItem] = (),
    after_step: int | None = None,
) -> Mapping[str, str]:
    return texts
