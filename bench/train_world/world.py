"""A student whose chance depends on the rules in its skill, and a teacher that draws rules.

Some rules help, most do nothing, some harm; the teacher cannot tell. What is replaced stands at the
ports: the student by odds, the teacher by a pool. Proposers, schedule, loop and gates are real.
"""

import hashlib
import json
import math
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from kept.core.artifact import Candidate
from kept.core.case import Case, Cases
from kept.core.llm import ModelRequest
from kept.core.plan import Plan
from kept.core.ports import Scope
from kept.core.rollout import Failure, Job, Rollout, TraceItem
from kept.core.score import Finding, Score
from kept.evaluators.environments.base import About, Opened
from kept.models.providers import ModelConfig
from kept.models.scripted import ScriptedModel
from kept.recipes.skill.compile import Asked, plan_of
from kept.recipes.skill.read import read_skill

START = "# Skill\n\nAnswer the question.\n"
TRAIN, HOLDOUT, EPOCHS, BATCH, EDITS = 100, 60, 4, 20, 2
RULES = 120

CONFIG = f"""\
train: {{num_epochs: {EPOCHS}, batch_size: {BATCH}}}
gradient: {{minibatch_size: 5, merge_batch_size: 8}}
optimizer: {{learning_rate: {EDITS}, min_learning_rate: 1, use_slow_update: false,
  use_meta_skill: false}}
"""


class World(NamedTuple):
    """How much of the pool helps and how much harms, and by how many logits."""

    name: str
    helps: float
    harms: float
    size: float = 0.7
    kinds: int = 0
    """Kinds of failures that a teacher who reads the skill tells apart; 0 where it is blind."""


WORLDS = (
    World("mixed", 0.25, 0.35),
    World("hard", 0.08, 0.4),
    World("small", 0.25, 0.35, 0.35),
    World("null", 0.0, 0.4),
)


def share(*what: object) -> float:
    digest = hashlib.sha256(repr(what).encode()).digest()
    return int.from_bytes(digest[:6], "big") / 2**48


def effect(world: World, rule: int) -> float:
    """Of a rule, in logits."""
    draw = share(world.name, "kind", rule)
    if draw < world.helps:
        return world.size
    return -world.size if draw < world.helps + world.harms else 0.0


def rules_in(text: str) -> set[int]:
    return {int(n) for n in re.findall(r"Rule (\d+)\.", text)}


def chance(world: World, case: str, rules: set[int]) -> float:
    """That a case is solved: cases differ, and a rule is worth more to some than to others.

    Of rules against one kind of failure the best counts, where kinds are told apart.
    """
    logit = -0.6 + 2.0 * (share("case", case) - 0.5)
    best: dict[int, float] = {}
    for rule in rules:
        kind = rule % world.kinds if world.kinds else rule
        worth = effect(world, rule) * (0.5 + share("fits", case, kind))
        if worth > 0:
            best[kind] = max(best.get(kind, 0.0), worth)
        else:
            logit += worth
    return 1 / (1 + math.exp(-logit - sum(best.values())))


def true_score(world: World, text: str) -> float:
    """On cases that no run has seen."""
    rules = rules_in(text)
    return sum(chance(world, f"fresh-{n}", rules) for n in range(400)) / 400


@dataclass(frozen=True)
class Student:
    """Solves a case or does not, by its odds."""

    world: World
    seed: int

    async def run(
        self, job: Job, candidate: Candidate, case: Case, scope: Scope
    ) -> Rollout | Failure:
        draw = share(self.seed, candidate.id, job.case_id, job.repeat, job.purpose)
        solved = draw < chance(self.world, case.id, rules_in(candidate["SKILL.md"]))
        trace = (TraceItem("user", case.id), TraceItem("assistant", str(solved)))
        return Rollout(str(solved), trace=trace)

    async def close(self) -> None:
        """Nothing is open."""


class Solved:
    """Whether it did."""

    async def score(
        self, job: Job, rollout: Rollout, candidate: Candidate, case: Case, scope: Scope
    ) -> Score | Failure:
        solved = float(rollout.output == "True")
        return Score({"hard": solved, "soft": solved}, () if solved else (Finding("wrong"),))

    async def close(self) -> None:
        """Nothing is open."""


def drawn(world: World, skill: str, seed: int, *draw: object) -> int:
    """A rule; of one who reads, against one of the first two kinds that no rule is against yet."""
    at = share(seed, *draw)
    if not world.kinds:
        return int(at * RULES)
    dealt = {rule % world.kinds for rule in rules_in(skill)}
    left = [kind for kind in range(world.kinds) if kind not in dealt] or list(range(world.kinds))
    kind = left[:2][int(share(seed, "k", *draw) * len(left[:2]))]
    return int(at * (RULES // world.kinds)) * world.kinds + kind


def teacher(world: World, seed: int) -> ScriptedModel:
    """Draws one rule a minibatch, merges what differs, and ranks as it comes.

    One that is blind draws the same in the nth minibatch of a step whatever leads by then, so that
    all gates see one teacher.
    """
    asked: Counter[int | None] = Counter()

    def say(request: ModelRequest) -> str:
        wanted: Any = request.schema["properties"]
        text = request.messages[-1].text
        if "patch" in wanted:
            asked[request.seed] += 1
            skill = text.partition("## Current Skill")[2].partition("</skill-")[0]
            rule = drawn(world, skill, seed, request.seed, asked[request.seed])
            item = {"op": "append", "target": "", "content": f"- Rule {rule}."}
            told: dict[str, Any] = {"patch": {"reasoning": "", "edits": [item]}}
            key = "failure_summary" if "failure_summary" in wanted else "success_patterns"
            return json.dumps({key: [], **told})
        if "selected_indices" in wanted:
            most = int(re.findall(r"At most (\d+)", text)[-1])
            return json.dumps({"reasoning": "", "selected_indices": list(range(most))})
        rows = re.findall(r"^(\d+): (\{.*\})$", text, re.MULTILINE)
        found: dict[str, list[int]] = {}
        for n, row in rows:
            found.setdefault(json.loads(row)["content"], []).append(int(n))
        items = [
            {"from": places, "op": "append", "target": "", "content": content}
            for content, places in found.items()
        ]
        return json.dumps({"reasoning": "", "edits": items})

    return ScriptedModel(say)


def make_plan(world: World, gate: str, seed: int, folder: Path, *more: str) -> Plan:
    """The plan that a config compiles to, in the world."""
    path = folder / "skill.yaml"
    path.write_text(CONFIG)
    out = f"env.out_root={folder / 'out'}"
    spec = read_skill(path, [f"evaluation.gate={gate}", f"train.seed={seed}", out, *more])

    def as_it_is(
        texts: Mapping[str, str],
        instruction: str,
        trace: Sequence[TraceItem] = (),
        after_step: int | None = None,
    ) -> Mapping[str, str]:
        return texts

    cases = tuple(Case(f"case-{n}", {"n": n}) for n in range(TRAIN + HOLDOUT))
    opened = Opened(
        name=world.name,
        cases=Cases(cases[:TRAIN], cases[TRAIN:]),
        runner=Student(world, seed),
        scorer=Solved(),
        about=lambda case: About(f"solve {case.id}"),
        prompts={},
        skill={"SKILL.md": START},
        probe=as_it_is,
        materialise=lambda _: None,
    )
    config = ModelConfig(provider="scripted", model="teacher")
    return plan_of(spec, opened, (), "", Asked(teacher(world, seed), config)).plan
