"""Tasks whose constraints and tie-breakers name what Kept measures itself."""

from pathlib import Path

import pytest

from kept.errors import SpecError
from kept.gates.race import Race
from kept.recipes.task.compile import compile_task

TASK = """\
artifacts: {include: [prompt.md]}
runner: {type: model, prompt: prompt.md, input: [question]}
models: {target: {provider: openai_compatible, model: m, base_url: "http://127.0.0.1:1/v1"MORE}}
scorer: {type: rules, rules: [{kind: tokens, max: 3, target: output}]}
objective: {primary_metric: score, direction: maximize, bounds: [0, 1]}
cases: {file: cases.jsonl}
gate: race
policy: {tie_breakers: [{lower: tokens}]}
proposers: [{kind: variants, files: ["drafts/*.md"]}]
budget: {max_iterations: 5}
"""


def write(folder: Path, more: str) -> Path:
    (folder / "drafts").mkdir()
    (folder / "prompt.md").write_text("Answer: {{question}}\n")
    for name in ("a", "b"):
        (folder / "drafts" / f"{name}.md").write_text(f"{name}: {{{{question}}}}\n")
    rows = (f'{{"id": "{n}", "question": "what is {n} and {n * n}?"}}' for n in range(40))
    (folder / "cases.jsonl").write_text("\n".join(rows) + "\n")
    task = folder / "task.yaml"
    task.write_text(TASK.replace("MORE", more))
    return task


def test_a_model_whose_replies_are_kept_is_refused_where_its_cost_decides(tmp_path: Path):
    with pytest.raises(SpecError, match=r"task.yaml:3 .*`tokens` of a reply that is kept"):
        compile_task(write(tmp_path, ", temperature: 0"))


def test_texts_are_raced_one_by_one_where_ties_are_broken_and_all_that_is_asked_is_counted(
    tmp_path: Path,
):
    plan = compile_task(write(tmp_path, ", temperature: 0, cache: false")).plan
    assert isinstance(plan.gate, Race)
    assert plan.gate.final.among == 0, "a final asks for the best, not for the cheapest"
    assert plan.gate.simplify.bars == 4, "the best, two bars, and what it would take the place of"
