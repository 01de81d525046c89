"""Every way to get a suite wrong, and what Kept says about it."""
# ruff: noqa: E501 # a row of a table reads better than it wraps

from pathlib import Path
from typing import cast

import pytest

from kept.errors import SetupError, SpecError
from kept.models.prompts import ARTIFACTS
from kept.recipes.suite.compile import compile_suite, spec_of
from kept.recipes.suite.recipe import RECIPE
from kept.recipes.suite.spec import read_suite
from kept.spec.source import read_source

SUITE = """\
name: reports
tasks:
  - name: may
    task: Write a report
  - {name: june, task: Write another, inputs: [june.csv]}
run: {walls: off, models: {manager: scripted/m.jsonl}}
optimizer: scripted/m.jsonl
"""
KNOWN = "name, description, tasks, baseline_artifacts, run, optimizer, prompt, epochs, gate, race, step, split, workers, random_seed, budget"


@pytest.fixture(autouse=True)
def _elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("KEPT_HOME", raising=False)
    monkeypatch.delenv("KEPT_ARTIFACTS", raising=False)
    monkeypatch.delenv("KEPT_MODEL", raising=False)


def write(folder: Path, text: str) -> Path:
    for name in ("june.csv", "m.jsonl"):
        (folder / name).write_text("\n")
    path = folder / "suite.yaml"
    path.write_text(text)
    return path


def problems(folder: Path, text: str, *overrides: str) -> list[str]:
    with pytest.raises(SpecError) as caught:
        compile_suite(write(folder, text), overrides)
    return [str(one).replace(f"{folder}/", "") for one in caught.value.problems]


@pytest.mark.parametrize(
    ("line", "by", "said"),
    [
        ("name: reports\n", "", "suite.yaml:1 name: missing"),
        ("name: reports\n", "name: reports\nepoch: 3\n", "suite.yaml:2 epoch: unknown key (hint: did you mean `epochs`?)"),
        ("name: reports\n", "name: reports\nlr: 3\n", f"suite.yaml:2 lr: unknown key (hint: known keys: {KNOWN})"),
        ("name: reports\n", "name: reports\nepochs: 0\n", "suite.yaml:2 epochs: the number 0, where 1 or more was expected"),
        ("name: reports\n", "name: reports\nstep: 1.5\n", "suite.yaml:2 step: the number 1.5, where 1 or less was expected"),
        ("name: reports\n", "name: reports\ngate: strict\n", "suite.yaml:2 gate: the text `strict`, where `race` or `rollback` was expected"),
        ("name: reports\n", "name: reports\ngate: rollback\nrace: careful\n", "suite.yaml:1 `race` goes with `gate: race`"),
        ("name: reports\n", "name: reports\nsplit: '3:5'\n", "suite.yaml:2 split: `3:5` is not a split; write train:holdout:test, as in 3:5:2"),
        ("name: reports\n", "name: reports\nsplit: '0:1:0'\n", "suite.yaml:2 split: there is no task to learn from"),
        ("name: reports\n", "name: reports\nsplit: '1:0:0'\n", "suite.yaml:2 split: there is no task to decide by"),
        ("name: reports\n", "name: reports\nbaseline_artifacts: {rubric: 0}\n", "suite.yaml:2 baseline_artifacts.rubric: `rubric` is no prompt artifact (hint: there are {})".replace("{}", ", ".join(ARTIFACTS))),
        ("name: reports\n", "name: reports\nbaseline_artifacts: {critique_rubrik: 0}\n", "suite.yaml:2 baseline_artifacts.critique_rubrik: `critique_rubrik` is no prompt artifact (hint: did you mean `critique_rubric`?)"),
        ("name: reports\n", "name: reports\nbaseline_artifacts: {critique_rubric: 4}\n", "suite.yaml:2 baseline_artifacts.critique_rubric: `critique_rubric` has no version 4 (hint: there are 0)"),
        ("name: reports\n", "name: reports\nbaseline_artifacts: {critique_rubric: -1}\n", "suite.yaml:2 baseline_artifacts.critique_rubric: the number -1, where 0 or more was expected"),
        ("    task: Write a report\n", "", "suite.yaml:3 tasks[0].task: missing"),
        ("name: may\n", "name: june\n", "suite.yaml:5 tasks[1].name: another task is named `june`, in line 3"),
        ("[june.csv]", "[june.tsv]", "suite.yaml:5 tasks[1].inputs: there is no input `june.tsv`"),
        ("[june.csv]", "june.csv", "suite.yaml:5 tasks[1].inputs: the text `june.csv`, where a list was expected"),
        ("[june.csv]", "[june.csv], workflow: w.yaml", "suite.yaml:5 tasks[1]: `workflow` is not run here: a task is done by a manager and workers of Kept"),
        ("[june.csv]", "[june.csv], split: dev", "suite.yaml:5 tasks[1].split: the text `dev`, where `train`, `holdout` or `test` was expected"),
        ("inputs: [june.csv]}", "split: test}\ngate: rollback", "suite.yaml:5 tasks[1].split: test tasks are looked at by `gate: race` alone"),
        ("inputs: [june.csv]}", "split: train}\nsplit: '1:1:0'", "suite.yaml:5 tasks[1].split: there is a `split` of the whole suite: give one of them"),
        ("[june.csv]", "[june.csv], budget: {max_loop: 3}", "suite.yaml:5 tasks[1].budget.max_loop: unknown key (hint: did you mean `max_loops`?)"),
        ("[june.csv]", "[june.csv], budget: {max_workers: 3, max_total_workers: 3}", "suite.yaml:5 tasks[1].budget: `max_total_workers` and `max_workers` are the same: give one of them"),
        ("[june.csv]", "[june.csv], weights: {eval: -1}", "suite.yaml:5 tasks[1].weights.eval: the number -1, where 0 or more was expected"),
        ("[june.csv]", "[june.csv], weights: {status: 1, terminal: 1}", "suite.yaml:5 tasks[1].weights: `status` and `terminal` are the same: give one of them"),
        ("walls: off", "walls: none", "suite.yaml:6 run.walls: the text `none`, where `required` or `off` was expected"),
        ("walls: off", "prompts: mine", "suite.yaml:6 run.prompts: there is no folder `mine` (hint: `kept prompts copy mine manager worker critic` makes one)"),
        ("optimizer: scripted/m.jsonl", "optimizer: scripted/m.jsonl\nprompt: gone.md", "suite.yaml:8 prompt: cannot read `gone.md`: No such file or directory"),
        ("optimizer: scripted/m.jsonl", "optimizer: scripted/m.jsonl\nprompt: m.jsonl", "suite.yaml:8 prompt: `m.jsonl` is empty (hint: `kept prompts show update` prints Kept's own; delete the file to have that)"),
        ("optimizer: scripted/m.jsonl", "optimizer: gpt", "suite.yaml:7 optimizer: `gpt` is not a model; write provider/model, as in openai/gpt-5-mini"),
    ],
)  # fmt: skip
def test_what_is_wrong_is_told_with_its_line(tmp_path: Path, line: str, by: str, said: str):
    assert line in SUITE
    assert problems(tmp_path, SUITE.replace(line, by, 1)) == [said]


def test_all_problems_are_told_at_once(tmp_path: Path):
    text = SUITE.replace("june.csv", "gone.csv").replace("walls: off", "walls: none")
    found = problems(tmp_path, f"{text}baseline_artifacts: {{rubric: 0}}\nepoch: 3\n")
    assert [one.split(" ")[1] for one in found] == [
        "tasks[1].inputs:",
        "run.walls:",
        "baseline_artifacts.rubric:",
        "epoch:",
    ]


def test_a_file_cannot_stand_for_what_is_to_be_improved(tmp_path: Path):
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "critique_rubric.md").write_text("Be kind.\n")
    (said,) = problems(tmp_path, SUITE.replace("walls: off", "walls: off, prompts: mine"))
    assert "`critique_rubric.md` would stand for what is to be improved" in said


def test_a_suite_without_a_model_says_so(tmp_path: Path):
    text = SUITE.replace("optimizer: scripted/m.jsonl\n", "")
    with pytest.raises(SetupError, match="no model is named to propose updates"):
        compile_suite(write(tmp_path, text))
    text = SUITE.replace(", models: {manager: scripted/m.jsonl}", "")
    with pytest.raises(SetupError, match="no model is named for the manager"):
        compile_suite(write(tmp_path, text))


THEIRS = """\
name: write-ups
description: |
  As the source of the loop spells it.
baseline_artifacts: {worker_pitfalls: 0, critique_rubric: 0}
tasks:
  - name: outline
    task: |
      Make an outline.
    budget: {max_loops: 8, max_total_workers: 4, max_total_tokens: 500000, max_wall_time: 900}
    weights: {eval: 0.45, critique: 0.3, gate_rejections: 0.1, budget: 0.05, status: 0.1}
    extra: {owner: nobody}
"""


def test_a_suite_of_the_source_is_read_as_it_stands(tmp_path: Path):
    read = read_suite(write(tmp_path, THEIRS))
    (task,) = read.spec.tasks
    budget = spec_of(read, task).budget
    assert (budget.max_loops, budget.max_workers, budget.max_tokens) == (8, 4, 500_000)
    assert budget.max_minutes == 15
    weights = {"eval": 0.45, "critique": 0.3, "gate_reject": 0.1, "budget_burn": 0.05}
    assert task.weights.told() == {**weights, "terminal": 0.1}
    assert read.shared and read.cases.train == read.cases.holdout


def test_a_large_suite_is_split_and_a_small_one_is_not(tmp_path: Path):
    rows = "".join(f"  - {{name: t{n}, task: Do {n}}}\n" for n in range(20))
    read = read_suite(write(tmp_path, f"name: many\ntasks:\n{rows}"))
    assert not read.shared
    assert [len(read.cases.of(s)) for s in ("train", "holdout", "test")] == [6, 10, 4]
    ids = [case.id for s in ("train", "holdout", "test") for case in read.cases.of(s)]  # pyright: ignore[reportArgumentType] # a literal each
    assert len(set(ids)) == 20


def test_a_large_suite_races_and_proves_for_other_tasks(tmp_path: Path):
    rows = "".join(f"  - {{name: t{n}, task: Do {n}}}\n" for n in range(20))
    tail = SUITE[SUITE.index("run:") :]
    plan = compile_suite(write(tmp_path, f"name: many\ntasks:\n{rows}{tail}")).plan
    assert plan.gate.name == "race" and not getattr(plan.gate, "fixed", True)
    assert plan.reserve > 0


def test_a_suite_is_known_by_its_tasks(tmp_path: Path):
    assert RECIPE.detect(cast("dict[str, object]", read_source(write(tmp_path, SUITE)).data))
    assert not RECIPE.detect({"tasks": [], "artifacts": {}})
    assert not RECIPE.detect({"prompts": [], "tasks": []})
    assert not RECIPE.detect({"name": "an agent"})
