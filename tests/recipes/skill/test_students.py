"""Who a config makes the student: a chat model, or an agent CLI."""

from pathlib import Path

import pytest

from kept.errors import SetupError
from kept.evaluators.environments.alfworld import AlfWorld
from kept.evaluators.environments.chat_student import ChatRunner
from kept.evaluators.environments.coding_agent_student import WorkspaceRunner
from kept.evaluators.environments.officeqa import OfficeQa
from kept.evaluators.environments.qa import SearchQa
from kept.evaluators.environments.spreadsheetbench.environment import SpreadsheetBench
from kept.evaluators.environments.swebench.environment import SweBench
from kept.recipes.skill.environment import student_config, student_of
from kept.recipes.skill.read import SkillSpec
from kept.sandbox.capabilities import abilities
from tests.recipes.skill.skill_configs import sound_skill


def spec_of(folder: Path, *overrides: str) -> SkillSpec:
    path = folder / "skill.yaml"
    path.write_text("train: {batch_size: 2}\nenv: {name: searchqa}\n")
    return sound_skill(path, overrides, folder)


@pytest.fixture
def programs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Programs of the names of CLIs, which nobody runs."""
    folder = tmp_path / "programs"
    folder.mkdir()
    for name in ("codex", "claude", "my-codex", "my-claude"):
        (folder / name).write_text("#!/bin/sh\n")
        (folder / name).chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder}:/usr/bin:/bin")
    return folder


CODEX = ("model.student_backend=codex_exec", "model.student=gpt-5-codex")
OPEN = "model.codex_exec_sandbox=danger-full-access"


def test_a_chat_model_talks(tmp_path: Path):
    (tmp_path / "a.jsonl").write_text('"hello"\n')
    spec = spec_of(tmp_path, "model.target={provider: scripted, model: a.jsonl}")
    assert isinstance(student_of(spec, SearchQa()), ChatRunner)


def test_an_agent_works_with_the_program_that_is_named(tmp_path: Path, programs: Path):
    spec = spec_of(tmp_path, *CODEX, OPEN, "model.codex_exec_path=my-codex")
    runner = student_of(spec, SearchQa())
    assert isinstance(runner, WorkspaceRunner)
    harness = runner._harness
    assert harness.cli.program == "my-codex"
    target = harness._target()
    assert harness.cli.words(target, "")[:2] == ["my-codex", "exec"]
    view = harness.command.view
    assert view is not None
    assert (view.walls, view.bare) == (False, True)
    config = student_config(spec)
    assert config is not None
    assert (config.name, config.effort) == ("openai/gpt-5-codex", None)


def test_claude_works_with_the_program_that_is_named(tmp_path: Path, programs: Path):
    """Between walls, where there are any."""
    words = ("model.student_backend=claude_code_exec", "model.student=opus")
    spec = spec_of(tmp_path, *words, "model.claude_code_exec_path=my-claude")
    if not abilities().walls:
        with pytest.raises(SetupError, match="nothing holds them"):
            student_of(spec, SearchQa())
        return
    runner = student_of(spec, SearchQa())
    assert isinstance(runner, WorkspaceRunner)
    assert runner._harness.cli.program == "my-claude"


def test_full_auto_puts_walls_round_codex(tmp_path: Path, programs: Path):
    """As its short form of a sandbox means, whatever the sandbox is called."""
    spec = spec_of(tmp_path, *CODEX, OPEN, "model.codex_exec_full_auto=true")
    if not abilities().walls:
        with pytest.raises(SetupError, match="nothing holds them"):
            student_of(spec, SearchQa())
        return
    runner = student_of(spec, SearchQa())
    assert isinstance(runner, WorkspaceRunner)
    view = runner._harness.command.view
    assert view is not None and view.walls


def test_data_in_another_folder_is_hidden_from_an_agent(tmp_path: Path, programs: Path):
    """Its walls show it the rest of the machine, and answers lie in the data."""
    if not abilities().walls:
        pytest.skip("there are no walls")
    names = ("here", "rows", "books", "split", "one", "two")
    here, rows, books, split, one, two = (tmp_path / name for name in names)
    for folder in (here, rows, books, split, one, two):
        folder.mkdir()
    more = (*CODEX, f"env.data_path={rows}", f"env.split_dir={split}")
    spec = spec_of(here, *more)
    envs = (SpreadsheetBench(data_root=books), OfficeQa(data_dirs=(one, two, tmp_path / "none")))
    for env, places in zip(envs, ((books,), (one, two)), strict=True):
        runner = student_of(spec, env)
        assert isinstance(runner, WorkspaceRunner)
        view = runner._harness.command.view
        assert view is not None and {here, rows, split, *places} <= set(view.hidden)
        assert not any(programs.is_relative_to(path) for path in view.hidden)
    # a folder with the program in it stays, and what it has of data is hidden all the same
    spec = spec_of(tmp_path, *more)
    runner = student_of(spec, SpreadsheetBench(data_root=books))
    assert isinstance(runner, WorkspaceRunner)
    view = runner._harness.command.view
    assert view is not None and tmp_path not in view.hidden and {rows, books} <= set(view.hidden)


def test_how_long_codex_thinks_is_its_own_setting(tmp_path: Path):
    config = student_config(spec_of(tmp_path, *CODEX, "model.codex_exec_reasoning_effort=high"))
    assert config is not None
    assert config.effort == "high"


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("model.codex_exec_path=no-codex",), "there is no program `no-codex` on the PATH"),
        (("model.codex_exec_profile=mine",), "`codex_exec` cannot use the profile `mine`"),
        (("model.target=anthropic/claude-x",), "`codex_exec` cannot ask `anthropic/claude-x`"),
        (
            ("model.student_backend=claude_code_exec", "model.claude_code_exec_profile=mine"),
            "`claude_code_exec` cannot use the profile `mine`",
        ),
    ],
)
def test_an_agent_that_cannot_work_is_said_before_anything_is_spent(
    tmp_path: Path, programs: Path, words: tuple[str, ...], message: str
):
    given = CODEX[:1] if "target" in words[0] else CODEX
    with pytest.raises(SetupError) as error:
        student_of(spec_of(tmp_path, *given, OPEN, *words), SearchQa())
    assert message in str(error.value)


def test_an_agent_is_given_a_model(tmp_path: Path, programs: Path):
    with pytest.raises(SetupError, match="`codex_exec` is given no model"):
        student_of(spec_of(tmp_path, CODEX[0], OPEN), SearchQa())


def test_a_game_is_for_a_student_that_talks(tmp_path: Path, programs: Path):
    with pytest.raises(SetupError, match="is played turn by turn"):
        student_of(spec_of(tmp_path, *CODEX, OPEN), AlfWorld())


def test_a_repository_is_for_a_student_with_the_shell_of_its_environment(
    tmp_path: Path, programs: Path
):
    """The method wires no agent CLI for it either."""
    with pytest.raises(SetupError, match="in a shell that Kept keeps, which `codex_exec` cannot"):
        student_of(spec_of(tmp_path, *CODEX, OPEN), SweBench())
