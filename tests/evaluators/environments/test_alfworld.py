import asyncio
import json
from collections.abc import Callable
from pathlib import Path

import pytest

from kept.core.artifact import Candidate
from kept.core.case import Case
from kept.core.llm import ModelRequest
from kept.core.rollout import Failure, Job, Rollout
from kept.core.score import Score
from kept.engine.replay import JournalScope
from kept.errors import SetupError, SpecError
from kept.evaluators.environments.alfworld import AlfWorld
from kept.evaluators.environments.base import EnvSettings
from kept.evaluators.environments.chat_student import ChatRunner, EnvScorer
from kept.evaluators.environments.registry import parted
from kept.models.scripted import Line
from kept.testing import EnvironmentSuite, MemoryJournal, ScriptedModel
from tests.evaluators.environments.games import COOL, LIGHT, SIMPLE, expert, games

__all__ = ["games"]

TINY = {
    "pddl_domain": "(define (domain alfred))",
    "grammar": 'grammar :: """{"task": [{"rhs": "Your task is to: put a cup in shelf."}]}"""',
    "pddl_problem": "(define (problem plan))",
    "solvable": True,
}


def tiny(folder: Path, task: str, trial: str = "trial_T1", **more: object) -> Path:
    path = folder / task / trial / "game.tw-pddl"
    path.parent.mkdir(parents=True)
    path.write_text(json.dumps({**TINY, **more}), encoding="utf-8")
    return path


def test_games_are_found_in_folders_as_alfworld_has_them(tmp_path: Path):
    first = tiny(tmp_path, "pick_and_place_simple-Cup-None-Shelf-1")
    tiny(tmp_path, "pick_heat_then_place_in_recep-Cup-None-Shelf-2")
    items = list(AlfWorld().read(tmp_path))
    case, where = items[0]
    assert case.id == "pick_and_place_simple-Cup-None-Shelf-1/trial_T1"
    assert where == f"{first}:1"
    about = AlfWorld().about(case)
    assert (about.task, about.type) == ("put a cup in shelf", "pick_and_place_simple")
    assert len(items) == 2


def test_games_that_cannot_be_played_are_left_out_as_alfworld_does(tmp_path: Path):
    tiny(tmp_path, "pick_and_place_simple-Cup-None-Shelf-1")
    tiny(tmp_path, "pick_and_place_with_movable_recep-Cup-Pan-Shelf-1")
    tiny(tmp_path, "pick_and_place_simple-AppleSliced-None-Shelf-1")
    tiny(tmp_path, "pick_and_place_simple-Cup-None-Shelf-2", solvable=False)
    assert len(list(AlfWorld().read(tmp_path))) == 1


def test_games_of_rows_are_read_and_those_missing_are_named(tmp_path: Path):
    tiny(tmp_path, "pick_and_place_simple-Cup-None-Shelf-1")
    game = "pick_and_place_simple-Cup-None-Shelf-1/trial_T1/game.tw-pddl"
    (tmp_path / "items.json").write_text(json.dumps([{"id": "a", "gamefile": game}]))
    (case, _), *_ = AlfWorld().read(tmp_path / "items.json")
    assert case.id == "a"
    (tmp_path / "items.json").write_text('[{"gamefile": "none/game.tw-pddl"}]')
    with pytest.raises(SpecError, match=r"items.json:1 there is no game `none/game.tw-pddl`"):
        list(AlfWorld().read(tmp_path / "items.json"))


def test_games_of_rows_that_cannot_be_played_are_left_out_by_name(tmp_path: Path):
    """One in the selection split had every step skipped, for its rollouts never had an answer."""
    tiny(tmp_path, "pick_and_place_simple-Cup-None-Shelf-1")
    tiny(tmp_path, "pick_and_place_simple-BaseballBat-None-Bed-2", solvable=False)
    tiny(tmp_path, "pick_and_place_with_movable_recep-Cup-Pan-Shelf-3")
    games = [str(one.relative_to(tmp_path)) for one in sorted(tmp_path.rglob("game.tw-pddl"))]
    rows = [{"id": f"g{n}", "gamefile": game} for n, game in enumerate(games)]
    (tmp_path / "items.json").write_text(json.dumps(rows))
    env = AlfWorld()
    found = env.defects(list(env.read(tmp_path / "items.json")))
    assert [(one.case_id, one.left_out) for one in found] == [("g0", True), ("g2", True)]


def test_games_of_a_published_list_of_paths_are_found_below_the_data(tmp_path: Path):
    """The published split of paths has them as they lie below `$ALFWORLD_DATA`."""
    tiny(tmp_path / "data/json_2.1.1/train", "pick_and_place_simple-Cup-None-Shelf-1")
    game = "json_2.1.1/train/pick_and_place_simple-Cup-None-Shelf-1/trial_T1/game.tw-pddl"
    (tmp_path / "items.json").write_text(json.dumps([{"id": "train:0000", "gamefile": game}]))
    env = AlfWorld(data_root=tmp_path / "data")
    assert [one.case.id for one in env.read(tmp_path / "items.json")] == ["train:0000"]
    with pytest.raises(SpecError, match="`alfworld-download` gets the games"):
        list(AlfWorld(data_root=tmp_path).read(tmp_path / "items.json"))


def test_a_folder_without_games_is_refused(tmp_path: Path):
    with pytest.raises(SetupError, match=r"there is no game.tw-pddl in"):
        list(AlfWorld().read(tmp_path))


def test_its_own_splits_are_a_split_dir(tmp_path: Path):
    for n, name in enumerate(("train", "valid_seen", "valid_unseen")):
        tiny(tmp_path / name, f"pick_and_place_simple-Cup-None-Shelf-{n}", more=n)
    settings = EnvSettings(name="alfworld", split_mode="split_dir", split_dir=str(tmp_path))
    if AlfWorld().needs():
        with pytest.raises(SpecError, match=r"pip install 'alfworld>="):
            parted(AlfWorld(), settings)
    from kept.evaluators.environments.datasets import part

    cases = part(AlfWorld(), settings).cases
    assert (len(cases.train), len(cases.holdout), len(cases.test)) == (1, 1, 1)


@pytest.mark.alfworld
class TestAlfWorld(EnvironmentSuite):
    folder: Path

    @pytest.fixture(autouse=True)
    def _games(self, games: Path, tmp_path: Path):
        for name in (SIMPLE, LIGHT):
            (tmp_path / name).symlink_to(games / "valid_seen" / name)
        self.folder = tmp_path

    def make_env(self):
        # one process for all games of a test: it takes longer to start than they to be played
        return AlfWorld(max_steps=10, games_at_once=1)

    def data(self):
        rows = [str(one) for one in self.folder.glob("*/*/game.tw-pddl")]
        rows = [{"gamefile": str(Path(one).resolve())} for one in sorted(rows)]
        path = self.folder / "games.json"
        path.write_text(json.dumps([{"id": f"g{n}", **row} for n, row in enumerate(rows)]))
        return path

    def solving(self, case: Case):
        return expert(case)

    def failing(self, case: Case):
        def look(_: ModelRequest) -> Line:
            return "<action>look</action>"

        return look


def play(
    env: AlfWorld, case: Case, script: Callable[[ModelRequest], Line]
) -> tuple[Rollout | Failure, Score | Failure | None]:
    async def once() -> tuple[Rollout | Failure, Score | Failure | None]:
        runner, scorer = ChatRunner(env, ScriptedModel(script)), EnvScorer(env)
        candidate = Candidate(env.skill())
        job = Job(candidate.id, case.id, 0, "decide")
        scope = JournalScope(MemoryJournal(), job)
        try:
            rollout = await runner.run(job, candidate, case, scope)
            if isinstance(rollout, Failure):
                return rollout, None
            return rollout, await scorer.score(job, rollout, candidate, case, scope)
        finally:
            await runner.close()

    return asyncio.run(once())


@pytest.mark.alfworld
def test_the_expert_wins_two_real_games_and_a_wanderer_loses_one(games: Path):
    """The traces of all three can be read."""
    env = AlfWorld(max_steps=15)
    cases = {case.id.partition("/")[0]: case for case, _ in env.read(games / "valid_seen")}
    for name in (SIMPLE, COOL):
        rollout, score = play(env, cases[name], expert(cases[name]))
        assert isinstance(rollout, Rollout)
        assert isinstance(score, Score)
        assert score.metrics["hard"] == 1
        last = rollout.trace[-1]
        assert last.role == "step"
        assert (
            last.data["action"]
            == {
                SIMPLE: "put book 1 in/on sofa 1",
                COOL: "put apple 1 in/on garbagecan 1",
            }[name]
        )
        assert last.text.startswith("You put the")
        assert str(last.data["reasoning"]).startswith("Step ")
        assert "Your task is to: put a" in rollout.trace[1].text
        assert "Possible actions:\n- go to" in rollout.trace[1].text
    rollout, score = play(env, cases[SIMPLE], lambda _: "<action>go to drawer 1</action>")
    assert isinstance(rollout, Rollout)
    assert isinstance(score, Score)
    assert (score.metrics["hard"], score.metrics["steps"]) == (0, 15)
    assert score.findings[0].text == "the task is not done after 15 steps: put a book in sofa"
    assert [item.role for item in rollout.trace] == ["system", "user", *["step"] * 15]


@pytest.mark.alfworld
def test_games_go_on_independently_of_one_another(games: Path):
    """A game of four steps is over while another, at its own pace, has many to go."""
    env = AlfWorld(max_steps=12, games_at_once=2)
    cases = {case.id.partition("/")[0]: case for case, _ in env.read(games / "valid_seen")}
    winner = expert(cases[SIMPLE])
    over: list[str] = []

    async def one(case: Case, script: Callable[[ModelRequest], Line]) -> None:
        runner = ChatRunner(env, ScriptedModel(script))
        candidate = Candidate(env.skill())
        job = Job(candidate.id, case.id, 0, "decide")
        await runner.run(job, candidate, case, JournalScope(MemoryJournal(), job))
        over.append(case.id.partition("/")[0])

    async def both() -> None:
        look: Callable[[ModelRequest], Line] = lambda _: "<action>look</action>"  # noqa: E731
        await asyncio.gather(one(cases[COOL], look), one(cases[SIMPLE], winner))
        await env.close()

    asyncio.run(both())
    assert over == [SIMPLE, COOL]


@pytest.mark.alfworld
def test_a_reply_without_an_action_is_no_action(games: Path):
    """The original played `look` where it could not read a reply, and where there was none."""
    env = AlfWorld()
    case = next(case for case, _ in env.read(games / "valid_seen") if SIMPLE in case.id)
    rollout, score = play(env, case, lambda _: "I would look around first.")
    assert isinstance(rollout, Rollout)
    assert isinstance(score, Score)
    assert score.failure is not None
    assert (score.failure.kind, score.failure.blame) == ("parse", "candidate")
    assert not [item for item in rollout.trace if item.role == "step"]


@pytest.mark.alfworld
def test_a_game_that_cannot_be_opened_is_no_fault_of_the_student(games: Path, tmp_path: Path):
    tiny(tmp_path, "pick_and_place_simple-Cup-None-Shelf-1")
    (case, _), *_ = AlfWorld().read(tmp_path)
    rollout, _ = play(AlfWorld(), case, lambda _: "<action>look</action>")
    assert isinstance(rollout, Failure)
    assert rollout.blame == "infrastructure"
