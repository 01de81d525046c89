"""What an environment may ask for: a judge, files in and out, a purpose, tools of its episodes."""

import asyncio
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest

from kept.core.artifact import Candidate
from kept.core.case import Case
from kept.core.llm import Image, Message, ModelReply, ModelRequest, ToolCall
from kept.core.ports import Runner, Scope, Tool
from kept.core.rollout import NO_FILES, Failure, Job, Purpose, Rollout, Usage
from kept.core.score import Score
from kept.engine.replay import JournalScope
from kept.errors import SetupError, SpecError
from kept.evaluators.environments.base import (
    Defect,
    Environment,
    EnvSettings,
    Episode,
    Graded,
    Item,
    JudgeOptions,
    JudgeQuestion,
    OneReply,
    Posed,
    Turn,
)
from kept.evaluators.environments.chat_student import ChatRunner, EnvScorer
from kept.evaluators.environments.coding_agent_student import WorkspaceRunner
from kept.evaluators.environments.datasets import part
from kept.evaluators.environments.qa import SearchQa
from kept.evaluators.environments.registry import find_env
from kept.testing import MemoryJournal, ScriptedModel, ScriptedTool
from tests.evaluators.environments.drawing import page
from tests.evaluators.environments.test_splitting import by_folder, by_ratio, rows, write
from tests.sandbox.coding_agents.stand_in import harness, put

CASE = Case("c", {"question": "Is it so?"})
JOB = Job("x", "c", 0, "decide")
WRONG = Graded(0.0, 0.0, "it does not agree")


def verdict(text: str) -> Graded | Failure:
    return Graded(1.0, 1.0, told="judge: True") if "true" in text.lower() else WRONG


class Judged(JudgeOptions):
    """Has a model say whether an answer is right."""

    name = "judged"

    def read(self, path: Path) -> Iterable[Item]:
        return []

    def pose(self, case: Case) -> Posed:
        return Posed("Is it so?")

    def grade(self, case: Case, rollout: Rollout) -> Graded | JudgeQuestion | Failure:
        asked = ModelRequest((Message("user", f"Is `{rollout.output}` right?"),))
        return JudgeQuestion(asked, verdict, WRONG)


def score(judge: ScriptedModel | None, journal: MemoryJournal | None = None) -> Score | Failure:
    async def once() -> Score | Failure:
        scope = JournalScope(journal or MemoryJournal(), JOB)
        scorer = EnvScorer(Judged(), judge)
        return await scorer.score(JOB, Rollout("yes"), Candidate({}), CASE, scope)

    return asyncio.run(once())


def test_a_judge_decides_once_and_a_resume_does_not_ask_again():
    judge, journal = ScriptedModel(["True, it agrees."]), MemoryJournal()
    first, again = score(judge, journal), score(judge, journal)
    assert isinstance(first, Score) and first.metrics["hard"] == 1
    assert first == again and judge.calls == 1
    assert "judge: True" in first.details[0].text
    assert judge.requests[0].messages[0].text == "Is `yes` right?"


def test_without_a_judge_the_rule_of_the_environment_decides():
    found = score(None)
    assert isinstance(found, Score) and found.metrics["hard"] == 0
    assert found.findings[0].text == "it does not agree"


@pytest.mark.parametrize(("kind", "tried"), [("refused", True), ("server", False)])
def test_a_failure_of_the_judge_is_never_the_candidates(kind: str, tried: bool):
    judge = ScriptedModel(())
    blame = "candidate" if kind == "refused" else "infrastructure"
    judge.fail(Failure(kind, blame, "no"))  # type: ignore[arg-type] # one of the words
    found = score(judge)
    assert isinstance(found, Failure)
    assert (found.blame, found.tried) == ("infrastructure", tried)
    assert found.message == "the judge `scripted`: no"


@dataclass(frozen=True)
class Filed(Environment):
    """Gives a file and a picture, and is given files back."""

    seen: list[tuple[Purpose, str, Mapping[str, bytes]]]
    name = "filed"

    def read(self, path: Path) -> Iterable[Item]:
        return []

    def pose(self, case: Case) -> Posed:
        return Posed("look")

    def begin(self, case: Case, job: Job, scope: Scope) -> Episode:
        return Filing(self, job)

    def grade(self, case: Case, rollout: Rollout) -> Graded | Failure:
        right = float(rollout.files.get("out.txt") == b"done\n")
        return Graded(right, right, "" if right else "out.txt is not there")


class Filing(OneReply):
    def __init__(self, env: Filed, job: Job) -> None:
        picture = Image("image/png", page("hello"))
        posed = Posed.of(["Sum up ", picture, " now."])
        super().__init__(Posed(posed.prompt, "", {"in.txt": b"given\n"}, posed.images))
        self._env, self._job = env, job

    def tools(self) -> Sequence[Tool]:
        return (ScriptedTool("look", "Ann was here"),)

    async def answer(self, said: str, files: Mapping[str, bytes] = NO_FILES) -> Turn | Failure:
        self._env.seen.append((self._job.purpose, said, files))
        return Turn(output="ended", files=files or {"out.txt": b"done\n"})


def rolled(
    env: Environment, runner: Callable[[Environment], Runner], purpose: Purpose = "feedback"
) -> tuple[Rollout | Failure, Score | Failure | None]:
    async def once() -> tuple[Rollout | Failure, Score | Failure | None]:
        job = Job("x", "c", 0, purpose)
        scope = JournalScope(MemoryJournal(), job)
        mine, candidate = runner(env), Candidate({"SKILL.md": "Be brief.\n"})
        rollout = await mine.run(job, candidate, CASE, scope)
        if isinstance(rollout, Failure):
            return rollout, None
        return rollout, await EnvScorer(env).score(job, rollout, candidate, CASE, scope)

    return asyncio.run(once())


def test_an_episode_knows_its_purpose_has_tools_and_hands_files_to_the_scorer():
    wants = ModelReply("", Usage(1), "tool_calls", (ToolCall("1", "look", "{}"),))
    model = ScriptedModel([wants, "said"])
    env = Filed([])
    rollout, found = rolled(env, lambda env: ChatRunner(env, model), "screen")
    assert isinstance(rollout, Rollout) and isinstance(found, Score)
    assert env.seen == [("screen", "said", {})]
    assert rollout.output == "ended" and found.metrics["hard"] == 1
    assert [item.text for item in rollout.trace if item.role == "tool"] == ["Ann was here"]
    asked = model.requests[0].messages[-1]
    assert asked.text == "Sum up  now." and asked.images[0].at == 7
    assert [i.text for i in rollout.trace if i.role == "user"] == ["Sum up [picture 1] now."]


def test_an_agent_finds_files_and_pictures_and_what_it_left_is_graded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    seen = tmp_path / "seen"
    line = (
        f"cat > /dev/null; (cat task.md; echo; ls images; cat in.txt) > {seen}; echo done > out.txt"
    )
    put(tmp_path, line, monkeypatch)
    env = Filed([])
    rollout, found = rolled(env, lambda env: WorkspaceRunner(env, harness(tmp_path)))
    assert isinstance(rollout, Rollout), rollout
    told = seen.read_text()
    assert "Sum up [picture: images/01.png] now." in told
    assert told.endswith("01.png\ngiven\n")
    purpose, said, files = env.seen[0]
    assert purpose == "feedback" and said and files == {"out.txt": b"done\n"}
    assert isinstance(found, Score) and found.metrics["hard"] == 1


class Gone(SearchQa):
    """Cannot pose its case any more."""

    def pose(self, case: Case) -> Posed:
        raise SetupError("the picture x.png has changed since its case was read")


def test_data_that_is_gone_is_a_failure_of_infrastructure():
    found, _ = rolled(Gone(), lambda env: ChatRunner(env, ScriptedModel(())))
    assert isinstance(found, Failure)
    assert (found.kind, found.blame) == ("harness", "infrastructure")
    assert "x.png has changed" in found.message
    assert ChatRunner(Gone(), ScriptedModel((), worst=1.0)).worst_usd(Candidate({}), CASE) is None


@dataclass(frozen=True)
class Rooted(SearchQa):
    data_root: Path = Path("data/Rooted")
    data_dirs: tuple[Path, ...] = (Path("docs"),)
    other: Path | None = None


def test_options_that_are_paths_begin_where_those_of_the_config_do(tmp_path: Path):
    options = {"data_dirs": ["a", "/b"]}
    env = find_env(EnvSettings(name=f"{__name__}:Rooted", folder=tmp_path, options=options))
    assert isinstance(env, Rooted)
    assert env.data_root == tmp_path / "data" / "Rooted"
    assert env.data_dirs == (tmp_path / "a", Path("/b"))
    assert env.other is None


class Stratified(SearchQa):
    strata = "context"


class Defective(SearchQa):
    data = "trivia from its publisher, as JSON, into `env.split_dir`"

    def defects(self, items: Sequence[Item]) -> Iterable[Defect]:
        for one in items:
            if one.case.id in ("q1", "q2"):
                yield Defect(one.case.id, "solved by doing nothing")
            if one.case.id in ("q3", "q4"):
                yield Defect(one.case.id, "never solved", left_out=True)


def test_a_split_by_ratio_has_its_share_of_every_stratum(tmp_path: Path):
    given = [{**row, "context": "ab"[n % 2]} for n, row in enumerate(rows(40))]
    write(tmp_path / "raw.json", given)
    parted = part(Stratified(), by_ratio(tmp_path))
    counts = [
        [case.data["context"] for case in mine].count("a")  # type: ignore[index] # a row
        for mine in (parted.cases.train, parted.cases.holdout, parted.cases.test)
    ]
    assert counts == [4, 2, 14]
    assert parted.manifest is not None and parted.manifest["strata"] == "context"
    plain = part(SearchQa(), by_ratio(tmp_path)).manifest
    assert plain is not None and "strata" not in plain


def test_a_limit_takes_the_first_cases(tmp_path: Path):
    write(tmp_path / "raw.json", rows(40))
    cases = part(SearchQa(), by_ratio(tmp_path, limit=10)).cases
    assert set(cases.by_id) == {f"q{n}" for n in range(10)}
    for name, begin in (("train", 0), ("val", 10), ("test", 20)):
        write(tmp_path / "split" / name / "items.json", rows(8, begin))
    cases = part(SearchQa(), by_folder(tmp_path, limit=2)).cases
    assert [[c.id for c in mine] for mine in (cases.train, cases.holdout, cases.test)] == [
        ["q0", "q1"],
        ["q10", "q11"],
        ["q20", "q21"],
    ]


@pytest.mark.parametrize("folder", [False, True])
def test_known_defects_are_named_all_at_once_and_some_cases_left_out(tmp_path: Path, folder: bool):
    if folder:
        for name, begin in (("train", 0), ("val", 10), ("test", 20)):
            write(tmp_path / "split" / name / "items.json", rows(8, begin))
        parted = part(Defective(), by_folder(tmp_path))
    else:
        write(tmp_path / "raw.json", rows(20))
        parted = part(Defective(), by_ratio(tmp_path))
    assert "q3" not in parted.cases.by_id and "q1" in parted.cases.by_id
    used, left = parted.notes
    assert used.startswith("2 cases: solved by doing nothing: `q1` (")
    assert ".json:9), `q2` (" in used
    assert left.startswith("2 cases are left out: never solved: `q3` (")


class Doubtful(SearchQa):
    def defects(self, items: Sequence[Item]) -> Iterable[Defect]:
        return [Defect(one.case.id, "no evidence") for one in items]


def test_of_very_many_cases_with_a_defect_some_are_named(tmp_path: Path):
    """A published file of which every row has it made a warning of 20,000 characters."""
    write(tmp_path / "raw.json", rows(60))
    (note,) = part(Doubtful(), by_ratio(tmp_path)).notes
    assert note.startswith("60 cases: no evidence: `q0` (") and note.endswith(" and 40 more")
    assert note.count("raw.json:") == 20


@pytest.mark.parametrize("settings", [by_ratio, by_folder])
def test_missing_data_is_one_error_that_says_what_to_get(
    tmp_path: Path, settings: Callable[[Path], EnvSettings]
):
    with pytest.raises(SpecError) as raised:
        part(Defective(), settings(tmp_path))
    (problem,) = raised.value.problems
    assert "there is no" in problem.message and problem.hint == Defective.data
