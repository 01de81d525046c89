"""Every way to get the proposers of a task wrong, and what Kept says about it."""
# ruff: noqa: E501 # a row of a table reads better than it wraps

import json
from pathlib import Path

import pytest

from kept.errors import SpecError
from kept.recipes.task.compile import compile_task
from tests.recipes.task.tasks import TASK, write_task

OLD = '[{kind: variants, files: ["alternatives/*.md"]}]'
CONFIG = "model:\n  temperature: 0.5\ntop_k: 5\nmode: slow\nquoted: '1'\n"
AXIS = "{kind: numeric, axes: [{file: config.yaml, %s}]}"
PROMPT = "seed\n<!-- demos:start -->\n<!-- demos:end -->\n"


def write(folder: Path, proposer: str, more: str = "") -> Path:
    text = TASK.replace("[prompt.md]", "[prompt.md, config.yaml]").replace(OLD, f"[{proposer}]")
    path = write_task(folder, text + more)
    (folder / "config.yaml").write_text(CONFIG)
    (folder / "prompt.md").write_text(PROMPT)
    rows = [{"input": f"q{n}", "expected": f"a{n}"} for n in range(9)]
    (folder / "cases.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def problem(folder: Path, proposer: str, more: str = "") -> str:
    with pytest.raises(SpecError) as caught:
        compile_task(write(folder, proposer, more))
    (found,) = caught.value.problems
    return str(found).replace(f"{folder}/", "").removeprefix("task.yaml:5 proposers[0]")


@pytest.fixture(autouse=True)
def _elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


@pytest.mark.parametrize(
    ("axis", "said"),
    [
        ("path: top_k, range: [1, 9]", "axes[0]: a `range` needs a `type`: float or int"),
        ("path: top_k", "axes[0]: an axis has either a `range` or `choices`"),
        ("path: top_k, type: int, range: [1, 9], choices: [1, 5]", "axes[0]: an axis has either a `range` or `choices`"),
        ("path: top_k, type: int, range: [9, 1]", "axes[0]: `range` is empty: write the least value, then a greater one"),
        ("path: top_k, type: int, range: [1.5, 9]", "axes[0]: `type` is int, so `range` and `step` are whole numbers"),
        ("path: top_k, type: int, range: [0, 9], log: true", "axes[0]: `log` needs a `range` above 0"),
        ("path: top_k, type: int, range: [1, 9], log: true, step: 2", "axes[0]: `log` and `step` do not go together"),
        ("path: top_k, type: int, range: [1, 9], step: 10", "axes[0]: `step` is 10, which does not fit into the `range`"),
        ("path: top_k, type: whole, range: [1, 9]", "axes[0].type: the text `whole`, where `float` or `int` was expected"),
        ("path: top_k, type: int, range: [a, 9]", "axes[0].range[0]: the text `a`, where a number was expected"),
        ("path: top_k, type: int, range: [6, 9]", "axes[0].path: it is the number 5, which is no whole number from 6 to 9"),
        ("path: model.temperature, type: int, range: [0, 9]", "axes[0].path: it is the number 0.5, which is no whole number from 0 to 9"),
        ("path: quoted, type: int, range: [0, 9]", "axes[0].path: it is the text `1`, which is no whole number from 0 to 9"),
        ("path: mode, choices: [slow]", "axes[0]: `choices` leave nothing to choose: give two or more"),
        ("path: mode, choices: [slow, fast, slow]", "axes[0]: `slow` stands twice among the `choices`"),
        ("path: mode, choices: [slow, [fast]]", "axes[0].choices[1]: a choice is a text, a number, true or false"),
        ("path: mode, choices: [fast, faster]", "axes[0].path: it is the text `slow`, which is none of the `choices`"),
        ("path: mode, choices: [slow, fast], log: true", "axes[0]: `type`, `log` and `step` go with a `range`, not with `choices`"),
        ("path: model.temprature, type: float, range: [0, 1]", "axes[0].path: no key `temprature` in `model` of config.yaml, which has `temperature`"),
        ("path: model, type: float, range: [0, 1]", "axes[0].path: `model` of config.yaml is a mapping, not a value"),
        ("path: 'model[', type: float, range: [0, 1]", "axes[0].path: `model[` is no path (at `[`); write it as in `tools[name=x].top_k`"),
    ],
)  # fmt: skip
def test_a_broken_axis_is_named_with_what_is_wrong_about_it(axis: str, said: str, tmp_path: Path):
    assert problem(tmp_path, AXIS % axis) == f".{said}"


DEMOS = "{kind: demos, file: prompt.md, template: '{input} {expected}', %s}"
WITH_CASES = "cases: {file: cases.jsonl}\n"


@pytest.mark.parametrize(
    ("proposer", "more", "said"),
    [
        ("{kind: numeric, axes: []}", "", ".axes: empty, where at least one was expected"),
        ("{kind: numeric, axis: []}", "", None),
        ("{kind: numeric, axes: [{file: other.yaml, path: a, choices: [1, 2]}]}", "", ".axes[0].file: `other.yaml` is no artifact (hint: there are prompt.md, config.yaml)"),
        ("{kind: numeric, axes: [{file: config.yaml, path: mode, choices: [slow, fast]}, {file: config.yaml, path: mode, choices: [slow, x]}]}", "", ".axes[1].path: `mode` has two axes"),
        (AXIS % "path: mode, choices: [slow, fast]", "cases: {file: cases.jsonl, split: 0:1:1}", ": there is no train case to measure points on (hint: give train a share in `cases.split`)"),
        ("{kind: prune, files: ['*.txt']}", "", ".files[0]: `*.txt` matches no artifact (hint: there are prompt.md, config.yaml)"),
        ("{kind: prune, units: [word]}", "", ".units[0]: the text `word`, where `section`, `line` or `sentence` was expected"),
        (DEMOS % "count: [1, 2]", "", ": there are no train cases to show as examples (hint: give `cases`)"),
        (DEMOS % "count: [3, 2]", WITH_CASES, ": `count` is reversed: write the least number, then the greatest"),
        (DEMOS % "begin: '<!--'", WITH_CASES, ".file: `prompt.md` has not got `<!--` … `<!-- demos:end -->` just once (hint: put these two marks where examples are to stand)"),
        ("{kind: demos, file: x.md, template: '{input}'}", WITH_CASES, ".file: `x.md` is no artifact"),
        ("{kind: demos, file: prompt.md, template: '{output}'}", WITH_CASES, None),
        ("{kind: demos, file: prompt.md, template: '{input'}", WITH_CASES, None),
        ("{kind: demos, file: prompt.md, template: 'x'}", WITH_CASES, ".template: names no field of the case (hint: write it as in `{input}`)"),
        ("{kind: demos, file: prompt.md, template: '{input.__class__}'}", WITH_CASES, None),
        ("{kind: command, command: ls, cwd: gone}", "", ".cwd: there is no folder `gone`"),
        ("{kind: command, command: ls, network: yes}", "", None),
        ("{kind: variant, files: [x]}", "", None),
        ("{files: [x]}", "", ".kind: missing"),
    ],
)  # fmt: skip
def test_a_broken_proposer_is_named_with_what_is_wrong_about_it(
    proposer: str, more: str, said: str | None, tmp_path: Path
):
    if said is None:
        with pytest.raises(SpecError):
            compile_task(write(tmp_path, proposer, more))
    else:
        assert problem(tmp_path, proposer, more) == said


def test_a_broken_case_file_is_not_told_again_by_the_proposers(tmp_path: Path):
    path = write(tmp_path, DEMOS % "count: [1, 2]", "cases: {file: gone.jsonl}\n")
    with pytest.raises(SpecError) as caught:
        compile_task(path)
    assert [problem.path for problem in caught.value.problems] == ["cases.file"]


def test_proposers_of_every_kind_stand_side_by_side(tmp_path: Path):
    axis = AXIS % "path: 'top_k', type: int, range: [1, 9]"
    more = f"{axis}, {{kind: prune}}, {DEMOS % 'count: [0, 2]'}, {{kind: command, command: ls}}"
    path = write(tmp_path, f"{more}, {{kind: prune, files: [prompt.md]}}", WITH_CASES)
    plan = compile_task(path).plan
    names = [proposer.name for proposer in plan.proposers]
    assert names == ["numeric", "prune", "demos", "command", "prune-2"]
