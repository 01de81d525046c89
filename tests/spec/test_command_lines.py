"""A script that is not there is reported, and nothing else is."""

from pathlib import Path

import pytest

from kept.errors import SpecError
from kept.recipes.task.compile import compile_task
from kept.spec.command_lines import program_of, started_by
from tests.recipes.task.tasks import TASK, write_task


@pytest.mark.parametrize(
    ("line", "found"),
    [
        ("python run.py", ["run.py"]),
        ("python3.12 -u scripts/run.py --fast", ["scripts/run.py"]),
        ("python -W error -X dev run.py", ["run.py"]),
        ("LANG=C MODE='a b' python run.py", ["run.py"]),
        ("/usr/bin/python3 run.py > $KEPT_OUTPUT/x", ["run.py"]),
        ("python 'my run.py' a b", ["my run.py"]),
        ("python run.py && python made.py", ["run.py"]),
        ("python \\\n  run.py", ["run.py"]),
        ("python run.py\npython made.py", ["run.py"]),
        ("sh -eu ./run.sh", ["./run.sh"]),
        ("bash no-such-script-anywhere", ["no-such-script-anywhere"]),
        ("node tool.js", ["tool.js"]),
        ("./run.sh x", ["./run.sh"]),
        (".venv/bin/python run.py", [".venv/bin/python", "run.py"]),
        ("python run.py | tee x", ["run.py"]),
        ("", []),
        ("true", []),
        ("python", []),
        ("python -m tool run.py", []),
        ("python -c 'print(1)' run.py", []),
        ("python - < run.py", []),
        ("python < run.py", []),
        ("python $KEPT_CANDIDATE/run.py", []),
        ("python `ls *.py`", []),
        ("python run_*.py", []),
        ("python ~/run.py", []),
        ("python /opt/run.py", []),
        ("/opt/run.sh", []),
        ("python --unknown run.py", []),
        ("node --loader x tool.js", []),
        ("bash -c 'python run.py'", []),
        ("sh ls", []),
        ("cd sub && python run.py", []),
        ("cp a.py b.py; python b.py", []),
        ("cat > made.py <<E\nprint(1)\nE\npython made.py", []),
        ("if true; then python run.py; fi", []),
        ("(python run.py)", []),
        ("uv run run.py", []),
        ("grep -q x run.py", []),
        ("$PYTHON run.py", []),
        ('python "run.py', []),
        ("# python run.py", []),
    ],
)
def test_only_what_a_command_plainly_starts_is_looked_for(line: str, found: list[str]):
    assert list(started_by(line)) == found


def problems(folder: Path, text: str) -> list[str]:
    path = write_task(folder, text)
    try:
        compile_task(path)
    except SpecError as error:
        return [str(problem).replace(f"{folder}/", "") for problem in error.problems]
    return []


RUNNER = TASK.replace('runner: {command: "true"}', "runner: {command: python run.py}")


def test_lost_scripts_of_runner_scorer_and_proposer_are_told_beside_all_other_problems(
    tmp_path: Path,
):
    (tmp_path / "scorer.py").write_text("")
    text = RUNNER.replace("maximize", "maximise")
    text = text.replace('scorer: {command: "true"}', "scorer: {command: python score.py}")
    text = text.partition("proposers:")[0] + "proposers: [{kind: command, command: ./edit.sh}]\n"
    found = problems(tmp_path, text + "budget: {max_iterations: 2}\n")
    here = "(hint: the command runs in the task's folder)"
    assert f"task.yaml:2 runner.command: there is no file `run.py` {here}" in found
    near = "(hint: did you mean `scorer.py`?)"
    assert f"task.yaml:3 scorer.command: there is no file `score.py` {near}" in found
    assert any("objective.direction" in one for one in found)
    assert f"task.yaml:5 proposers[0].command: there is no file `./edit.sh` {here}" in found
    assert len(found) == 4


def test_a_script_is_looked_for_where_its_command_runs(tmp_path: Path):
    (tmp_path / "sub").mkdir()
    (tmp_path / "sub" / "run.py").write_text("")
    assert len(problems(tmp_path, RUNNER)) == 1
    inside = RUNNER.replace("run.py}", "run.py, cwd: sub}")
    assert problems(tmp_path, inside) == []
    (tmp_path / "sub" / "run.py").rename(tmp_path / "run.py")
    (found,) = problems(tmp_path, inside)
    assert found.endswith("there is no file `run.py` (hint: the command runs in `sub`)")
    (lost,) = problems(tmp_path, RUNNER.replace("run.py}", "run.py, cwd: gone}"))
    assert "there is no folder `gone`" in lost


def test_a_part_of_a_composite_scorer_is_looked_at_too(tmp_path: Path):
    scorer = "scorer: {type: composite, parts: [{name: a, scorer: {command: sh a.sh}}]}"
    (found,) = problems(tmp_path, TASK.replace('scorer: {command: "true"}', scorer))
    assert "scorer.parts[0].scorer.command: there is no file `a.sh`" in found


@pytest.mark.parametrize(
    ("line", "found"),
    [
        ("codex exec -", "codex"),
        ("LANG=C 'my tool' x | tee y", "my tool"),
        ("cat > made.py <<E\nprint(1)\nE\npython made.py", "cat"),
        ("", None),
        ("./run.sh", None),
        ("/opt/tool x", None),
        ("$TOOL x", None),
        ("cd sub && tool", None),
        ("if true; then tool; fi", None),
        ("[ -f x ] && tool", None),
        ("{ tool; }", None),
        ("(tool)", None),
        ("PATH=/opt/bin:$PATH tool", None),
        ("run() { python run.py; }; run", None),
        ("exec tool", None),
    ],
)
def test_only_a_name_that_the_shell_would_look_up_is_a_program(line: str, found: str | None):
    assert program_of(line) == found


def test_programs_that_are_not_on_the_path_are_told_with_their_lines(tmp_path: Path):
    text = TASK.replace('runner: {command: "true"}', "runner: {command: no-such-runner --fast}")
    text = text.replace('scorer: {command: "true"}', "scorer: {command: no-such-scorer}")
    hint = "(hint: install it, or write the path to it)"
    assert problems(tmp_path, text) == [
        f"task.yaml:2 runner.command: there is no program `no-such-runner` on the PATH {hint}",
        f"task.yaml:3 scorer.command: there is no program `no-such-scorer` on the PATH {hint}",
    ]


def test_a_program_is_looked_for_along_the_path_that_the_task_gives(tmp_path: Path):
    tool = tmp_path / "tools" / "mine"
    tool.parent.mkdir()
    tool.write_text("#!/bin/sh\n")
    tool.chmod(0o755)
    text = TASK.replace('runner: {command: "true"}', "runner: {command: mine}")
    (found,) = problems(tmp_path, text)
    assert "there is no program `mine`" in found
    given = text.replace("mine}", f"mine, env: {{PATH: {tool.parent}}}}}")
    assert problems(tmp_path, given) == []
