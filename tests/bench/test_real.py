"""The bank of recorded rollouts, and runs replayed from it."""

import json
from pathlib import Path

import pytest

from bench.real import live, record
from bench.real.__main__ import report
from bench.real.bank import CASES, DRAWS, FILE, Bank, cases, lines, prompts, read
from bench.real.replay import GATES, SEED_LABEL, null_world, real_world, replay
from bench.real.tables import false_keeps, found_best
from kept.recipes.task.compile import compile_task

WORSE, MIDDLE, BETTER = "worse", "middle", "better"
NAMES = tuple(f"case {n}" for n in range(80))


def made_up(names: tuple[str, ...] = NAMES, **rates: int) -> Bank:
    """A bank whose prompts are right in so many of twelve draws, on every case."""
    right = {
        (prompt, case): tuple(int((at + draw) % DRAWS < rate) for draw in range(DRAWS))
        for prompt, rate in rates.items()
        for at, case in enumerate(names)
    }
    return Bank(tuple(rates), names, right)


def test_a_bank_is_read_as_far_as_prompts_are_whole(tmp_path: Path):
    file = tmp_path / "bank.jsonl"
    rows = [
        json.dumps({"prompt": "seed", "case": case["id"], "said": "p" * DRAWS}) for case in cases()
    ]
    more = json.dumps({"prompt": "polite", "case": rows[0], "said": "n" * DRAWS})
    file.write_text("\n".join(['{"weights": ""}', *rows, more[:-5]]))
    assert len(list(lines(file))) == CASES
    bank = read(file)
    assert bank.prompts == ("seed",)
    assert bank.mean("seed") == 0.5, "half of the reviews are positive"


def test_a_line_that_a_kill_cut_is_dropped_before_more_are_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(record, "FILE", tmp_path / "bank.jsonl")
    record.drop_torn_line()
    whole = '{"weights": ""}\n{"prompt": "seed"}\n'
    for torn in ("", '{"prompt": "se'):
        (tmp_path / "bank.jsonl").write_text(whole + torn)
        record.drop_torn_line()
        assert (tmp_path / "bank.jsonl").read_text() == whole


def test_every_case_has_a_seed_of_its_own():
    asked = [record.body(text, case) for text in prompts().values() for case in cases()]
    assert len({body["seed"] for body in asked}) > len(asked) * 0.99
    assert {body["n"] for body in asked} == {DRAWS}


def test_a_prompt_is_recorded_as_the_runner_would_send_it():
    pytest.importorskip("xllamacpp")
    from kept.core.artifact import Candidate
    from kept.core.case import Case
    from kept.core.llm import ModelRequest
    from kept.evaluators.runners.model import Form, request_for

    (case, *_) = cases()
    for text in prompts().values():
        candidate = Candidate({"prompt.md": text})
        sent = request_for(Form(("prompt.md",), ("review",)), candidate, Case("c", case))
        assert isinstance(sent, ModelRequest)
        messages = [{"role": one.role, "content": one.text} for one in sent.messages]
        assert messages == record.body(text, case)["messages"]


def test_a_race_finds_the_better_prompt_and_keeps_no_copy():
    bank = made_up(worse=4, middle=5, better=11)
    world = real_world(bank, WORSE)
    found = replay(world, GATES["race"], 1, 2500)
    assert found.best == BETTER
    assert found.fates == {BETTER: "kept", MIDDLE: "near miss"}
    null = replay(null_world(bank, MIDDLE, 4), GATES["race"], 1, 2500)
    assert (null.keeps, null.best) == (0, SEED_LABEL)
    assert replay(world, GATES["race"], 1, 2500) == found, "a replay is the same again"


def test_a_run_begins_at_the_prompt_it_is_told_and_proposes_all_others():
    bank = made_up(seed=6, worse=4, better=11)
    world = real_world(bank, WORSE)
    assert world.prompt_of[SEED_LABEL] == WORSE
    assert sorted(world.prompt_of.values()) == sorted(bank.prompts)


def test_a_gate_that_looks_once_keeps_copies():
    bank = made_up(middle=6)
    rows = [replay(null_world(bank, MIDDLE, 8), GATES["selection"], n, 2500) for n in range(5)]
    assert false_keeps(rows).hits >= 3


def test_the_report_says_whether_the_goals_were_met():
    rates = dict.fromkeys(prompts(), 5) | {"seed": 4, "definitions": 11}
    told = report(made_up(tuple(case["id"] for case in cases()), **rates), 2, 2)
    (null, best) = (row for row in told.tables[0].rows)
    assert (null[2], best[2]) == ("yes", "yes")
    (race, *_) = told.tables[3].rows
    assert race[0] == "race"
    assert race[3] == "+0.583", "eleven of twelve, and not four"
    (definitions, *_) = told.tables[7].rows
    assert definitions[:2] == ("definitions", "1.000"), "at temperature 0"
    assert definitions[2].startswith("100.0%"), "both replays of the demo end with it"
    (train, _, both) = told.tables[8].rows
    assert (train[:2], both[:2]) == (("train", "45"), ("train and deciding", "120"))
    assert both[2].startswith("100.0%"), "it leads wherever one looks"
    world = real_world(made_up(worse=4, better=11), WORSE)
    assert found_best(world, [replay(world, GATES["race"], 0, 2500)]).hits == 1


def test_the_recorded_bank_is_one_of_this_demo():
    bank = read(FILE)
    assert set(bank.prompts) <= set(prompts())
    assert all(len(row) == DRAWS for row in bank.right.values())
    assert FILE.stat().st_size < 1_000_000


@pytest.mark.parametrize("more", [(), live.asking("http://127.0.0.1:1/v1")])
def test_the_task_of_a_live_run_is_in_order(tmp_path: Path, more: tuple[str, ...]):
    task = live.task_of(tmp_path / "task", "seed", {"one": "other", "two": "another"})
    given = more or ("runner.model=handoff/desk",)
    plan = compile_task(task, (*live.SETTINGS, *given)).plan
    assert plan.gate.name == "race"
    assert plan.budget.max_rollouts == live.BUDGET
    assert plan.seed.texts["prompt.md"] == "seed\n"
