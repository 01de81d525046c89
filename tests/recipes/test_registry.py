import re
from pathlib import Path

import pytest

from kept.errors import SetupError, SpecError
from kept.recipes.registry import compile_spec, find_spec, recipe_of
from tests.recipes.task.tasks import TASK, write_task


def test_a_task_is_found_by_its_file_or_its_folder(tmp_path: Path):
    path = write_task(tmp_path)
    by_file, by_folder = compile_spec(path).plan, compile_spec(tmp_path).plan
    assert by_file.facts == by_folder.facts
    assert by_file.recipe == "task"


def test_a_task_may_have_another_name(tmp_path: Path):
    path = write_task(tmp_path).rename(tmp_path / "short.yml")
    assert compile_spec(path).plan.spec.path == str(path)


def test_overrides_reach_the_task(tmp_path: Path):
    assert compile_spec(write_task(tmp_path), ["workers=3"]).plan.workers == 3


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("gone.yaml", "there is no .*gone.yaml"),
        ("empty", "empty is not a task: there is no task.yaml in it"),
        ("notes.md", "notes.md is not a spec: it is no YAML file"),
        ("agent.yaml", "agent.yaml is not a task: it has none of `artifacts`, `runner`, `scorer`"),
    ],
)
def test_what_is_no_spec_is_refused_with_what_it_is_not(name: str, words: str, tmp_path: Path):
    (tmp_path / "empty").mkdir()
    (tmp_path / "notes.md").write_text("x")
    (tmp_path / "agent.yaml").write_text("model: small\nprompt: be kind\n")
    with pytest.raises(SetupError, match=words):
        compile_spec(tmp_path / name)


@pytest.mark.parametrize(
    ("name", "keys", "kind"),
    [
        ("task.yaml", "artifacts: {include: [a.md]}", "task"),
        ("agent.yaml", "name: a\nmodel: m\ninstructions: {inline: x}\n", "agent_config"),
        ("skill.yaml", "train: {num_epochs: 2}", "skill"),
        ("skill.yaml", "model: {}\nenv: {name: searchqa}", "skill"),
        ("suite.yaml", "tasks: []", "suite"),
        ("other.yaml", "prompts: [a]", None),
    ],
)
def test_a_spec_means_one_recipe_by_its_keys(
    name: str, keys: str, kind: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.chdir(tmp_path)
    Path(name).write_text(keys)
    recipe = recipe_of(Path(name))
    assert (recipe.name if recipe else None) == kind
    if kind:
        assert find_spec(Path()) == Path(name), "a folder with one is that one"


@pytest.mark.parametrize(
    ("given", "hint"),
    [
        ("score.py", "init --from score.py` makes one from what you have"),
        ("SKILL.md", "init --from SKILL.md` makes one from what you have"),
        ("cases.csv", "init --from cases.csv` makes one from what you have"),
        ("empty", "init` writes one"),
        ("odd", "name the file: mine.yml"),
        ("run", "it is the folder of a run: `.*resume run` goes on with that"),
    ],
)
def test_what_is_no_spec_comes_with_the_way_to_one(
    given: str, hint: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.chdir(tmp_path)
    for name in ("score.py", "SKILL.md", "cases.csv"):
        Path(name).touch()
    for name in ("empty", "odd", "run"):
        Path(name).mkdir()
    Path("odd/mine.yml").touch()
    Path("run/journal.jsonl").touch()
    with pytest.raises(SetupError) as caught:
        compile_spec(Path(given))
    assert re.search(hint, str(caught.value.hint))


def test_a_config_of_promptfoo_is_no_task_and_how_to_make_one_is_said(tmp_path: Path):
    path = tmp_path / "promptfooconfig.yaml"
    path.write_text("prompts: [a]\ntests: []\n")
    with pytest.raises(SetupError) as caught:
        compile_spec(path)
    assert f"init --from {path}" in str(caught.value.hint)


def test_a_task_with_a_mistake_is_still_a_task(tmp_path: Path):
    path = write_task(tmp_path, TASK.replace("artifacts", "artefacts").replace("scorer", "scorrer"))
    with pytest.raises(SpecError) as caught:
        compile_spec(path)
    assert len(caught.value.problems) == 4


def test_importing_the_registry_does_not_import_pydantic_or_yaml():
    import subprocess
    import sys

    code = "import sys, kept.recipes.registry\n"
    code += "print({'pydantic', 'ruamel.yaml'} & sys.modules.keys())"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "set()"
