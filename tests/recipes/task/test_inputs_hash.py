"""The files that a measure is made of: a resume refuses when one of them is another by now."""

from collections.abc import Mapping
from pathlib import Path

import pytest

from kept.recipes.task.compile import compile_task
from kept.recipes.task.inputs import MAX_FILES
from kept.recipes.task.make_coding_agent import MAX_BYTES, digest
from tests.recipes.task.tasks import TASK, write_task

NOTHING: set[str] = set()


def files(folder: Path, runner: str = "true", scorer: str = "command: 'true'") -> set[str]:
    """The names of the files that a task with such commands is measured by."""
    text = TASK.replace('runner: {command: "true"}', f"runner: {{command: '{runner}'}}")
    text = text.replace('scorer: {command: "true"}', f"scorer: {{{scorer}}}")
    path = folder / "task.yaml"
    if not path.exists():
        write_task(folder)
    path.write_text(text)
    inputs = compile_task(path).plan.inputs
    return {name.strip("`") for name in inputs if "`" in name} - {"alternatives/a.md"}


def write(folder: Path, texts: Mapping[str, str]) -> None:
    for name, text in texts.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)


@pytest.mark.parametrize(
    "line",
    [
        "python score.py",
        "python ./score.py --fast",
        "cat x; python score.py|tee y",
        'sh -c "cd . && python score.py"',
        "python -m score",
        "env GRADER=score.py run",
        "cat <score.py",
    ],
)
def test_what_a_command_names_is_part_of_the_measure(line: str, tmp_path: Path):
    write(tmp_path, {"score.py": "print(1)\n", "other.py": "print(2)\n"})
    assert files(tmp_path, runner=line) == {"score.py"}


@pytest.mark.parametrize(
    ("line", "found"),
    [
        ("python -m pkg.score", {"pkg/__init__.py", "pkg/score.py", "pkg/near.py"}),
        ("python -mpkg.score", {"pkg/__init__.py", "pkg/score.py", "pkg/near.py"}),
        (
            'sh -c "python3 -m pkg.sub.deep"',
            {"pkg/__init__.py", "pkg/sub/__init__.py", "pkg/sub/deep.py"},
        ),
        ("python -m pkg.sub", {"pkg/__init__.py", "pkg/sub/__init__.py", "pkg/sub/__main__.py"}),
        ("sh run.sh", {"run.sh", "pkg/__init__.py", "pkg/near.py"}),
        ("pytest checks.py::test_x", {"checks.py"}),
        # words that are no files and no modules, although there is such a module
        ("true", NOTHING),
        ("true; echo pkg.near", NOTHING),
    ],
)
def test_a_module_is_named_with_the_packages_it_is_in(line: str, found: set[str], tmp_path: Path):
    texts = {
        "pkg/__init__.py": "",
        "pkg/score.py": "from . import near\n",
        "pkg/near.py": "",
        "pkg/sub/__init__.py": "",
        "pkg/sub/__main__.py": "",
        "pkg/sub/deep.py": "",
        "run.sh": "exec python -m pkg.near\n",
        "checks.py": "",
        "true.py": "",
        "echo.py": "",
    }
    write(tmp_path, texts)
    assert files(tmp_path, runner=line) == found


@pytest.mark.parametrize(
    ("script", "found"),
    [
        ("#!/usr/bin/env python3\nimport near\n", {"tool", "near.py"}),
        ("#!/usr/bin/python -u\nimport near\n", {"tool", "near.py"}),
        ("import near\n", {"tool", "near.py"}),
        ("#!/bin/sh\nset -e\npython near.py\n", {"tool", "near.py"}),
        ("set -e\nif true; then python near.py; fi\n", {"tool", "near.py"}),
        # of other languages we know nothing
        ("#!/usr/bin/perl\nimport near;\n", {"tool"}),
        ("\0ELF import near\n", {"tool"}),
    ],
)
def test_a_script_without_a_suffix_leads_to_what_it_names(
    script: str, found: set[str], tmp_path: Path
):
    write(tmp_path, {"tool": script, "near.py": ""})
    assert files(tmp_path, runner="./tool") == found


def test_words_are_looked_up_where_the_command_runs(tmp_path: Path):
    write(tmp_path, {"lib/score.py": "print(1)\n"})
    assert files(tmp_path, scorer="command: python score.py, cwd: lib") == {"lib/score.py"}


def test_a_python_scorer_is_its_module_and_what_that_imports(tmp_path: Path):
    texts = {
        "grade.py": "import json, helper\nfrom pack.deep.own import x\n\ndef f(candidate): ...\n",
        "helper.py": "import grade\n",
        "pack/__init__.py": "",
        "pack/deep/__init__.py": "",
        "pack/deep/own.py": "from . import near\nfrom .. import top\nx = 1\n",
        "pack/deep/near.py": "",
        "pack/top.py": "'\\d'\n",
        "idle.py": "",
    }
    write(tmp_path, texts)
    found = files(tmp_path, scorer="type: python, function: 'grade:f'")
    assert found == texts.keys() - {"idle.py"}


def warnings(folder: Path, runner: str, more: str = "") -> tuple[str, ...]:
    text = TASK.replace('runner: {command: "true"}', f"runner: {{command: '{runner}'}}")
    text = text.replace('scorer: {command: "true"}', "scorer: {command: python score.py}")
    return compile_task(write_task(folder, text + more)).warnings


def test_what_the_runner_can_read_of_the_scorer_is_warned_of(tmp_path: Path):
    write(tmp_path, {"score.py": "import gold, common\n", "gold.py": "", "common.py": ""})
    write(tmp_path, {"run.py": "import common\n"})
    told = "the runner can read what the scorer uses: {}; list it in `sandbox.hidden`"
    assert warnings(tmp_path, "python run.py") == (told.format("`gold.py`"),)
    assert warnings(tmp_path, "true") == (told.format("`common.py`, `gold.py`"),)
    assert warnings(tmp_path, "python run.py", "sandbox: {hidden: [gold.py]}\n") == ()
    # whoever names it in the runner's command means it to be seen
    assert warnings(tmp_path, "python run.py gold.py") == ()


def test_a_shell_script_leads_to_what_it_runs(tmp_path: Path):
    script = 'set -e\npython work.py "$1"\nls folder\n'
    write(tmp_path, {"run.sh": script, "work.py": "import near\n", "near.py": "print("})
    # words that are no file names, even where there is such a file
    write(tmp_path, {"folder/made.txt": "", "set": ""})
    assert files(tmp_path, runner="sh run.sh") == {"run.sh", "work.py", "near.py"}


def test_a_folder_counts_with_all_that_somebody_wrote_in_it(tmp_path: Path):
    texts = {"checks/a.txt": "", "checks/deep/b.txt": "", "checks/__pycache__/c.pyc": ""}
    write(tmp_path, texts)
    found = files(tmp_path, scorer="command: pytest checks")
    assert found == {"checks/a.txt", "checks/deep/b.txt"}


def test_a_folder_of_data_is_not_looked_into(tmp_path: Path):
    (tmp_path / "data").mkdir()
    for number in range(MAX_FILES + 1):
        (tmp_path / "data" / str(number)).touch()
    assert files(tmp_path, runner="ls data") == set()


def test_outside_the_folder_only_what_somebody_wrote_counts(tmp_path: Path):
    write(tmp_path, {"score.py": "print(1)\n"})
    (tmp_path / "tool").write_bytes(b"\x7fELF\0\0")
    (tmp_path / "task" / "bin").mkdir(parents=True)
    (tmp_path / "task" / "bin" / "tool").symlink_to(tmp_path / "tool")
    line = "bin/tool ../score.py /proc/cpuinfo /dev/null .. /"
    assert files(tmp_path / "task", runner=line) == {str(tmp_path / "score.py")}


def test_what_a_run_may_write_or_compares_by_meaning_is_left_out(tmp_path: Path):
    write(tmp_path, {"count.txt": "0", "run.py": "", "results.jsonl": ""})
    path = write_task(tmp_path)
    line = "python run.py prompt.md count.txt task.yaml results.jsonl alternatives"
    text = TASK.replace('runner: {command: "true"}', f"runner: {{command: {line}}}")
    path.write_text(
        f"{text}sandbox: {{writable: [count.txt]}}\nlogging: {{results_file: results.jsonl}}\n"
    )
    inputs = compile_task(path).plan.inputs
    assert {name for name in inputs if "`" in name} == {"`run.py`", "`alternatives/a.md`"}


def test_a_large_file_is_known_by_its_size(tmp_path: Path):
    path = tmp_path / "model.bin"
    with path.open("wb") as file:
        file.truncate(MAX_BYTES + 1)
    before = digest(path)
    with path.open("ab") as file:
        file.write(b"x")
    assert digest(path) != before
    assert digest(tmp_path / "none").startswith("unreadable")
