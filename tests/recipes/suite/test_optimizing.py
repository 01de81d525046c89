"""Prompts of agent runs, optimized from end to end: what is kept, what is used, what is not."""

import random
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest

from kept.core.artifact import Candidate
from kept.core.event import Event
from kept.core.ports import Gate
from kept.core.state import State
from kept.errors import JournalError
from kept.orchestrator.prompt_registry import Epoch, PromptRegistry, Suite
from kept.orchestrator.toolkit import own_artifacts
from kept.recipes.agent_run.compile import Before, compile_agent_run
from kept.recipes.agent_run.make_toolkit import run_texts
from kept.recipes.agent_run.request import Asked
from kept.recipes.suite.compile import EpochsView, Optimized
from kept.recipes.suite.spec import read_suite
from kept.run import check_drift, inputs_of
from kept.spec.source import source_of
from kept.store.reader import Run
from kept.testing import AcceptAll, RejectAll
from tests.recipes.suite.world import (
    GOOD,
    HARMFUL,
    USELESS,
    Cast,
    World,
    grade,
    in_order,
    texts_of,
    whole,
    world,
)


def drawn(seed: int) -> Cast:
    """Proposals from a pool: good ones where a defect asks for them, useless and harmful ones."""
    chance = random.Random(seed)
    told: dict[tuple[str, int], str] = {}

    def proposes(artifact: str, shown: str, missing: Sequence[str]) -> str | None:
        if artifact not in ("worker_pitfalls", "pattern_library"):
            return None
        key = (artifact, shown.count("# An update that was tried"))
        kind = told.setdefault(key, chance.choice(["good", "good", "useless", "harmful"]))
        pool = {"good": missing, "useless": USELESS, "harmful": HARMFUL}[kind]
        new = [rule for rule in pool if f"Always {rule}" not in shown]
        return new[0] if new else None

    return Cast(proposes=proposes, noise=chance)


class Mute(Cast):
    """An optimizer that answers beside the point."""

    def _update(self, told: str, user: str) -> str:
        return "I would rather not say."


def optimized(folder: Path, cast: Cast, gate: Gate | None = None, epochs: int = 8) -> World:
    it = world(folder, cast)
    it.start(it.plan(gate, epochs=epochs))
    return it


def check_better(it: World) -> None:
    """Better by its true grade, and nothing harmful in it."""
    text = texts_of(it.registry)
    assert grade(text) > grade("") + 0.15, text
    assert not any(rule in text for rule in HARMFUL), text


@pytest.mark.slow
def test_prompts_become_better_and_nothing_harmful_is_among_them(tmp_path: Path):
    it = optimized(tmp_path, drawn(3))
    check_better(it)


@pytest.mark.slow
@pytest.mark.parametrize("gate", [AcceptAll(), RejectAll()], ids=["all", "none"])
def test_a_gate_that_keeps_everything_or_nothing_optimizes_nothing(tmp_path: Path, gate: Gate):
    it = optimized(tmp_path, drawn(3), gate)
    with pytest.raises(AssertionError):
        check_better(it)


def test_an_update_is_kept_and_one_rolled_back_and_registry_and_runs_agree(tmp_path: Path):
    cast = Cast(proposes=in_order(GOOD[0], HARMFUL[0]))
    it = world(tmp_path, cast, "gate: rollback\n")
    ended = it.start(it.plan(epochs=3))
    outcomes = [step.verdict.outcome for step in ended.state.history]
    assert outcomes == ["keep", "discard", "skip"]
    versions = it.registry.versions("worker_pitfalls")
    assert [one.active for one in versions] == [False, True, False]
    assert [one.parent for one in versions] == [None, 0, 1]
    epochs = it.registry.epochs()
    assert [told["events"] for _, _, _, told in epochs] == [
        [{"type": "update", "artifact": "worker_pitfalls", "from": 0, "to": 1}],
        [{"type": "rollback", "artifact": "worker_pitfalls", "from": 1, "to": 2}],
        [],
    ]
    # what workers were told is, to the letter, the versions of the registry
    heard = {text for role, text in cast.prompts if role == "worker"}
    for version in versions:
        assert len([text for text in heard if text.endswith(version.content.strip())]) == 1
    assert len(heard) == len(versions)
    # an agent run of this project is told the version that is active
    source = source_of(tmp_path / "run.yaml", "{}")
    assert run_texts(source).artifacts["worker_pitfalls"] == versions[1].content


def test_who_proposes_is_shown_the_defects_of_every_task(tmp_path: Path):
    cast = Cast(proposes=in_order(GOOD[0]))
    it = world(tmp_path, cast, "gate: rollback\n")
    it.start(it.plan(epochs=1))
    assert len(cast.briefs) == 6
    for brief in cast.briefs:
        assert brief.count(f"it does not {GOOD[0]}") == 3
        assert brief.count("loss 0.") == 3 and "critique 0." in brief
        assert "Write a report on june to report.md" in brief


def test_a_step_is_halved_by_what_was_rolled_back_and_holds(tmp_path: Path):
    cast = Cast(proposes=in_order(HARMFUL[0], HARMFUL[1], GOOD[0]))
    it = world(tmp_path, cast, "gate: rollback\nstep: 0.4\n")
    ended = it.start(it.plan(epochs=3))
    steps = [step.proposal.about["step"] for step in ended.state.history if step.proposal]
    assert steps == [0.4, 0.2, 0.1]
    raced = world(tmp_path / "raced", Cast(proposes=in_order(HARMFUL[0], HARMFUL[1])))
    ended = raced.start(raced.plan(epochs=2))
    steps = [step.proposal.about["step"] for step in ended.state.history if step.proposal]
    assert steps == [0.5, 0.5]


def test_without_anything_wrong_there_is_nothing_to_optimize(tmp_path: Path):
    cast = Cast(proposes=in_order(GOOD[0]))
    it = world(tmp_path, cast)
    texts = {**dict.fromkeys(it.registry.names, "")}
    made = it.plan(epochs=4)
    perfect = dict(made.seed.texts)
    perfect["worker_pitfalls"] += "".join(f"* Always {rule}.\n" for rule in GOOD)
    assert grade(whole({**texts, **perfect})) > 0.9
    ended = it.start(replace(made, seed=Candidate(perfect)))
    assert [step.verdict.reason for step in ended.state.history] == [
        "nothing is wrong with any run"
    ]
    assert not cast.briefs


def test_an_optimization_in_which_no_reply_could_be_used_is_an_error(tmp_path: Path):
    it = world(tmp_path, Mute(), tasks=("may",))
    stopped = it.start(it.plan(epochs=2)).state.stopped
    assert stopped is not None and stopped.kind == "error", stopped
    assert "in 2 of 2 turns no reply of the optimizer could be used" in stopped.message


def test_runs_use_the_registry_that_is_optimized_and_the_versions_that_a_suite_names(
    tmp_path: Path,
):
    """In the source a registry that was named fed the optimizer alone, and a baseline nobody."""
    mine = PromptRegistry(tmp_path / "mine.db", own_artifacts())
    text = own_artifacts()["worker_pitfalls"] + f"* Always {GOOD[1]}.\n"
    for number, content in enumerate((text, f"{text}* Always {GOOD[2]}.\n")):
        before = {**own_artifacts()}
        epoch = Epoch(
            id=f"x/{number}",
            suite="x",
            number=number,
            started=0.0,
            ended=0.0,
            loss=None,
            before=before,
            after={**before, "worker_pitfalls": content},
            kept=True,
            uses=("worker_pitfalls",),
        )
        mine.record(epoch)
    more = "gate: rollback\nepochs: 1\nbaseline_artifacts: {worker_pitfalls: 1}\n"
    for named, told, untold in (("", GOOD[1:], ()), (more, GOOD[1:2], GOOD[2:])):
        cast = Cast(proposes=in_order(GOOD[0]))
        it = world(tmp_path / f"suite{bool(named)}", cast, named or "gate: rollback\nepochs: 1\n")
        read = read_suite(it.path, registry=mine.path)
        made = replace(it.plan(), seed=Candidate(read.texts.artifacts))
        optimized = Optimized(
            registry=mine,
            suite=Suite(id="s", name="s", tasks=[]),
            metric="loss",
            seed=made.seed.texts,
        )
        it.start(replace(made, views=(partial(EpochsView, optimized),)))
        workers = [text for role, text in cast.prompts if role == "worker"]
        assert all(f"Always {rule}" in text for rule in told for text in workers)
        assert not any(f"Always {rule}" in text for rule in untold for text in workers)
        newest = mine.versions("worker_pitfalls")[-1]
        assert newest.active and any(text.endswith(newest.content.strip()) for text in workers)
        assert newest.parent == (1 if named else 2)
        mine.activate("worker_pitfalls", 2)


def test_what_runs_use_is_what_was_measured_also_of_versions_that_a_suite_names(tmp_path: Path):
    """Another version was active: with an update beside it, nobody knows what it comes to."""
    named = "gate: rollback\nbaseline_artifacts: {pattern_library: 0}\n"
    it = world(tmp_path, Cast(proposes=in_order(HARMFUL[0], GOOD[0], GOOD[1])), named)
    before = own_artifacts()
    epoch = Epoch(
        id="x/0",
        suite="x",
        number=0,
        started=0.0,
        ended=0.0,
        loss=None,
        before=before,
        after={**before, "pattern_library": "* Do as you did before.\n"},
        kept=True,
        uses=("pattern_library",),
    )
    it.registry.record(epoch)
    used: list[tuple[int, int]] = []

    class Watches:
        def on_event(self, event: Event, state: State) -> None:
            active = it.registry.active()
            used.append((active["pattern_library"].number, active["worker_pitfalls"].number))

    ended = it.start(it.plan(epochs=3), (Watches(),))
    outcomes = [step.verdict.outcome for step in ended.state.history]
    assert outcomes == ["discard", "keep", "keep"]
    # as long as nothing was better, runs use what they did
    assert list(dict.fromkeys(used)) == [(1, 0), (0, 2), (0, 3)]


@pytest.mark.slow
def test_of_a_large_suite_runs_use_only_what_is_proven_for_other_tasks(tmp_path: Path):
    cast = Cast(proposes=in_order(GOOD[0], HARMFUL[0]), noise=random.Random(1))
    it = world(tmp_path, cast, "race: fast\n", tasks=[f"t{n:02}" for n in range(16)])
    used: list[int] = []

    class Watches:
        def on_event(self, event: Event, state: State) -> None:
            used.append(it.registry.active()["worker_pitfalls"].number)

    ended = it.start(it.plan(epochs=2), (Watches(),))
    codes = [(step.turn.proposer, step.verdict.outcome) for step in ended.state.history]
    assert codes[:3] == [("update", "keep"), ("update", "discard"), ("prove", "skip")]
    # what leads was a version for two epochs, and active only when it was proven
    proven = next(n for n, number in enumerate(used) if number)
    assert len(used) - proven < len(used) / 2 and set(used) == {0, 1}
    events = [told["events"] for _, _, _, told in it.registry.epochs()]
    assert events[2] == [{"type": "promotion", "artifact": "worker_pitfalls", "to": 1}]


def test_a_run_that_goes_on_is_told_what_it_began_with_whatever_is_active_by_now(tmp_path: Path):
    (tmp_path / "m.jsonl").write_text("")
    settings = ("models.manager=scripted/m.jsonl", "walls=off")
    asked = Asked(task="Write it", folder=str(tmp_path), settings=settings)
    first = compile_agent_run(asked).plan
    it = world(tmp_path, Cast(proposes=in_order(GOOD[0])), "gate: rollback\n", tasks=("may",))
    it.start(it.plan(epochs=1))
    now = compile_agent_run(asked).plan
    assert GOOD[0] in now.seed.texts["worker_pitfalls"] not in first.seed.texts.values()
    again = compile_agent_run(asked, before=Before(first.seed.texts)).plan
    check_drift(inputs_of(first), inputs_of(again), "run")
    with pytest.raises(JournalError, match="artifacts changed"):
        check_drift(inputs_of(first), inputs_of(now), "run")


def test_what_was_never_run_is_no_version_that_was_rolled_back(tmp_path: Path):
    """A guard refuses a prompt that copies the words of a task."""
    task = "write a report on may to report.md as it was told to us by the board"
    cast = Cast(proposes=in_order(task))
    it = world(tmp_path, cast, "gate: rollback\n", tasks=("may",))
    it.path.write_text(it.path.read_text().replace("Write a report on may to report.md", task))
    ended = it.start(it.plan(epochs=1))
    (step,) = ended.state.history
    assert (step.verdict.outcome, step.verdict.code) == ("discard", "guard")
    assert len(it.registry.versions("worker_pitfalls")) == 1
    assert [told["events"] for _, _, _, told in it.registry.epochs()] == [[]]


def test_a_task_weighs_its_loss_as_it_says(tmp_path: Path):
    it = world(tmp_path, Cast(proposes=in_order(None)), "gate: rollback\n", tasks=("may", "june"))
    text = it.path.read_text()
    own = "on june to report.md\n    weights: {critique: 0, eval: 0}"
    it.path.write_text(text.replace("on june to report.md", own))
    ended = it.start(it.plan(epochs=1))
    with Run(ended.folder) as run:
        found = {job.case_id: out.metrics["loss"] for _, job, out in run.rollouts()}
    assert found["may"] > 0.1 > found["june"]
