from pathlib import Path

import pytest

from kept.errors import SetupError, SpecError
from kept.registry import compile_spec
from tests.spec.tasks import TASK, write_task


def test_a_task_is_found_by_its_file_or_its_folder(tmp_path: Path):
    path = write_task(tmp_path)
    by_file, by_folder = compile_spec(path).plan, compile_spec(tmp_path).plan
    assert by_file.facts == by_folder.facts
    assert by_file.recipe == "artifact"


def test_a_task_may_have_another_name(tmp_path: Path):
    path = write_task(tmp_path).rename(tmp_path / "short.yml")
    assert compile_spec(path).plan.facts["spec"] == str(path)


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

    code = "import sys, kept.registry; print({'pydantic', 'ruamel.yaml'} & sys.modules.keys())"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "set()"
