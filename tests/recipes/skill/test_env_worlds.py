"""Each environment, trained for two steps and measured through the commands."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from kept.testing.server import ModelServer, Seen
from tests.envs.docvqa_data import amount, write_split
from tests.envs.drawing import page
from tests.envs.livemath_data import right_text, write_months
from tests.envs.test_livemathematicianbench import letter_of
from tests.recipes.skill.env_world import (
    RULE,
    STUDENT,
    EnvWorld,
    check_trained,
    evaluate,
    pictures,
    put_agent,
    train,
)

pytestmark = pytest.mark.slow


def invoice(seen: Seen) -> str:
    n = int(seen.text.partition("invoice ")[2].partition("?")[0])
    assert pictures(seen) == [page(f"Invoice {n}", f"Total {amount(n)}")]
    return f"<answer>{amount(n)}</answer>"


def docvqa(folder: Path) -> list[str]:
    write_split(folder, (8, 10, 2))
    return []


def letter(seen: Seen) -> str:
    return letter_of(seen.text, right_text(seen.text))


def livemath(folder: Path) -> list[str]:
    write_months(folder, 24)
    return ["split_ratio='8:10:6'"]


WORLDS = {
    "docvqa": EnvWorld("docvqa", docvqa, invoice, lambda _: "<answer>unreadable</answer>"),
    "livemathematicianbench": EnvWorld(
        "livemathematicianbench",
        livemath,
        lambda seen: f"<answer>{letter(seen)}</answer>",
        lambda seen: f"<answer>{'A' if letter(seen) != 'A' else 'B'}</answer>",
    ),
}
"""By the name of the environment; each trains on 8 cases."""

AGENTS = {
    "docvqa": """
import hashlib
task = pathlib.Path("task.md").read_text()
assert "[picture: images/01.png]" in task
n = int(task.partition("invoice ")[2].partition("?")[0])
assert pathlib.Path("images/01.png").read_bytes()[:4] == b"\\x89PNG"
return f"<answer>{n * 37 + 100} dollars</answer>" if has_rule else "<answer>unreadable</answer>"
""",
    "livemathematicianbench": """
task = pathlib.Path("task.md").read_text()
from tests.envs.livemath_data import right_text
right = right_text(task)
letter = next(line[0] for line in task.splitlines() if line[1:] == f". {right}")
return f"<answer>{letter}</answer>" if has_rule else "<answer>none</answer>"
""",
}
"""What a stand-in for an agent CLI does, for the environments that the seed wires one for."""


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("KEPT_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("OPENAI_COMPATIBLE_API_KEY", "sk-very-secret-key")
    return tmp_path


@pytest.fixture(params=sorted(WORLDS))
def world(request: pytest.FixtureRequest) -> EnvWorld:
    return WORLDS[request.param]


@pytest.fixture
def server(world: EnvWorld) -> Iterator[ModelServer]:
    with ModelServer(world.answer) as made:
        yield made


def test_two_steps_of_training_keep_the_rule(world: EnvWorld, server: ModelServer, here: Path):
    called = train(world, here, server, "evaluation.gate=selection")
    check_trained(called, here)
    asked = [seen for seen in server.log if seen.model == STUDENT]
    assert any(RULE in seen.lines[0].text for seen in asked)


def test_a_race_keeps_the_rule(world: EnvWorld, server: ModelServer, here: Path):
    called = train(world, here, server, "evaluation.gate=race")
    assert called.code == 0, called.stderr
    assert json.loads((here / "out" / "config.json").read_text())["gate"] == "race"
    assert RULE in (here / "out" / "best_skill.md").read_text()


def test_a_skill_is_measured_on_all_cases(world: EnvWorld, server: ModelServer, here: Path):
    (here / "ruled.md").write_text(f"# Skill\n\n- {RULE}\n")
    told = evaluate(world, here, server)
    assert told["summary"]["passed"] == 0 < len(told["results"])
    told = evaluate(world, here, server, "env.skill_init=ruled.md")
    assert told["summary"]["passed"] == len(told["results"])


@pytest.mark.parametrize("name", sorted(AGENTS))
def test_an_agent_is_trained_as_a_student(name: str, here: Path, monkeypatch: pytest.MonkeyPatch):
    world = WORLDS[name]
    agent = put_agent(here / "programs", AGENTS[name], monkeypatch)
    with ModelServer(world.answer) as server:
        called = train(world, here, server, "evaluation.gate=selection", *agent)
        asked = {seen.model for seen in server.log}
    check_trained(called, here)
    assert STUDENT not in asked
