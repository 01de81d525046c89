"""Who is next among the proposers that a task names."""

from pathlib import Path

import pytest

from kept.core.schedules.bandit import Bandit
from kept.core.schedules.round_robin import RoundRobin
from kept.errors import SpecError
from kept.proposers.variants import Variant, Variants
from kept.recipes.gate_choice import schedule_of
from kept.recipes.task.compile import compile_task
from kept.testing.fakes import Pool, ScriptedProposer
from tests.recipes.task.test_task_keys import write

ONE, OTHER = (ScriptedProposer(lines=Pool().lines, name=name) for name in ("one", "other"))
MINE = Variants((Variant({"text": "mine"}, "mine"),))


def test_with_nobody_to_choose_between_proposers_go_in_turn():
    yours = Variants(MINE.variants, "variants-2")
    assert schedule_of([ONE], "bandit", 0) == RoundRobin(("one",))
    assert schedule_of([MINE, yours], "bandit", 0) == RoundRobin(("variants", "variants-2"))
    assert schedule_of([ONE, OTHER], "in_turn", 0) == RoundRobin(("one", "other"))


def test_several_are_chosen_by_what_they_brought_and_texts_of_people_have_their_share():
    found = schedule_of([ONE, MINE, OTHER], "bandit", 7)
    assert found == Bandit(("one", "variants", "other"), 7, frozenset({"variants"}))


def test_a_task_says_who_is_next_among_several(tmp_path: Path):
    task = write(tmp_path, ["good good\n"])
    assert compile_task(task).plan.schedule == RoundRobin(("variants",))
    (tmp_path / "edit.sh").write_text("true")
    command = "{kind: command, command: sh edit.sh}"
    both = f"proposers=[{command}, {command}]"
    assert compile_task(task, [both]).plan.schedule == Bandit(("command", "command-2"))
    names = RoundRobin(("command", "command-2"))
    assert compile_task(task, [both, "schedule=in_turn"]).plan.schedule == names
    with pytest.raises(SpecError, match="schedule"):
        compile_task(task, ["schedule=random"])


def test_a_resume_notices_another_schedule_and_knows_a_run_from_before_there_was_one(
    tmp_path: Path,
):
    task = write(tmp_path, ["good good\n"])
    plain = compile_task(task).plan.inputs
    assert compile_task(task, ["schedule=bandit"]).plan.inputs == plain
    assert compile_task(task, ["schedule=in_turn"]).plan.inputs["spec"] != plain["spec"]
