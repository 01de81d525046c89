"""Prompts of a task's own: a folder for all, a file for one, and what is wrong with them."""

import asyncio
import json
from pathlib import Path

import pytest

from kept.models.prompts import prompt
from kept.proposers.llm import ModelProposer
from kept.recipes.task.compile import compile_task
from kept.run import inputs_of, start
from kept.store.home import Home
from kept.testing.server import ModelServer, Seen
from tests.recipes.telling import problems, write_cases

TASK = """\
artifacts: {include: [guide.md]}
models:
  optimizer: {provider: openai_compatible, model: m, base_url: "URL", cache: false}
  judge: {provider: openai_compatible, model: j, base_url: "URL", cache: false}
runner: {command: "cp guide.md $KEPT_OUTPUT/output.txt"}
scorer:
  type: judge
  target: candidate:guide.md
  criteria: [{name: kind, means: It is kind.}]
objective: {primary_metric: score, direction: maximize, bounds: [0, 1]}
proposers: [{kind: edit, cases: 0}, {kind: reflect, cases: 0, prompt: mine.md}]
sandbox: {walls: "off"}
budget: {max_iterations: 1}
prompts: told
width: 1
"""


@pytest.fixture
def task(tmp_path: Path) -> Path:
    (tmp_path / "told").mkdir()
    for name in ("edit", "reflect", "judge", "simplify"):
        (tmp_path / "told" / f"{name}.md").write_text(f"My {name}.\n")
    (tmp_path / "mine.md").write_text("Mine alone.\n")
    (tmp_path / "guide.md").write_text("a seed\n")
    (tmp_path / "task.yaml").write_text(TASK.replace("URL", "http://127.0.0.1:9"))
    return tmp_path / "task.yaml"


def told(task: Path, *overrides: str) -> list[str]:
    made = compile_task(task, overrides).plan.proposers
    return [one.prompt for one in made if isinstance(one, ModelProposer)]


def test_files_of_the_folder_stand_for_kepts_own_and_a_file_of_ones_own_goes_before(task: Path):
    assert told(task) == ["My edit.\n", "Mine alone.\n"]
    assert told(task, "proposers=[{kind: rewrite}, {kind: simplify}]") == [
        prompt("rewrite"),
        "My simplify.\n",
    ]
    direct = task.read_text().replace("proposers:", "mutation: {mode: direct_edit}\n#")
    task.write_text(direct)
    assert told(task) == ["My edit.\n"]


def test_judges_and_proposers_are_told_so_with_the_facts_filled_in(task: Path):
    def reply(seen: Seen) -> str:
        if seen.body["model"] == "j":
            return '{"kind": {"reason": "so", "level": 3}}'
        return '{"why": "", "cases": [], "edits": []}'

    (task.parent / "told" / "judge.md").write_text("Look at {{kept.criteria}}.\n")
    (task.parent / "told" / "edit.md").write_text("{{kept.direction}} {{kept.metric}}: {{x}}\n")
    with ModelServer(reply) as server:
        task.write_text(TASK.replace("URL", server.v1).replace("cases: 0}, {", "cases: 1}, {"))
        asyncio.run(start(compile_task(task).plan, Home(task.parent / ".kept")))
        heard = {seen.body["model"]: seen.lines[0].text for seen in server.log}
    assert heard["j"].startswith("Look at kind.\n\n# Criteria")
    assert heard["m"] == "maximize score: {{x}}\n"


def test_a_run_belongs_to_the_prompts_that_it_began_with(task: Path):
    before = inputs_of(compile_task(task).plan)
    (task.parent / "told" / "simplify.md").write_text("Other.\n")
    assert inputs_of(compile_task(task).plan) == before, "nobody is told this"
    for name in ("edit", "judge"):
        (task.parent / "told" / f"{name}.md").write_text("Other.\n")
    now = inputs_of(compile_task(task).plan)
    changed = {name for name in now if now[name] != before.get(name)}
    assert changed == {"`told/edit.md`", "`told/judge.md`"}


def test_what_is_wrong_with_prompts_is_told_with_its_line(task: Path):
    folder = task.parent / "told"
    (folder / "edit.md").write_text("Improve.\n\n{{kept.criteria}} and {{kept.metric}}\n")
    (folder / "judge.md").write_text("{{kept.metric}}\n")
    (folder / "edits.md").write_text("")
    found = problems(task, hints=True)
    assert [line for line in found if "edits.md" in line] == [
        "prompts: `told/edits.md` has the name of no prompt (did you mean `edit.md`?)"
    ]
    (edit,) = (line for line in found if line.startswith("proposers[0].prompt"))
    assert "`{{kept.criteria}}` is no placeholder of the prompt `edit` (there are " in edit
    assert any(line.startswith("scorer.prompt: `{{kept.metric}}` is no place") for line in found)
    with pytest.raises(Exception, match=r"told/edit\.md:3 proposers\[0\]\.prompt"):
        compile_task(task)


def test_a_folder_that_is_not_there_or_not_below_the_task_is_a_problem(
    task: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.chdir(task.parent)
    assert problems(task, "prompts=nowhere", hints=True) == [
        "prompts: there is no folder `nowhere` (`kept prompts copy nowhere` makes it)"
    ]
    (line,) = problems(task, "prompts=../told")
    assert line.startswith("prompts: `../told` is not a path below")


def test_a_hint_about_a_folder_is_right_from_where_one_stands(
    task: Path, monkeypatch: pytest.MonkeyPatch
):
    folder = task.parent.name
    monkeypatch.chdir(task.parent.parent)
    (line,) = problems(task, f"prompts={folder}/told", hints=True)
    assert line.endswith("(it is named as seen from task.yaml: write `prompts: told`)")
    (line,) = problems(task, "prompts=nowhere", hints=True)
    assert line.endswith(f"(`kept prompts copy {folder}/nowhere` makes it)")


@pytest.mark.parametrize("name", ["edit", "judge"])
def test_a_prompt_without_a_word_in_it_is_a_problem(task: Path, name: str):
    (task.parent / "told" / f"{name}.md").write_text(" \n\n")
    (line,) = problems(task, hints=True)
    assert f".prompt: `told/{name}.md` is empty (`kept prompts show {name}` prints" in line


ASKED = """\
artifacts: {include: [guide.md]}
cases: {file: cases.jsonl, split: "1:1:0"}
models: {optimizer: {provider: openai_compatible, model: m, base_url: "URL", cache: false}}
runner: {command: "true"}
scorer: {type: rules, rules: [{kind: lacks, pattern: nothing}]}
objective: {primary_metric: score, direction: maximize, bounds: [0, 1]}
proposers: [{kind: edit, FIELDS}, {kind: reflect, FIELDS}]
sandbox: {walls: "off"}
gate: strict
budget: {max_iterations: 2}
width: 1
"""


@pytest.mark.parametrize(
    ("fields", "shown", "seen"),
    [
        ("traces: 3", "true", (False, True)),
        ("traces: 3", "false", (False, False)),
        ("fields: [q]", "false", (True, False)),
        ("fields: [q, gold]", "false", (True, True)),
    ],
)
def test_of_cases_a_model_sees_the_fields_and_answers_that_the_task_lets_it_see(
    fields: str, shown: str, seen: tuple[bool, bool], tmp_path: Path
):
    write_cases(
        tmp_path, [{"id": f"c{n}", "q": f"asks {n}", "gold": f"says {n}"} for n in range(8)]
    )
    (tmp_path / "guide.md").write_text("a seed\n")

    def reply(asked: Seen) -> str:
        wanted = asked.body["response_format"]["json_schema"]["schema"]["properties"]
        return json.dumps({name: "" if name == "why" else [] for name in wanted})

    with ModelServer(reply) as server:
        text = ASKED.replace("URL", server.v1).replace("FIELDS", fields)
        text = text.replace('"1:1:0"', f'"1:1:0", show_expected: {shown}')
        (tmp_path / "task.yaml").write_text(text)
        asyncio.run(start(compile_task(tmp_path / "task.yaml").plan, Home(tmp_path / ".kept")))
        texts = [one.text for one in server.log]
    assert len(texts) == 2
    assert all(("asks" in text, "says" in text) == seen for text in texts)
