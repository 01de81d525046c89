"""What the original got wrong, seen live there: it must not come back here."""

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from kept.core.artifact import Candidate
from kept.core.plan import Plan
from kept.core.state import State
from kept.run import Watch, resume, start
from kept.store.home import Home
from kept.testing.server import Fault, ModelServer, Seen
from tests.engine.cutting import Home1, Moments, calls, cut, rows
from tests.recipes.skill import world

pytestmark = pytest.mark.slow


@pytest.fixture(autouse=True)
def apart(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KEPT_CACHE", str(tmp_path / "cache"))


def read(path: Path) -> Any:
    return json.loads(path.read_text())


def helpless(seen: Seen) -> str:
    """A student that never answers anything, and a teacher as ever."""
    return "no idea" if seen.model == "student" else world.answer(seen)


def test_a_score_of_zero_is_a_score_when_a_run_goes_on(tmp_path: Path):
    """There 0.0 was read as no score: the initial skill was measured anew, and origins reset."""
    moments = Moments()
    with ModelServer(helpless) as server:
        path = world.write_config(tmp_path, server.v1, epochs=1, batch=6)
        home = Home1(tmp_path / "home", moments)
        whole, state = asyncio.run(start(world.make_plan(path), home, Watch((moments,))))
        measured = len(server.log)
        closed = [step for step in state.history if step.loss is not None]
        assert len(closed) > 2 and all(step.loss == 0.0 for step in closed), "nothing is solved"
        # two steps are closed, and the skill that is judged against has its zeros
        sizes = next(s for s in moments.sizes if closes_in(whole, s) == 2)
        before = len(calls(rows(cut(whole, sizes, tmp_path / "look"))))
        part = cut(whole, sizes, tmp_path / "part")
        asyncio.run(resume(world.make_plan(path), part))
        assert len(server.log) - measured == measured - before, "what was measured stays so"
    standing = read(tmp_path / "out" / "runtime_state.json")
    assert standing["current_score"] == 0.0 and standing["last_completed_step"] == 4
    assert standing["current_origin"] == "initial_skill"


def closes_in(folder: Path, sizes: tuple[int, ...]) -> int:
    """Steps that were closed when the spine had its size."""
    return (folder / "journal.jsonl").read_bytes()[: sizes[0]].count(b'"kind":"step_closed"')


def test_scores_that_lie_about_are_not_taken_for_a_candidates(tmp_path: Path):
    """There the rows in selection_eval/ were taken for any candidate that came by."""
    planted = tmp_path / "out" / "steps" / "step_0001" / "selection_eval"
    planted.mkdir(parents=True)
    rows = [json.dumps({"id": f"q{n}", "hard": 1, "soft": 1.0}) for n in range(48)]
    for name in ("results.jsonl", "summary.json"):
        (planted / name).write_text("\n".join(rows))
    with ModelServer(helpless) as server:
        path = world.write_config(tmp_path, server.v1, epochs=1, batch=24)
        _, state = asyncio.run(start(world.make_plan(path), Home(tmp_path / "home")))
    first = state.history[0]
    assert first.loss == 0.0 and first.rollouts == 12 and first.verdict.outcome == "discard"
    assert read(planted / "summary.json")["score"] == 0.0, "the file is written from the journal"


def test_what_nobody_answered_is_no_wrong_answer(tmp_path: Path):
    """There a row without an answer was a zero for good, in the batch and at the gate."""

    def fault(seen: Seen) -> Fault | None:
        away = seen.model == "student" and seen.text.endswith(" 3")
        return Fault("status", 503) if away else None

    with ModelServer(world.answer, faults=fault) as server:
        path = world.write_config(tmp_path, server.v1, epochs=1, batch=24)
        at = f"provider: openai_compatible, model: student, base_url: '{server.v1}'"
        plan = world.make_plan(path, [f"model.target={{{at}, tries: 1}}"])
        _, state = asyncio.run(start(plan, Home(tmp_path / "home")))
    digest = read(tmp_path / "out" / "steps" / "step_0001" / "trajectory_digest.json")
    assert (digest["n_total"], digest["missing"]) == (23, 1)
    patches = read(tmp_path / "out/steps/step_0001/patches/minibatch_fail.json")
    assert "q3" not in {case for patch in patches for case in patch["cases"]}
    assert state.stopped is not None and state.stopped.kind == "iterations"


def test_an_edit_that_carries_an_answer_into_the_skill_is_refused(tmp_path: Path):
    """There expected answers went to the optimizer, and nothing looked where they went then."""

    def leak(seen: Seen) -> str:
        said = world.answer(seen)
        # whatever the teacher appends, it is what a case expects
        return said.replace(world.GOOD[0], world.truth(3)) if seen.model == "teacher" else said

    rules = (*world.GOOD, *world.USELESS, *world.HARMFUL)

    def all_leak(seen: Seen) -> str:
        said = leak(seen)
        for rule in rules if seen.model == "teacher" else ():
            said = said.replace(rule, f"When in doubt say {world.truth(3)}.")
        return said

    state = trained(tmp_path, all_leak)
    codes = {step.verdict.code for step in state.history if step.proposal is not None}
    assert codes == {"guard"} and state.incumbent == state.seed
    told = next(step.verdict.reason for step in state.history if step.verdict.code == "guard")
    assert "guard gold" in told and world.truth(3).split()[1] not in told


def trained(folder: Path, answer: Any) -> State:
    with ModelServer(answer) as server:
        path = world.write_config(folder, server.v1, epochs=1, batch=12)
        return asyncio.run(start(world.make_plan(path), Home(folder / "home"))).state


def test_a_flushed_reminder_leaves_no_score_of_another_text(tmp_path: Path):
    """There the skill with new reminders went on under the score of the one without."""
    more = ("optimizer.use_skill_aware_reflection=true", "optimizer.appendix_gate=flush")
    moments = Moments()
    with ModelServer(world.answer) as server:
        path = world.write_config(tmp_path, server.v1, epochs=1, batch=24)
        home = Home1(tmp_path / "home", moments)
        _, state = asyncio.run(start(world.make_plan(path, more), home))
    assert state.history[1].verdict.code == "taken"
    standing = read(tmp_path / "out" / "runtime_state.json")
    assert standing["current_candidate"] == state.history[1].candidate
    assert standing["current_score"] is None, "it has not been measured"
    there = Candidate({"SKILL.md": (tmp_path / "out" / standing["current_skill_path"]).read_text()})
    assert there.id == standing["current_candidate"], "the file that is named has the reminder"


def test_runs_of_one_process_do_not_see_each_other(tmp_path: Path):
    """There models and switches were of the process: a second run changed the first."""
    more = (
        ("optimizer.use_skill_aware_reflection=true",),
        ("optimizer.skill_update_mode=rewrite_from_suggestions", "train.seed=8"),
    )

    async def together(plans: list[Plan], folder: Path) -> None:
        homes = [Home(folder / str(n)) for n in range(len(plans))]
        await asyncio.gather(*(start(p, home) for p, home in zip(plans, homes, strict=True)))

    def asked(name: str, *which: int) -> list[list[str]]:
        with ModelServer(world.answer) as one, ModelServer(world.answer) as two:
            servers, plans = (one, two), list[Plan]()
            for n in which:
                path = world.write_config(tmp_path / name / f"of{n}", servers[n].v1, batch=12)
                plans.append(world.make_plan(path, more[n]))
            asyncio.run(together(plans, tmp_path / name))
            return [
                sorted(json.dumps(dict(seen.body), sort_keys=True) for seen in server.log)
                for server in servers
            ]

    both = asked("both", 0, 1)
    assert both == [asked("first", 0)[0], asked("second", 1)[1]]
    # else a switch that stays as the first run set it would be the same in all of them
    assert ["appendix_notes" in "".join(bodies) for bodies in both] == [True, False]


def test_a_reply_may_be_as_long_as_the_config_says(tmp_path: Path):
    """There 64,000 tokens were asked for, and 8,000 were what was sent."""
    mode = "optimizer.skill_update_mode=rewrite_from_suggestions"
    with ModelServer(world.answer) as server:
        path = world.write_config(tmp_path, server.v1, epochs=1, batch=24)
        asyncio.run(start(world.make_plan(path, [mode]), Home(tmp_path / "home")))
    asked = [seen for seen in server.log if seen.model == "teacher"]
    limits = {("new_skill" in world.properties(seen), seen.body["max_tokens"]) for seen in asked}
    assert limits == {(False, 16_384), (True, 64_000)}
