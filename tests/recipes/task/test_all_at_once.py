"""Whatever is wrong with a task is told at once: no problem waits for another to be mended."""

from pathlib import Path

import pytest

from kept.errors import SpecError
from kept.recipes.task.compile import compile_task
from tests.recipes.task.tasks import TASK, write_task

COMPOSITE = """scorer:
  type: composite
  parts:
    - {name: a, weight: heavy, scorer: {command: "true", cwd: nowhere}}
    - {name: b, scorer: {type: rules, rules: [{kind: growth, max: 2, target: "candidate:x.md"}]}}
    - {name: c, bounds: [1, 1], weight: -1, scorer: {type: rules, rules: []}}
"""


def places(folder: Path, text: str, *overrides: str) -> set[str]:
    """Where a task has problems."""
    path = write_task(folder, text)
    with pytest.raises(SpecError) as caught:
        compile_task(path, overrides)
    return {problem.path or problem.where for problem in caught.value.problems}


@pytest.mark.parametrize(
    ("line", "by", "wrong"),
    [
        ("maximize}", "up, bounds: [1, 0]}", "objective objective.direction"),
        ("maximize}", "up, bounds: [1, 0], wat: 1}", "objective objective.direction objective.wat"),
        ("max_iterations: 20", "max_failures: 0, max_usd: 1", "budget budget.max_failures"),
        ("max_iterations: 20", "usd_per_rollout: x", "budget budget.usd_per_rollout"),
        ("[prompt.md]", "[no.md], max_files_per_iteration: 0", "artifacts.include[0] "
         "artifacts.max_files_per_iteration"),
        ("runner: {", "runner: {env: {1: x}, cwd: no, ", "runner.cwd runner.env"),
        ("scorer: {", "scorer: {parse: 1, cwd: no, ", "scorer.cwd scorer.parse"),
        ('scorer: {command: "true"}\n', COMPOSITE, "scorer.parts[0].weight "
         "scorer.parts[0].scorer.cwd scorer.parts[1].scorer.rules[0].target scorer.parts[2] "
         "scorer.parts[2].weight scorer.parts[2].scorer"),
        ("kind: variants, files: [\"alternatives/*.md\"]",
         "kind: numeric, startup: 0, axes: [{file: no.md, path: x, type: int, range: [1, 2]}]",
         "proposers[0].startup proposers[0].axes[0].file"),
        ("kind: variants, files: [\"alternatives/*.md\"]",
         "kind: numeric, axes: [{file: 7, path: x, range: [2, 1]}]",
         "proposers[0].axes[0] proposers[0].axes[0].file"),
    ],
)  # fmt: skip
def test_faults_of_one_part_are_told_together(line: str, by: str, wrong: str, tmp_path: Path):
    assert line in TASK
    assert places(tmp_path, TASK.replace(line, by)) == set(wrong.split())


@pytest.mark.parametrize(
    ("more", "wrong"),
    [
        ("cases: {file: gone.jsonl, split: 1:2}", "cases.file cases.split"),
        ("cases: {file: gone.jsonl, split: '1:0:1'}", "cases.file cases.split"),
        ("cases: {file: prompt.md, split: '1:0:1', seed: x}", "prompt.md:1 cases.seed"),
        ("cases: {file: prompt.md, split: '1:0:1'}", "prompt.md:1 cases.split"),
        ("guards: {length: {max_tokens: 0}, sections: {keep: [No]}}",
         "guards.length.max_tokens guards.sections.keep[0]"),
        ("logging: {results_file: ../x, candidate_dir: prompt.md}",
         "logging.results_file logging.candidate_dir"),
        ("sandbox: {hidden: [no], writable: [none], processes: 0}",
         "sandbox.hidden[0] sandbox.writable[0] sandbox.processes"),
        ("sandbox: {hidden: [no]}\nwidth: 0", "sandbox.hidden[0] width"),
    ],
)  # fmt: skip
def test_faults_of_files_are_told_with_those_of_the_spec(
    more: str, wrong: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.chdir(tmp_path)
    assert places(tmp_path, f"{TASK}{more}\n") == set(wrong.split())


@pytest.mark.parametrize(
    ("axis", "told"),
    [
        ("range: [2, 1], step: 9", ["is empty", "needs a `type`"]),
        ("range: [-1, 1], log: true, step: 9", ["needs a `type`", "above 0", "do not go together"]),
        ("choices: [1], log: true", ["nothing to choose", "go with a `range`"]),
    ],
)
def test_all_that_is_wrong_with_an_axis_is_told(axis: str, told: list[str], tmp_path: Path):
    rows = f"proposers: [{{kind: numeric, axes: [{{file: prompt.md, path: x, {axis}}}]}}]"
    text = TASK.replace('proposers: [{kind: variants, files: ["alternatives/*.md"]}]', rows)
    with pytest.raises(SpecError) as caught:
        compile_task(write_task(tmp_path, text))
    found = [problem.message for problem in caught.value.problems]
    # where it stands is looked up, too
    told = [*told, "no line `x = …`"]
    assert len(found) == len(told)
    assert all(word in message for word, message in zip(told, found, strict=True))


def test_one_bad_axis_does_not_hide_what_is_wrong_with_the_others(tmp_path: Path):
    axes = [
        "{file: prompt.md, path: x, rnage: [1, 2], type: int}",
        "{file: gone.md, path: x, range: [1, 2], type: int}",
        "{file: prompt.md, path: seed, range: [5, 9], type: int}",
        "{file: prompt.md, path: seed, choices: [1, 3]}",
        "{path: x, choices: [1, 2]}",
        "seven",
    ]
    rows = f"proposers: [{{kind: numeric, startup: no, axes: [{', '.join(axes)}]}}]"
    text = TASK.replace('proposers: [{kind: variants, files: ["alternatives/*.md"]}]', rows)
    path = write_task(tmp_path, text)
    (tmp_path / "prompt.md").write_text("seed: 3\n")
    with pytest.raises(SpecError) as caught:
        compile_task(path)
    found = {(problem.path, problem.message[:30]) for problem in caught.value.problems}
    start = "proposers[0]"
    assert found == {
        (f"{start}.startup", "the text `no`, where a whole n"),
        (f"{start}.axes[0].rnage", "unknown key"),
        (f"{start}.axes[0].path", "no line `x = …` or `x: …` in p"),
        (f"{start}.axes[1].file", "`gone.md` is no artifact"),
        (f"{start}.axes[2].path", "it is the number 3, which is n"),
        (f"{start}.axes[3].path", "`seed` has two axes"),
        (f"{start}.axes[4].file", "missing"),
        (f"{start}.axes[5]", "the text `seven`, where a mapp"),
    }
    hints = [problem.hint for problem in caught.value.problems]
    assert "did you mean `range`?" in hints


def test_what_depends_on_a_wrong_value_is_not_complained_of(tmp_path: Path):
    text = TASK.replace("max_iterations: 20", "max_iterations: many")
    assert places(tmp_path, text) == {"budget.max_iterations"}
    text = TASK.replace("max_iterations: 20", "max_iteration: 20")
    assert places(tmp_path, text) == {"budget.max_iteration"}
    text = TASK.replace('{command: "true"}\nscorer', '{command: "true", cwd: 7}\nscorer')
    assert places(tmp_path, text) == {"runner.cwd"}


ASKING = """artifacts: {include: [prompt.md]}
models:
  judge: scripted/judge.jsonl
runner: {model: openai/gpt-5-mini, prompt: prompt.md, input: question}
scorer:
  type: judge
  criteria: [{name: good, means: it is good}]
objective: {primary_metric: score, direction: maximise}
proposers:
  - {kind: edit, model: scripted/replies.jsonl}
  - {kind: rewrite, model: anthropic/claude-sonnet-4-5}
  - {kind: simplify}
cases: {file: gone.jsonl}
budget: {max_iterations: 2}
"""


def test_models_that_cannot_be_asked_are_told_with_all_else_at_their_places(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    for name in ("OPENAI_API_KEY", "ANTHROPIC_API_KEY"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("KEPT_MODEL", "openai/gpt-5-mini")
    path = write_task(tmp_path, ASKING)
    with pytest.raises(SpecError) as caught:
        compile_task(path)
    told = [(p.where.rpartition(":")[2], p.path, p.message) for p in caught.value.problems]
    key = "cannot ask `{}`: {}_API_KEY is not set"
    openai = key.format("openai/gpt-5-mini", "OPENAI")
    assert [(line, place) for line, place, _ in told] == [
        ("3", "models.judge"),
        ("4", "runner.model"),
        ("8", "objective.direction"),
        ("10", "proposers[0].model"),
        ("11", "proposers[1].model"),
        ("12", "proposers[2]"),
        ("13", "cases.file"),
    ]
    said = {place: message for _, place, message in told}
    assert "cannot read the replies in" in said["models.judge"]
    assert "cannot read the replies in" in said["proposers[0].model"]
    assert said["runner.model"] == said["proposers[2]"] == openai
    assert said["proposers[1].model"] == key.format("anthropic/claude-sonnet-4-5", "ANTHROPIC")


def test_a_role_that_is_the_target_is_told_where_it_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    text = ASKING.replace("model: openai/gpt-5-mini, ", "").replace(
        "  judge: scripted/judge.jsonl", "  target: openai/gpt-5-mini"
    )
    assert "models.target" in places(tmp_path, text)
