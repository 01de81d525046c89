"""What a skill is refused for: each answer that a case accepts is guarded by itself."""

import json
from pathlib import Path

import pytest

from kept.core.artifact import Candidate
from kept.envs.chatting import ChatRunner
from kept.envs.contract import Environment
from kept.envs.jsonl import Jsonl
from kept.envs.opened import SKILL, About
from kept.envs.opening import opened
from kept.envs.searchqa import SearchQa
from kept.envs.settings import EnvSettings
from kept.envs.splitting import part
from kept.recipes.skill.guards import guards_of
from kept.testing import ScriptedModel

ANSWERS = ["Rabindranath Tagore", "Gurudev", "The Bard\nof Bengal"]


def refused(folder: Path, env: Environment, text: str) -> list[str]:
    field = "answers" if isinstance(env, SearchQa) else "answer"
    rows = [{"id": f"q{n}", "question": f"Which poet {n}?", field: [f"Poet{n}"]} for n in range(5)]
    rows.append({"id": "tagore", "question": "Who wrote Gitanjali?", field: ANSWERS})
    (folder / "raw.json").write_text(json.dumps(rows), encoding="utf-8")
    settings = EnvSettings(name=env.name, folder=folder, data_path="raw.json")
    student = ChatRunner(env, ScriptedModel([]))
    made = opened(env, settings, part(env, settings), lambda _: student)
    seed = Candidate({SKILL: "# Skill\n"})
    changed = Candidate({SKILL: f"# Skill\n\n- {text}\n"})
    return [told for guard in guards_of(made) if (told := guard.check(seed, seed, changed))]


@pytest.mark.parametrize("env", [SearchQa(), Jsonl()], ids=["searchqa", "jsonl"])
@pytest.mark.parametrize(
    "text", ["say Rabindranath Tagore for poems", "Gurudev is right", "think of the bard of Bengal"]
)
def test_each_of_several_accepted_answers_is_refused_by_itself(
    tmp_path: Path, env: Environment, text: str
):
    (told,) = refused(tmp_path, env, text)
    assert told == "SKILL.md:3 holds the answer of the case `tagore`"
    assert not refused(tmp_path, env, "name the poet in full")


def test_an_environment_that_only_tells_a_reference_is_guarded_line_by_line():
    assert About("task", reference="first\n\n second ").golds == ("first", "second")
    assert About("task", reference="a | b", golds=("a", "b")).golds == ("a", "b")
