"""What the commands of a task see, as the task says it."""

import asyncio
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest

from kept.core.artifact import Candidate
from kept.core.case import IMPLICIT_CASE
from kept.errors import SpecError
from kept.recipes.task import sandbox as task_sandbox
from kept.recipes.task.compile import compile_task
from kept.recipes.task.sandbox import Confinement
from kept.recipes.task.spec import TaskSpec
from kept.sandbox.capabilities import abilities
from kept.sandbox.cgroup import Parents
from kept.sandbox.command import Command, Limits
from kept.sandbox.workspace import Scratch
from kept.spec.paths import read_artifacts
from kept.spec.source import read_source
from kept.spec.validate import validate
from tests.recipes.task.tasks import TASK, write_task


def confined(folder: Path, sandbox: str = "{}", **commands: str) -> Confinement:
    text = TASK
    for name, command in commands.items():
        text = text.replace(f'{name}: {{command: "true"}}', f"{name}: {{{command}}}")
    path = write_task(folder, f"{text}sandbox: {sandbox}\n")
    (folder / ".kept").mkdir(exist_ok=True)
    source = read_source(path)
    task = validate(source, TaskSpec)
    source.check()
    assert task is not None
    return task_sandbox.confine(source, task, read_artifacts(source, task.artifacts.include, ()))


def hidden(made: Confinement) -> set[str]:
    tree = made.inside.tree
    return {str(path.relative_to(tree)) for path in made.inside.hidden if path.is_relative_to(tree)}


def write(folder: Path, *names: str) -> None:
    for name in names:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text("text\n")


def test_the_runner_does_not_see_what_the_scorer_is_made_of(tmp_path: Path):
    write(tmp_path, "scripts/score.py", "scripts/run.py", "tests/hidden/a.py", "lib/own.py")
    made = confined(
        tmp_path,
        runner="command: python scripts/run.py",
        scorer="command: python scripts/score.py --tests tests/hidden --own lib/own.py",
    )
    assert hidden(made) == {".kept", "scripts/score.py", "tests/hidden", "lib/own.py"}
    assert made.scorer(bare(tmp_path)).view == replace(made.inside, hidden=(tmp_path / ".kept",))


def test_no_command_reads_env_files_but_those_that_are_named(tmp_path: Path):
    names = (".env", ".env.test", "app/.env.local", "app/deep/er/.env", "shared/.envrc", "run.sh")
    write(tmp_path, *names, ".env-venv/pyvenv.cfg")
    made = confined(
        tmp_path,
        "{readable: [app]}",
        runner="command: sh run.sh .env.test",
        scorer="command: sh score.sh shared/.envrc",
    )
    assert hidden(made) == {".kept", ".env", "shared/.envrc"}, (
        "the runner sees none of the scorer's"
    )
    view = made.scorer(bare(tmp_path)).view
    assert view is not None
    assert set(view.hidden) == {tmp_path / ".kept", tmp_path / ".env"}


def test_env_files_deep_in_a_project_and_above_it_are_hidden(tmp_path: Path):
    deep = (".github/.env.ci", "apps/web/server/config/.env", "node_modules/a/.env", ".env")
    write(tmp_path, ".env", "beside/.env", *(f"project/{name}" for name in deep))
    hidden = set(confined(tmp_path / "project").inside.hidden)
    shown = {tmp_path / "beside/.env", tmp_path / "project/node_modules/a/.env"}
    found = {path for path in tmp_path.rglob(".env*") if path.is_file()}
    assert found - hidden == shown


@pytest.mark.sandbox
@pytest.mark.skipif(not abilities().walls, reason="no walls here")
def test_a_failure_names_the_hidden_file_that_a_command_could_not_read(tmp_path: Path):
    write(tmp_path, ".env", "cases.jsonl")
    made = confined(tmp_path)
    scratch = Scratch()

    async def said(line: str) -> str:
        with scratch.workspace(Candidate({}), IMPLICIT_CASE) as workspace:
            return str(await workspace.run(made.runner(replace(bare(tmp_path), line=line))))

    told = asyncio.run(said("cat .env"))
    scratch.close()
    assert told == (
        "exit 1: cat: .env: Permission denied (`.env` is hidden from this command; "
        "`sandbox.readable` of a task, or KEPT_READABLE, shows it)"
    )


def test_a_readable_path_that_is_not_there_is_a_problem(tmp_path: Path):
    with pytest.raises(SpecError, match=r"sandbox.readable\[0\]: there is no"):
        confined(tmp_path, "{readable: [gone]}")


def bare(folder: Path) -> Command:
    return Command("true", folder)


def test_words_of_a_command_are_looked_up_where_it_runs(tmp_path: Path):
    write(tmp_path, "scripts/score.py", "score.py")
    made = confined(tmp_path, scorer="command: python score.py, cwd: scripts")
    assert "scripts/score.py" in hidden(made)


def test_a_scorer_inside_another_command_is_hidden_too(tmp_path: Path):
    write(tmp_path, "score.py", "gold.json")
    made = confined(tmp_path, scorer="command: 'sh -c \"python score.py;true\" --gold=gold.json'")
    assert {"score.py", "gold.json"} <= hidden(made)


def test_what_the_runner_itself_needs_is_not_hidden(tmp_path: Path):
    write(tmp_path, "tool.py", "both/run.py", "both/score.py")
    made = confined(
        tmp_path,
        runner="command: python tool.py both/run.py",
        scorer="command: python tool.py both prompt.md",
    )
    assert hidden(made) == {".kept"}


def test_the_history_of_the_repository_is_hidden_wherever_it_begins(tmp_path: Path):
    (tmp_path / ".git").mkdir()
    folder = tmp_path / "tasks" / "one"
    folder.mkdir(parents=True)
    assert tmp_path / ".git" in confined(folder).inside.hidden


@pytest.mark.git
def test_the_history_that_a_worktree_refers_to_is_hidden_too(tmp_path: Path):
    main, tree = tmp_path / "main", tmp_path / "tree"
    main.mkdir()
    git = ("git", "-C", str(main), "-c", "user.name=a", "-c", "user.email=a@b")
    for words in (("init", "-q"), ("commit", "-q", "--allow-empty", "-m", "a")):
        subprocess.run((*git, *words), check=True)
    subprocess.run((*git, "worktree", "add", "-q", str(tree)), check=True, capture_output=True)
    wanted = {tree / ".git", main / ".git", main / ".git" / "worktrees" / "tree"}
    assert wanted <= set(confined(tree).inside.hidden)


def test_cases_and_what_the_spec_lists_are_hidden(tmp_path: Path):
    write(tmp_path, "gold/a.txt", "gold/b.txt", "notes.md")
    made = confined(tmp_path, "{hidden: [gold, '*.md']}")
    # prompt.md is the artifact
    assert hidden(made) == {".kept", "gold", "notes.md"}


def test_limits_and_variables_reach_the_command(tmp_path: Path):
    made = confined(
        tmp_path,
        "{cpu_seconds: 5, memory_mb: 100, file_mb: 3, tree_mb: 4, processes: 9, env: [A_KEY]}",
    )
    command = made.runner(bare(tmp_path))
    mib = 1024 * 1024
    assert command.limits == Limits(5, 100 * mib, 3 * mib, 4 * mib, 9)
    assert command.passed_on == ("A_KEY",)


@pytest.mark.parametrize(
    ("sandbox", "complaint"),
    [
        ("{walls: maybe}", "`auto`, `required` or `off` was expected"),
        ("{network: wifi}", "`none`, `loopback` or `on` was expected"),
        ("{netwrok: on}", "unknown key (hint: did you mean `network`?)"),
        ("{env: [2BE]}", "`2BE` is not the name of a variable"),
        ("{processes: 0}", "1 or more was expected"),
        ("{hidden: [../x]}", "`../x` leaves the folder"),
        ("{hidden: [nothing]}", "`nothing` matches nothing"),
        ("{writable: [nothing]}", "there is no `"),
    ],
)
def test_what_is_wrong_is_said(sandbox: str, complaint: str, tmp_path: Path):
    with pytest.raises(SpecError) as error:
        confined(tmp_path, sandbox)
    assert complaint in str(error.value)


def test_walls_that_are_required_and_cannot_be_had_stop_the_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    why_not = "no `bwrap` here"
    able = replace(abilities(), walls=False, overlay=False, groups=Parents(), why_not=why_not)
    monkeypatch.setattr(task_sandbox, "abilities", lambda: able)
    path = write_task(tmp_path, TASK.replace("maximize", "up") + "sandbox: {walls: required}\n")
    with pytest.raises(SpecError) as caught:
        compile_task(path)
    direction, walls = caught.value.problems
    assert direction.path == "objective.direction", "it is told beside all other problems"
    assert (walls.path, walls.where.rpartition(":")[2]) == ("sandbox.walls", "7")
    assert "bwrap does not work here: no `bwrap` here" in walls.message
    assert confined(tmp_path).warnings() == ("commands are not sandboxed: no `bwrap` here",)
    assert confined(tmp_path, "{walls: 'off'}").warnings() == ()
    assert "network" in str(confined(tmp_path).facts()["not_enforced"])


def test_mode_bits_of_artifacts_are_those_of_their_sources(tmp_path: Path):
    path = write_task(tmp_path)
    (tmp_path / "prompt.md").chmod(0o750)
    assert task_sandbox.modes(tmp_path, {"prompt.md": ""}) == {"prompt.md": 0o750}
    assert compile_task(path).plan.spec.sandbox


def test_off_in_yaml_is_a_word(tmp_path: Path):
    assert not confined(tmp_path, "{walls: off}").inside.walls
    assert confined(tmp_path, "{network: on}").inside.network == "on"
