"""`--gate race`: what iterations left is read again and again; a lucky loss decides nothing."""

import json
import random
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from kept.core.plan import Plan
from kept.core.rollout import Failure
from kept.core.schedules.refine import reruns, unpaid, unread
from kept.errors import SetupError, SpecError
from kept.orchestrator.refine.attempt import all_made
from kept.orchestrator.refine.best import BEST, Winner, write_best
from kept.orchestrator.refine.session import Told
from kept.orchestrator.run_folder.read import read_run
from kept.recipes.refine.request import Refinement, RefinementFacts, with_more
from kept.recipes.registry import request_of
from kept.store.overview import journalled_spend
from kept.store.reader import Run
from kept.ui.cli._refine_run import Refined, told_of
from tests.engine.cutting import calls, rows
from tests.orchestrator.play import say
from tests.orchestrator.run_folder.made import synthetic_run
from tests.recipes.refine.test_refine import best, session
from tests.recipes.refine.world import TASK, Attempted, World, world

LUCKY = "# Report\n\nLucky.\n"
SHORT = "# Report\n\nShort.\n"
GOOD = "# Report\n\nGood.\n"
SPREAD = 0.05
"""Of the critic's score; of the loss it is three tenths of that."""


def measure_of(plan: Plan) -> str:
    assert isinstance(plan.facts, RefinementFacts)
    return plan.facts.measure


def critic(worth: dict[str, float], spread: float = SPREAD) -> Callable[[str, int], str]:
    """Sees what a text is worth, give or take."""

    def look(text: str, nth: int) -> str:
        true = next((score for words, score in worth.items() if words in text), 0.75)
        score = true + random.Random(nth).gauss(0, spread) if spread else true
        return say({"score": min(1.0, max(0.0, score)), "defects": [], "summary": "so"})

    return look


def seeded(folder: Path) -> Path:
    seed = synthetic_run(folder / "seed", task=TASK)
    (seed / "FINAL" / "out.md").rename(seed / "FINAL" / "report.md")
    (seed / "FINAL" / "report.md").write_text(SHORT)
    return seed


def raced(folder: Path, *attempts: Attempted, gate: str = "race", **more: object) -> World:
    many = len(attempts)
    it = world(folder, *attempts, seed=seeded(folder), gate=gate, iterations=many, **more)
    it.look = critic({"Lucky": 0.75, "Good": 0.97})
    return it


def test_a_lucky_loss_is_believed_by_follow_and_not_by_a_race(tmp_path: Path):
    # its own critic was in a good mood; others find it as good as the seed
    lucky = Attempted(0.99, LUCKY)
    believed = raced(tmp_path / "follow", lucky, gate="follow")
    believed.start()
    assert session(believed)["best_iter"] == 1
    it = raced(tmp_path / "race", lucky)
    it.start()
    told = session(it)
    assert (told["best_iter"], told["gate"]) == (0, "race")
    assert not (it.seed / BEST).exists()


def test_what_is_better_in_many_readings_is_kept_and_best_has_their_mean(tmp_path: Path):
    it = raced(tmp_path, Attempted(0.8, GOOD))
    it.start()
    told = session(it)
    assert told["best_iter"] == 1
    assert best(it)["report.md"] == GOOD.encode()
    manifest = json.loads(best(it)["manifest.json"])
    parts = manifest["loss_breakdown"]
    # of a critic who gives 0.97 in the mean, and not what the run's own one gave
    assert parts["critique"] == pytest.approx(0.3 * 0.03, abs=0.01)
    assert manifest["best_loss"] == parts["total"] < manifest["seed_loss"]
    assert told["iterations"][0]["measured_loss"] == pytest.approx(parts["total"], abs=1e-3)


def test_a_mean_of_readings_does_not_replace_what_a_run_said_of_itself(tmp_path: Path):
    first = raced(tmp_path / "one", Attempted(0.76, LUCKY), gate="follow")
    first.start()
    assert best(first)["report.md"] == LUCKY.encode()
    it = world(tmp_path, Attempted(0.8, GOOD), seed=first.seed, gate="race", iterations=1)
    it.look = critic({"Good": 0.97})
    it.start()
    assert json.loads((it.seed / "refinement_sessions" / "refine_1.json").read_text())["best_iter"]
    assert best(it)["report.md"] == LUCKY.encode()
    again = raced(tmp_path / "two", Attempted(0.8, GOOD))
    again.start()
    measure = json.loads(best(again)["manifest.json"])["measure"]
    assert measure.startswith("race:")
    # criteria are another measure
    other = raced(tmp_path / "three", Attempted(0.8, GOOD), cases=str(criteria(tmp_path)))
    assert measure_of(other.plan()) not in (measure, "follow")


def test_a_session_says_how_noisy_the_loss_of_one_reading_was_measured_to_be(tmp_path: Path):
    it = raced(tmp_path, Attempted(0.8, LUCKY), Attempted(0.8, LUCKY + "More.\n"))
    it.start()
    noise = session(it)["noise"]
    assert noise["readings"] >= 5
    # half and twice what is true, which so few readings can tell
    assert 0.15 * SPREAD < noise["deviation"] < 0.6 * SPREAD


def test_readings_that_agree_are_few_and_said_to_be_without_noise(tmp_path: Path):
    it = raced(tmp_path, Attempted(0.8, GOOD))
    it.look = critic({"Good": 0.97}, spread=0.0)
    it.start()
    told = session(it)
    assert (told["best_iter"], told["noise"]["deviation"]) == (1, 0.0)
    assert len(it.looks) == 5  # the seed three times, what is kept twice


def test_without_a_race_no_noise_is_told_of(tmp_path: Path):
    it = raced(tmp_path, Attempted(0.8), gate="follow")
    it.start()
    told = session(it)
    assert (told["gate"], told["noise"]) == ("follow", None)
    assert it.looks == []


def test_fault_4_a_gain_without_a_better_deliverable_is_none_in_a_race(tmp_path: Path):
    # the same file, by a run that went more smoothly than the seed's
    for gate, found in (("follow", 1), ("race", 0)):
        it = raced(tmp_path / gate, Attempted(0.95, SHORT), gate=gate)
        it.look = critic({}, spread=0.0)
        it.start()
        assert session(it)["best_iter"] == found, gate


def test_an_iteration_starts_from_what_was_kept_and_not_from_a_lucky_one(tmp_path: Path):
    it = raced(tmp_path, Attempted(0.99, LUCKY), Attempted(0.8, GOOD))
    it.start()
    first, second = session(it)["iterations"]
    assert (first["parent_run_id"], second["parent_run_id"]) == ("seed_1", "seed_1")
    assert session(it)["best_iter"] == 2


def criteria(folder: Path, number: int = 10) -> Path:
    path = folder / "criteria.jsonl"
    lines = [json.dumps({"criterion": f"is point {n} right?"}) for n in range(number)]
    path.write_text("\n".join(lines) + "\n")
    return path


def test_criteria_are_cases_that_every_reading_is_about(tmp_path: Path):
    it = raced(tmp_path, Attempted(0.8, GOOD), cases=str(criteria(tmp_path)))
    it.start()
    told = session(it)
    assert told["best_iter"] == 1, told
    assert {n for n in range(10) for text in it.looks if f"is point {n} right?" in text} == {
        *range(10)
    }
    assert told["noise"]["deviation"] == pytest.approx(0.3 * SPREAD, rel=0.5)
    assert best(it)["report.md"] == GOOD.encode()


def test_a_file_of_criteria_is_refused_with_all_that_is_wrong(tmp_path: Path):
    path = tmp_path / "criteria.jsonl"
    path.write_text('"fine"\n{"criterion": 3}\n{"criterion": "x", "colour": "red"}\n')
    it = raced(tmp_path, Attempted(), cases=str(path))
    with pytest.raises(SpecError) as raised:
        it.plan()
    assert [problem.where.rpartition(":")[2] for problem in raised.value.problems] == ["2", "3"]
    it = raced(tmp_path / "few", Attempted(), cases=str(criteria(tmp_path, 7)))
    with pytest.raises(SetupError, match="needs 8 of them"):
        it.plan()


def test_a_race_that_was_cut_asks_no_critic_twice(tmp_path: Path):
    attempts = (Attempted(0.99, LUCKY), Attempted(0.8, GOOD))
    it = raced(tmp_path, *attempts)
    whole, state = it.start()
    spine = (whole / "journal.jsonl").read_bytes().splitlines(keepends=True)
    lines = (whole / "rollouts.jsonl").read_bytes().splitlines(keepends=True)
    kinds = [json.loads(line)["kind"] for line in spine]
    first, last = (n for n, kind in enumerate(kinds) if kind == "step_closed")
    second = json.loads(spine[kinds.index("step_opened", first)])["rollouts_at"]
    sizes = [len(b"".join(lines[:n])) for n in range(len(lines))]
    # while the readings of each were coming in, and at the end
    cuts = [(first, sizes.index(second) - 3), (last, len(lines) - 3), (len(spine) - 1, len(lines))]
    part = tmp_path / "part"
    for events, written in cuts:
        shutil.rmtree(part, ignore_errors=True)
        shutil.rmtree(it.seed / BEST)
        part.mkdir()
        (part / "journal.jsonl").write_bytes(b"".join(spine[:events]))
        (part / "rollouts.jsonl").write_bytes(b"".join(lines[:written]))
        shutil.copy(whole / "blobs.pack", part)
        again = world(tmp_path, *attempts, seed=it.seed, gate="race", iterations=2)
        again.look = it.look
        _, ended = again.resume(part)
        assert max(calls(rows(part)).values()) == 1
        assert ended.best_step == state.best_step
        assert (it.seed / BEST / "report.md").read_text() == GOOD
    assert read_run(it.seed).run_id == "seed_1"


def unreadable(words: str) -> Callable[[str, int], str]:
    """A critic whose defects lack what they must have, of a deliverable with these words."""
    sound = critic({"Good": 0.97}, spread=0.0)
    bad = say({"score": 0.6, "defects": [{"summary": "x", "severity": "critical"}]})
    again = "That does not satisfy the schema"
    return lambda text, nth: bad if words in text or again in text else sound(text, nth)


def test_a_critic_who_cannot_be_read_is_no_failure_of_the_incumbent(tmp_path: Path):
    it = raced(tmp_path, Attempted(0.8, "# Report\n\nWorse.\n"))
    it.look = unreadable("Short")
    _, state = it.start()
    (step,) = state.history
    assert (step.verdict.outcome, step.verdict.code) == ("skip", "indecisive")
    assert "of the incumbent" in step.verdict.reason
    assert session(it)["best_iter"] == 0 and not (it.seed / BEST).exists()


def test_what_a_critic_cannot_be_read_on_alone_is_not_kept(tmp_path: Path):
    it = raced(tmp_path, Attempted(0.8, GOOD))
    it.look = unreadable("Good")
    _, state = it.start()
    (step,) = state.history
    assert step.verdict.outcome == "crash"
    assert not (it.seed / BEST).exists()


def test_asks_that_a_schema_refused_are_counted_once(tmp_path: Path):
    it = raced(tmp_path, Attempted(0.8, GOOD))
    it.look = unreadable("Report")
    folder, state = it.start()
    assert journalled_spend(folder, state).calls == it.calls + len(it.looks)


def test_nothing_is_the_best_whose_readings_are_no_better_than_those_of_the_seed(tmp_path: Path):
    it = raced(tmp_path, Attempted(0.8, GOOD))
    folder, state = it.start()
    with Run(folder) as run:
        made = all_made(run.candidate(state.seed), reruns(state))
    assert Told(state, made).best_iter == 1
    seed, best = state.seed, state.best
    swapped = {seed: state.evaluations[best], best: state.evaluations[seed]}
    for known in (swapped, {best: state.evaluations[best]}):
        assert Told(state._replace(evaluations=known), made).best_iter == 0


class Away:
    """A critic who sometimes does not answer, of a deliverable with these words."""

    def __init__(self, words: str, until: str = "") -> None:
        self.words = words
        self.until = until
        """Back when asked of one with these."""
        self.gone = True
        self.sound = critic({"Good": 0.97}, spread=0.0)

    def __call__(self, text: str, nth: int) -> Any:
        self.gone = self.gone and not (self.until and self.until in text)
        if self.gone and self.words in text:
            return Failure("server", "infrastructure", "overloaded", tried=True)
        return self.sound(text, nth)


def test_an_iteration_whose_readings_an_outage_took_is_judged_again_and_not_run_again(
    tmp_path: Path,
):
    it = raced(tmp_path, Attempted(0.8, GOOD), Attempted(0.8, LUCKY))
    it.look = Away("Good", until="Lucky")
    _, state = it.start()
    assert [step.turn.settings["k"] for step in state.history] == [1, 2, 1]
    assert next(iter(state.history)).verdict.code == "indecisive"
    told = session(it)
    assert (told["best_iter"], told["stop_reason"]) == (1, "max_iterations")
    assert [row["k"] for row in told["iterations"]] == [1, 2]
    assert best(it)["report.md"] == GOOD.encode()
    alone = raced(tmp_path / "alone", Attempted(0.8, GOOD), Attempted(0.8, LUCKY))
    alone.start()
    assert it.calls == alone.calls, "nobody worked again"


def test_a_session_with_an_iteration_that_nobody_could_read_is_not_done(tmp_path: Path):
    it = raced(tmp_path, Attempted(0.8, LUCKY), Attempted(0.8, GOOD))
    away = it.look = Away("Good")
    folder, state = it.start()
    assert state.stopped is not None and state.stopped.kind == "error"
    assert "iteration 2 ran, and could not be judged" in state.stopped.message
    assert session(it)["stop_reason"] == "error:unread"
    assert unread(reruns(state)) == [2]
    calls = it.calls
    away.gone = False
    _, state = it.resume(folder)
    told = session(it)
    assert (told["best_iter"], told["stop_reason"]) == (2, "max_iterations")
    assert it.calls == calls and unread(reruns(state)) == []


def test_all_readings_of_a_session_have_one_budget_and_none_goes_beyond_it(tmp_path: Path):
    it = raced(tmp_path, Attempted(0.8, LUCKY), Attempted(0.8, GOOD))
    it.price, it.usd = 0.1, 0.75
    folder, state = it.start()
    assert state.stopped is not None and state.stopped.kind == "usd", state.stopped
    # what iterations cost is limited apart, and all the readings together
    assert journalled_spend(folder, state).usd == pytest.approx(0.7)
    assert len(it.looks) == 7
    told = session(it)
    assert (told["stop_reason"], told["best_iter"]) == ("usd", 0)
    assert unpaid(state) == [len(told["iterations"]) + 1]
    it.looks.clear()
    _, state = it.resume(folder)
    assert it.looks == [] and state.stopped is not None and state.stopped.kind == "usd"
    with Run(folder) as run:
        rows = dict(Refined(told_of(run, state), it.asked, folder).rows())
    assert rows["go on"].endswith(f"resume {folder} --set budget.max_usd=1.5")
    # with more for readings what ran is judged, and nobody works again
    ran, it.asked = it.calls, with_more(it.asked, ("budget.max_usd=19",), 0.75)
    _, state = it.resume(folder)
    assert session(it)["stop_reason"] == "max_iterations" and unpaid(state) == []
    assert len(session(it)["iterations"]) == 2 and 0.75 < journalled_spend(folder, state).usd < 19
    with Run(folder) as run:
        asked = request_of(run, Refinement)
        assert asked is not None and asked.readings_usd == 19, "a later resume needs no flag"
    assert it.calls == 2 * ran, "the first attempt ran once, and the second now"
    for before, setting in ((None, "19"), (0.75, "null")):
        with pytest.raises(SetupError, match=r"budget\.max_usd"):
            with_more(it.asked, (f"budget.max_usd={setting}",), before)


@pytest.mark.parametrize(("later", "found"), [(0.86, 2), (0.94, 1), (0.3, 0)])
def test_best_is_what_all_readings_of_a_session_say_at_its_end(
    tmp_path: Path, later: float, found: int
):
    second = "Second" if found else "Poor"
    texts = (f"# Report\n\n{word}.\n" for word in ("First", second))
    it = raced(tmp_path, *(Attempted(0.8, text) for text in texts))
    # the seed is worth 0.75
    worth = {"First": 0.97, "Second": 0.93, "Poor": 0.6}
    it.look = critic(worth, 0.01)
    # whoever reads the first again thinks otherwise of it
    it.watch = lambda k: worth.update({"First": later} if k == 2 else {})
    it.start()
    told = session(it)
    assert told["best_iter"] == found
    if not found:
        assert not (it.seed / BEST).exists()
        return
    row = told["iterations"][found - 1]
    manifest = json.loads(best(it)["manifest.json"])
    assert manifest["best_run_id"] == row["run_id"]
    assert manifest["best_loss"] == row["measured_loss"]


def test_a_race_that_goes_on_later_leaves_what_another_session_put_into_best(tmp_path: Path):
    alone = raced(tmp_path / "alone", Attempted(0.8, GOOD))
    alone.look = Away("nobody")
    alone.start()
    loss = json.loads(best(alone)["manifest.json"])["best_loss"]
    it = raced(tmp_path, Attempted(0.8, GOOD), Attempted(0.8, LUCKY))
    away = it.look = Away("Lucky")
    other = Winner(
        best_run_id="old",
        best_loss=loss + 0.001,
        seed_loss=0.9,
        session_id="refine_0",
        winning_run_dir="old",
        loss_breakdown={},
        measure=measure_of(it.plan()),
    )
    write_best(it.seed, other, {"report.md": b"old"})
    folder, state = it.start()
    assert state.stopped is not None and state.stopped.resumable, state.stopped
    assert session(it)["best_iter"] == 1
    assert best(it)["report.md"] == b"old", "its mean may still move above what it would replace"
    with Run(folder) as run:
        refined = Refined(told_of(run, state), it.asked, folder)
    assert "until this race has come to its end" in str(refined.document()["best_left"])
    away.gone = False
    it.resume(folder)
    assert best(it)["report.md"] == GOOD.encode()
