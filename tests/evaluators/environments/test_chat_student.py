import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from kept.core.artifact import Candidate
from kept.core.case import Case
from kept.core.llm import ModelReply, ModelRequest, ToolCall
from kept.core.ports import Scope, Tool
from kept.core.rollout import NO_FILES, Failure, Job, Rollout, TraceItem, Usage
from kept.core.score import Score
from kept.engine.replay import JournalScope
from kept.evaluators.environments.base import (
    Environment,
    Episode,
    Graded,
    Item,
    OneReply,
    Posed,
    Turn,
)
from kept.evaluators.environments.chat_student import (
    ChatRunner,
    EnvScorer,
    probed,
    skill_text,
    system_prompt,
)
from kept.evaluators.environments.qa import SearchQa
from kept.models.scripted import Line
from kept.testing import MemoryJournal, ScriptedModel, ScriptedTool
from kept.testing.suites.evaluators import RunnerSuite

DATA = Path(__file__).parent / "data" / "searchqa.json"
SKILL = {"SKILL.md": "Be brief.\n"}


def rolled(
    env: Environment,
    model: ScriptedModel,
    texts: Mapping[str, str] = SKILL,
    journal: MemoryJournal | None = None,
) -> tuple[Rollout | Failure, Score | Failure | None]:
    async def once() -> tuple[Rollout | Failure, Score | Failure | None]:
        case = Case("c", {"question": "Who?", "answers": ["Ann"], "context": ""})
        candidate = Candidate(texts)
        job = Job(candidate.id, case.id, 0, "feedback")
        scope = JournalScope(journal or MemoryJournal(), job)
        rollout = await ChatRunner(env, model).run(job, candidate, case, scope)
        if isinstance(rollout, Failure):
            return rollout, None
        return rollout, await EnvScorer(env).score(job, rollout, candidate, case, scope)

    return asyncio.run(once())


class TestChatRunner(RunnerSuite):
    def make_runner(self):
        return ChatRunner(SearchQa(), ScriptedModel(lambda _: "<answer>Ann</answer>"))

    def make_crashing_runner(self):
        away = Failure("network", "infrastructure", "connection reset")
        return ChatRunner(SearchQa(), ScriptedModel(lambda _: away))

    def make_hanging_runner(self):
        class Silent:
            name = "silent"

            async def complete(self, request: ModelRequest) -> ModelReply | Failure:
                await asyncio.sleep(3600)
                raise AssertionError

        return ChatRunner(SearchQa(), Silent())

    def candidate(self):
        return Candidate(SKILL)

    def case(self):
        return Case("c", {"question": "Who?", "answers": ["Ann"], "context": ""})


def test_the_trace_tells_what_was_said_and_what_came_of_it():
    rollout, score = rolled(SearchQa(), ScriptedModel(["<answer>Bob</answer>"]))
    assert isinstance(rollout, Rollout)
    assert isinstance(score, Score)
    told = [(item.role, item.text) for item in (*rollout.trace, *score.details)]
    assert [role for role, _ in told] == ["system", "user", "assistant", "verification"]
    assert told[0][1].endswith("# Skill\n\nBe brief.")
    assert told[1][1] == "Question: Who?"
    assert told[3][1] == (
        "hard 0, soft 0; exact match 0, F1 0.00; `Bob` is not the answer that was expected"
    )
    assert score.details[0].data["reference"] == "Ann"
    assert score.findings[0].text == "`Bob` is not the answer that was expected"


def test_a_refusal_is_the_students_failure_with_its_trace():
    model = ScriptedModel([ModelReply("I would rather not", Usage(1), "refused")])
    rollout, score = rolled(SearchQa(), model)
    assert isinstance(rollout, Rollout)
    assert isinstance(score, Score)
    assert score.failure is not None
    assert (score.failure.kind, score.failure.blame) == ("refused", "candidate")
    assert [item.role for item in rollout.trace][-1] == "failure"


def test_an_outage_costs_no_case():
    """The original wrote it down as a wrong answer, and never asked again."""
    away = Failure("rate_limit", "infrastructure", "429")
    rollout, score = rolled(SearchQa(), ScriptedModel(lambda _: away))
    assert rollout == away
    assert score is None


def test_a_reply_that_arrived_is_not_asked_for_again():
    journal = MemoryJournal()
    first = ScriptedModel(["<answer>Bob</answer>", Failure("server", "infrastructure", "503")])
    rollout, _ = rolled(SearchQa(max_turns=2), first, journal=journal)
    assert isinstance(rollout, Failure)
    second = ScriptedModel(["<answer>Ann</answer>"])
    rollout, score = rolled(SearchQa(max_turns=2), second, journal=journal)
    assert isinstance(score, Score)
    assert score.metrics["hard"] == 1
    assert second.calls == 1


def test_a_skill_folder_is_read_whole_and_markers_are_not():
    texts = {
        "references/names.md": "Ann is a name.",
        "SKILL.md": "Be brief.\n<!-- SLOW_UPDATE_START -->\nAlways.\n<!-- SLOW_UPDATE_END -->\n",
    }
    assert (
        skill_text(texts) == "Be brief.\nAlways.\n\n## File: references/names.md\n\nAnn is a name."
    )
    assert system_prompt("Answer.", {"SKILL.md": "<!-- a -->\n"}) == "Answer."
    page = "<p>\n<!-- name -->\n</p>"
    told = skill_text({"SKILL.md": "Fill it in.", "assets/form.html": page})
    assert told.endswith(page), "a comment of a template is a part of it"


@dataclass(frozen=True)
class Guess(Environment):
    """A game of guesses: the number is in the case, and one is told what is wrong with a guess."""

    name = "guess"
    simulates = True

    def turns(self) -> int:
        return 5

    def read(self, path: Path) -> list[Item]:
        return []

    def pose(self, case: Case) -> Posed:
        return Posed("Guess a number.")

    def begin(self, case: Case, job: Job, scope: Scope) -> Episode:
        return Guessing(Posed("Guess a number."))

    def grade(self, case: Case, rollout: Rollout) -> Graded:
        return Graded(rollout.metrics["won"], rollout.metrics["won"])


class Guessing(OneReply):
    def __init__(self, posed: Posed) -> None:
        super().__init__(posed)
        self.step = 0

    async def answer(self, said: str, files: Mapping[str, bytes] = NO_FILES) -> Turn | Failure:
        self.step += 1
        if not said.isdigit():
            return Failure("parse", "candidate", f"`{said}` is no number")
        right = said == "7"
        told = "right" if right else "higher" if int(said) < 7 else "lower"
        item = TraceItem("step", told, {"step": self.step, "action": said, "said": said})
        metrics = {"won": float(right), "steps": float(self.step)}
        return Turn(told, over=right, item=item, output=told, metrics=metrics)


def test_a_simulator_is_played_turn_by_turn():
    rollout, score = rolled(Guess(), ScriptedModel(["3", "9", "7"]))
    assert isinstance(rollout, Rollout)
    assert isinstance(score, Score)
    steps = [(item.data["step"], item.data["action"], item.text) for item in rollout.trace[2:]]
    assert steps == [(1, "3", "higher"), (2, "9", "lower"), (3, "7", "right")]
    assert score.metrics == {"won": 1, "steps": 3, "hard": 1, "soft": 1}


def test_a_simulator_ends_with_its_last_turn():
    rollout, score = rolled(Guess(), ScriptedModel(lambda _: "1"))
    assert isinstance(rollout, Rollout)
    assert isinstance(score, Score)
    assert (score.metrics["hard"], score.metrics["steps"]) == (0, 5)


def test_an_action_that_cannot_be_read_is_the_students_failure():
    rollout, score = rolled(Guess(), ScriptedModel(["3", "nine"]))
    assert isinstance(rollout, Rollout)
    assert isinstance(score, Score)
    assert score.failure is not None
    assert (score.failure.kind, score.failure.blame) == ("parse", "candidate")
    assert [item.role for item in rollout.trace][-2:] == ["assistant", "failure"]


def test_an_outage_in_a_game_never_becomes_an_action():
    """The original went on with `look`, as if the student had said so."""
    model = ScriptedModel(["3", Failure("server", "infrastructure", "503"), "7"])
    rollout, _ = rolled(Guess(), model)
    assert isinstance(rollout, Failure)
    assert rollout.blame == "infrastructure"


def test_tools_of_an_environment_are_used():
    class Looking(SearchQa):
        def tools(self, case: Case) -> Sequence[Tool]:
            return (ScriptedTool("look", "Ann was here"),)

    call = ModelReply("", Usage(1), "tool_calls", (ToolCall("1", "look", "{}"),))
    rollout, score = rolled(Looking(), ScriptedModel([call, "<answer>Ann</answer>"]))
    assert isinstance(rollout, Rollout)
    assert isinstance(score, Score)
    assert score.metrics["hard"] == 1
    tool = next(item for item in rollout.trace if item.role == "tool")
    assert (tool.data["name"], tool.text) == ("look", "Ann was here")


def asked(env: Environment, texts: Mapping[str, str], script: Sequence[Line]) -> ScriptedModel:
    model = ScriptedModel(script)
    rolled(env, model, texts)
    return model


def test_a_probe_puts_its_instruction_behind_the_prompt():
    texts = probed(SKILL, "Say which passage you used.")
    (request,) = asked(SearchQa(), texts, ["<answer>Ann</answer>"]).requests
    assert request.messages[-1].text == "Question: Who?\n\nSay which passage you used."
    assert "probe" not in request.messages[0].text


def test_a_probe_goes_on_behind_a_chosen_step():
    rollout, _ = rolled(SearchQa(max_turns=2), ScriptedModel(["<answer>A</answer>"] * 2))
    assert isinstance(rollout, Rollout)
    texts = probed(SKILL, "Why?", rollout.trace, 1)
    (request, *_) = asked(SearchQa(), texts, ["Because."]).requests
    said = [(message.role, message.text) for message in request.messages[1:]]
    assert said == [
        ("user", "Question: Who?"),
        ("assistant", "<answer>A</answer>"),
        ("user", "Why?"),
    ]


def test_a_probe_of_a_game_plays_the_steps_before_again():
    rollout, _ = rolled(Guess(), ScriptedModel(["3", "9", "1", "2", "4"]))
    assert isinstance(rollout, Rollout)
    texts = probed(SKILL, "Think again.", rollout.trace, 2)
    model = ScriptedModel(["7"])
    again, score = rolled(Guess(), model, texts)
    assert isinstance(again, Rollout)
    assert isinstance(score, Score)
    assert score.metrics["steps"] == 3
    said = [message.text for message in model.requests[0].messages[1:]]
    assert said == ["Guess a number.", "3", "higher", "9", "lower", "Think again."]


def test_a_probe_is_another_candidate_than_its_skill():
    plain, probe = Candidate(SKILL), Candidate(probed(SKILL, "Why?"))
    assert plain.id != probe.id


def test_what_a_rollout_can_cost_is_known_beforehand():
    model = ScriptedModel([], worst=0.25)
    case = Case("c", {"question": "Who?", "answers": ["Ann"], "context": ""})
    assert ChatRunner(SearchQa(), model).worst_usd(Candidate(SKILL), case) == 0.25
    two = replace(SearchQa(), max_turns=2)
    assert ChatRunner(two, model).worst_usd(Candidate(SKILL), case) is None
