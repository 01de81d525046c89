"""`kept prompts`: what models are told, listed, shown and copied out."""

import json
from pathlib import Path

import pytest

from kept.models.prompts import ASKED, METRICS, NAMES, PLACEHOLDERS, Name, prompt
from tests.ui.cli.tasks import kept


def test_all_prompts_are_listed_with_what_may_stand_in_them(here: Path):
    told = kept("prompts", "list", "--json")
    rows = {row["name"]: row for row in told.json}
    assert rows.keys() == {*NAMES}
    assert rows["judge"]["placeholders"] == dict(PLACEHOLDERS["judge"])
    assert {name: row["text"] for name, row in rows.items()} == {n: prompt(n) for n in NAMES}
    assert all(name in kept("prompts", "list").stdout for name in NAMES)


@pytest.mark.parametrize("name", [NAMES[0], NAMES[-1]])
def test_one_is_shown_as_it_is(here: Path, name: Name):
    assert kept("prompts", "show", name).stdout == prompt(name)
    shown = kept("prompts", "show", name, "--json").json
    assert shown == {"format": 1, "name": name, "text": prompt(name)}


def test_all_are_copied_and_nothing_is_overwritten(here: Path):
    made = kept("prompts", "copy", "mine/prompts", "--json")
    assert json.loads(made.stdout) == [f"mine/prompts/{name}.md" for name in ASKED]
    for file in made.json:
        assert (here / file).read_text() == prompt(Path(file).stem)  # pyright: ignore[reportArgumentType] # of the names above
    (here / "mine" / "prompts" / "edit.md").write_text("changed\n")
    again = kept("prompts", "copy", "mine/prompts", "simplify", "edit")
    assert again.code == 2
    assert "`mine/prompts/edit.md` is there already" in again.stderr
    assert (here / "mine" / "prompts" / "edit.md").read_text() == "changed\n"
    some = kept("prompts", "copy", "other", "edit", "judge_pair")
    assert some.stdout.splitlines() == ["other/edit.md", "other/judge_pair.md"]
    assert kept("prompts", "show", "nothing").code == 2


def test_beside_an_agent_those_of_its_metrics_are_copied(here: Path):
    (here / "a").mkdir()
    (here / "a" / "agent.yaml").write_text("")
    made = kept("prompts", "copy", "a/prompts")
    assert made.stdout.splitlines() == [f"a/prompts/{name}.md" for name in METRICS]
    assert "`prompts: prompts` in `a/agent.yaml` has them stand" in made.stderr
    apart = kept("prompts", "copy", "elsewhere", "fluency")
    assert apart.stdout.splitlines() == ["elsewhere/fluency.md"]
    assert "`prompts: FOLDER` in agent.yaml" in apart.stderr


def test_a_copy_is_told_with_the_line_that_the_task_beside_it_needs(here: Path):
    (here / "p1").mkdir()
    (here / "p1" / "task.yaml").write_text("")
    beside = kept("prompts", "copy", "p1/prompts", "edit")
    assert "`prompts: prompts` in `p1/task.yaml` has them stand" in beside.stderr
    apart = kept("prompts", "copy", "elsewhere", "edit")
    assert "`prompts: FOLDER` in task.yaml, which is `elsewhere` as seen" in apart.stderr


TASK = """\
artifacts: {include: [SKILL.md]}
models: {optimizer: scripted/editor.jsonl, judge: scripted/judge.jsonl}
runner: {command: "cp SKILL.md $KEPT_OUTPUT/output.txt"}
scorer: {type: judge, criteria: [{name: kind, means: It is kind.}]}
objective: {primary_metric: score, direction: maximize, bounds: [0, 1]}
proposers: [{kind: edit}, {kind: simplify}]
schedule: in_turn
prompts: told
sandbox: {walls: "off"}
budget: {max_iterations: 2}
"""


def test_a_check_and_a_step_say_whose_prompt_is_in_force(here: Path):
    (here / "task.yaml").write_text(TASK)
    (here / "SKILL.md").write_text("Be kind.\n")
    (here / "editor.jsonl").write_text('{"text": "{\\"why\\": \\"\\", \\"edits\\": []}"}\n' * 2)
    (here / "judge.jsonl").write_text("")
    (here / "told").mkdir()
    for name in ("edit", "judge"):
        (here / "told" / f"{name}.md").write_text("Do it.\n")
    told = kept("check", "task.yaml").stdout
    assert "edit: edits by `scripted/editor.jsonl`, told by your told/edit.md\n" in told
    assert "simplify: edits by `scripted/editor.jsonl`\n" in told
    assert "kind; told by your told/judge.md" in told
    assert kept("check", "task.yaml", "--json").json["prompts"] == {"edit": "told/edit.md"}
    kept("optimize", "task.yaml", "-q")
    assert "told by    your told/edit.md" in kept("show", "last", "--step", "0").stdout
    assert kept("show", "last", "--step", "0", "--json").json["prompt"] == "told/edit.md"


def test_a_group_without_a_command_shows_its_help_and_not_an_error():
    called = kept("prompts")
    assert called.code in (0, 2)  # by the version of click
    assert "error:" not in called.stderr
    assert "List the prompts, what each is for" in called.stderr + called.stdout
