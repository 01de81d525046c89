"""Real games of ALFWorld as what a skill is trained on: the student plays by the rule it has."""

import asyncio
import json
from collections.abc import Mapping
from pathlib import Path

import pytest

from kept.core.case import Case, Cases
from kept.core.llm import ModelRequest
from kept.evaluators.environments.alfworld import AlfWorld
from kept.evaluators.environments.base import EnvSettings
from kept.evaluators.environments.chat_student import ChatRunner
from kept.evaluators.environments.datasets import Parted
from kept.evaluators.environments.registry import opened
from kept.models.providers import ModelConfig
from kept.recipes.skill.compile import Asked, plan_of
from kept.run import start
from kept.store.home import Home
from kept.store.reader import Run
from kept.testing import ScriptedModel
from tests.evaluators.environments.games import games
from tests.evaluators.environments.games import plan_of as planned
from tests.recipes.skill.skill_configs import sound_skill

__all__ = ["games"]

RULE = "Follow the plan to its end."
SIMPLE = "pick_and_place_simple"

CONFIG = """\
_base_: configs/alfworld/default.yaml
train: {num_epochs: 1, batch_size: 1}
gradient: {minibatch_size: 2, merge_batch_size: 2}
optimizer: {learning_rate: 1, min_learning_rate: 1, use_slow_update: false, use_meta_skill: false}
evaluation: {gate: selection, eval_test: false}
model: {optimizer: scripted/teacher.jsonl, target: scripted/student.jsonl}
"""


def student(plans: Mapping[str, list[str]]) -> ScriptedModel:
    """Plays by the plan of its game where the skill says so, and else looks around."""

    def act(request: ModelRequest) -> str:
        system, first = request.messages[0].text, request.messages[1].text
        plan = next(plan for goal, plan in plans.items() if goal in first)
        done = sum(message.role == "assistant" for message in request.messages)
        if RULE not in system or done >= len(plan):
            return "<action>look</action>"
        return f"<action>{plan[done]}</action>"

    return ScriptedModel(act)


def teach(request: ModelRequest) -> str:
    """Proposes the rule to whoever asks for edits; ranks and merges as they come."""
    told: dict[str, object] = {"reasoning": "it gave up"}
    wanted = set(dict(request.schema).get("properties", {}))  # type: ignore[call-overload] # JSON
    edit = {"op": "append", "target": "", "content": RULE}
    if "patch" in wanted:
        told = {
            "batch_size": 1,
            "failure_summary": [{"failure_type": "lost", "count": 1, "description": "lost"}],
            "success_patterns": ["won"],
            "patch": {"reasoning": "a plan helps", "edits": [edit]},
        }
    elif "edits" in wanted:
        told["edits"] = [edit]
    elif "selected_indices" in wanted:
        told["selected_indices"] = [0]
    return json.dumps({key: value for key, value in told.items() if key in wanted})


@pytest.mark.alfworld
@pytest.mark.slow
def test_two_steps_of_training_on_real_games_bring_the_rule_that_wins(
    games: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.chdir(tmp_path)
    for name in ("teacher", "student"):
        (tmp_path / f"{name}.jsonl").write_text('"never asked"\n')
    base = Path(__file__).parents[3] / "src" / "kept" / "recipes" / "skill"
    (tmp_path / "skill.yaml").write_text(CONFIG.replace("configs/", f"{base}/configs/"))
    env = AlfWorld(max_steps=6, games_at_once=2)
    short = [case for case, _ in env.read(games) if case.id.startswith(SIMPLE)]
    plans = {_goal(case): planned(case) for case in short[:4]}
    short = [case for case in short[:4] if len(plans[_goal(case)]) <= 6]
    assert len(short) >= 4, "games that can be won in six steps"
    cases = Cases(tuple(short[:2]), tuple(short[2:4]))
    model = student(plans)
    made = opened(
        env, EnvSettings(name="alfworld"), Parted(cases), lambda one: ChatRunner(one, model)
    )
    spec = sound_skill(tmp_path / "skill.yaml")
    config = ModelConfig(provider="scripted", model="teacher.jsonl")
    plan = plan_of(spec, made, teacher=Asked(ScriptedModel(teach), config)).plan
    ended = asyncio.run(start(plan, Home(tmp_path / "home")))
    steps = [step for step in ended.state.history if step.turn.phase.endswith("step")]
    assert len(steps) == 2
    assert [step.verdict.outcome for step in steps].count("keep") == 1
    assert RULE in (ended.folder / "best" / "SKILL.md").read_text()
    with Run(ended.folder) as run:
        won = [outcome for _, _, outcome in run.rollouts() if outcome.metrics.get("won") == 1]
        assert won
        trace = run.trace(won[0].trace)
    assert trace[-1].text.startswith("hard 1, soft 1; won after")


def _goal(case: Case) -> str:
    assert isinstance(case.data, dict)
    return str(case.data["goal"])  # pyright: ignore[reportUnknownArgumentType,reportUnknownMemberType] # a row
