"""Whose words the teacher is told: the user's, else the environment's, else Kept's own."""

from collections.abc import Mapping
from pathlib import Path

import pytest

from kept.errors import SpecError
from kept.models.prompts import SKILLS, prompt
from kept.models.providers import ModelConfig
from kept.recipes.skill.compile import Asked, plan_of
from kept.recipes.skill.proposers.step import StepProposer
from kept.recipes.skill.proposers.teacher import Prompts
from kept.testing import ScriptedModel
from tests.recipes.skill import world
from tests.recipes.skill.skill_configs import sound_skill

TEACHER = Asked(ScriptedModel(()), ModelConfig(provider="scripted", model="none"))


def prompts_of(folder: Path, env: Mapping[str, str], **files: str) -> Prompts:
    """What a plan is told by, of a config with a folder of prompts."""
    config = world.write_config(folder, "http://127.0.0.1:9")
    (folder / "mine").mkdir()
    for name, text in files.items():
        (folder / "mine" / f"{name}.md").write_text(text)
    config.write_text(config.read_text() + "prompts: mine\n")
    spec = sound_skill(config, (), folder)
    plan = plan_of(spec, world.opened(ScriptedModel(()), prompts=env), (), "", TEACHER).plan
    (step,) = (one for one in plan.proposers if isinstance(one, StepProposer))
    return step.teacher.prompts


def test_every_prompt_is_a_file_that_one_of_the_users_stands_for(tmp_path: Path):
    env = {"analyst_error": "ENV", "analyst_success_rewrite": "ENV", "ranking": "ENV"}
    found = prompts_of(tmp_path, env, ranking="MINE\n", merge_final_rewrite="MINE")
    assert found.find("ranking") == found.find("ranking", "_rewrite") == "MINE"
    assert found.find("analyst_error", "_full_rewrite") == "ENV", "before a generic one"
    assert found.find("analyst_success", "_rewrite") == "ENV"
    assert found.find("analyst_success") == prompt("analyst_success").strip()
    assert found.find("merge_final", "_rewrite") == "MINE", "of which Kept has none itself"
    assert found.find("merge_final") == prompt("merge_final").strip()
    own = prompts_of(tmp_path / "all", {}, **{name: f"MY {name}" for name in SKILLS})
    assert [own.find(name) for name in SKILLS] == [f"MY {name}" for name in SKILLS]


@pytest.mark.parametrize(
    ("env", "file", "told"),
    [
        ({}, "rankin", "prompts: `rankin` is no prompt of skill training (hint: did you mean"),
        ({}, "ranking_full_rewrite", "`ranking_full_rewrite` is no prompt"),
        ({}, "consolidate_rewrite", "`consolidate_rewrite` is no prompt"),
        ({"analyst_eror": "x"}, "ranking", "env.name: `analyst_eror` is no prompt"),
    ],
)
def test_a_prompt_that_nobody_asks_for_is_refused(
    tmp_path: Path, env: Mapping[str, str], file: str, told: str
):
    """One of an environment with a slip in its name was left unread in silence."""
    with pytest.raises(SpecError) as error:
        prompts_of(tmp_path, env, **{file: "x"})
    assert told in str(error.value)
