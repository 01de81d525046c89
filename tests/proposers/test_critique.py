"""A critic and an applier: what each is shown, and what becomes of what they say."""

import json
from collections.abc import Callable, Mapping
from dataclasses import replace
from importlib.resources import files
from typing import Any, cast

import pytest

from kept.core.artifact import Candidate
from kept.core.case import Case
from kept.core.edit import SetValue, Write
from kept.core.llm import PASSED, Message, ModelRequest, ToolAnswer, answered, said, used
from kept.core.objective import Objective
from kept.core.ports import Proposer
from kept.core.proposal import Answer, Ask, Brief, ClosedStep, Proposal, Skip, Turn
from kept.core.rollout import Failure, Pair, TraceItem
from kept.core.score import Finding, Outcome
from kept.core.verdict import Verdict
from kept.models.scripted import Line
from kept.proposers.critique import DIAGNOSIS, REVISION, Critique
from kept.proposers.few_shot import BEGIN, END
from kept.proposers.llm import Asked
from kept.proposers.text_units import TextAxis
from kept.spec.yaml import read_yaml
from kept.testing import MemoryJournal, ProposerSuite, ScriptedModel
from tests.proposers.briefs import after, ask, check_golden, close, make_brief

PROMPT = "Answer with one number.\nBe brief.\n"
AGENT = """\
name: sums
tools:
  - {name: subtract, type: function, description: Takes one number from another.}
"""
TEXTS = {"agent.yaml": AGENT, "prompt.md": PROMPT}
INSTRUCTIONS = TextAxis("instructions", "prompt.md", max_chars=200)
DESCRIPTION = TextAxis(
    "tools[name=subtract].description", "agent.yaml", "tools[name=subtract].description", 80
)
AXES = {axis.path: axis for axis in (INSTRUCTIONS, DESCRIPTION)}
TRAIN = tuple(
    Case(
        f"q{n}",
        {
            "name": f"q{n}",
            "input": f"What is {n} minus 1?",
            "ground_truth": f"gold {n - 1}",
            "expected_tools": [{"name": "subtract", "args": {"a": n}}],
            "evaluations": [{"metric": "equality", "model": {"api_key": "${SECRET}"}}],
        },
    )
    for n in range(12)
)
NEW = "Answer with one number.\nUse the tool.\nBe brief.\n"


def diagnosis(**given: object) -> str:
    said = {
        "failing_pattern": "no tool is used",
        "root_cause_hypothesis": "nothing says that there is one",
        "suggested_change_direction": "say that sums are done by the tool",
        "confidence": 0.8,
        "citations": ["`q1`", "q99", "q1"],
        "avoid": ["long answers"],
    }
    return json.dumps(said | given)


def revision(new: str = NEW, **given: object) -> str:
    said = {
        "edit_type": "insert",
        "rationale": "it must know the tool",
        "new_text": new,
        "diff_summary": "a line on the tool",
    }
    return json.dumps(said | given)


def shipped(name: str) -> dict[str, Any]:
    text = files("kept").joinpath(f"ui/scaffold/optimizer/{name}.yaml").read_text()
    return cast("dict[str, Any]", read_yaml(text).data)


def asked(name: str, script: list[Line] | Callable[[ModelRequest], Line]) -> Asked:
    data = shipped(name)
    told = (Message("system", data["instructions"]["inline"]),)
    limit = data["model"]["max_tokens"]
    request = ModelRequest(told, schema=data["response_format"], max_tokens=limit)
    return Asked(ScriptedModel(script, name=f"{name}-model"), request)


def critique(critic: list[Line], applier: list[Line], **given: Any) -> Critique:
    return Critique(AXES, asked("critic", critic), asked("applier", applier), **given)


def log(who: Asked) -> list[ModelRequest]:
    assert isinstance(who.model, ScriptedModel)
    return who.model.requests


def told(request: ModelRequest) -> str:
    return "\n\n".join(f"[{message.role}]\n{message.text}" for message in request.messages)


def conversation(case: Case) -> tuple[TraceItem, ...]:
    data = cast("Mapping[str, Any]", case.data)
    tool = used("subtract", {"a": 7, "b": 1}, ToolAnswer("six", seconds=0.1))
    return (
        said(Message("system", PROMPT)),
        said(Message("user", data["input"])),
        tool,
        answered(f"wrong answer of {case.id}", 0.5),
    )


def outcome(passed: float) -> Outcome:
    finding = Finding("equality 0.00, 1 needed: the grader wanted a number", "high", "equality")
    return Outcome({PASSED: passed, "loss": 1.0 - passed}, findings=() if passed else (finding,))


def looked_at(brief: Brief, outcomes: Mapping[str, Outcome] | None = None) -> Brief:
    """The brief with what the incumbent did on the train cases: it fails all but the first."""
    pairs = tuple(Pair(case.id, 0) for case in brief.train)
    given = outcomes or {}
    found = {pair: given.get(pair.case, outcome(float(pair.case == "q0"))) for pair in pairs}
    traces = {Pair(case.id, 0): conversation(case) for case in brief.train}
    return replace(brief, answers=(Answer(Ask("x", pairs, "feedback"), found, traces),))


def brief_of(step: int = 0, axis: str = "instructions", past: tuple[ClosedStep, ...] = ()) -> Brief:
    base = make_brief(TEXTS, step, past, TRAIN)
    turn = Turn("critique", "c1/textual", step, {"axis": axis})
    objective = Objective("loss", "minimize", (0.0, 1.0))
    return replace(base, turn=turn, objective=objective)


def refused(step: int, pattern: str, verdict: Verdict | None = None) -> ClosedStep:
    brief = brief_of(step)
    critic = json.loads(diagnosis(failing_pattern=pattern))
    about = {"kind": "textual", "axis": "instructions", "critic": critic}
    proposal = Proposal((Write("prompt.md", f"text of step {step}"),), about=about)
    return close(brief, proposal, verdict or Verdict("discard", f"no gain in step {step}"))


class TestCritique(ProposerSuite):
    """By the rules of every proposer."""

    def make_proposer(self) -> Proposer:
        def each(request: ModelRequest) -> str:
            return revision(f"a seed, drawn by {request.seed}\n")

        axes = {"text": TextAxis("text", "text")}
        critic = asked("critic", lambda request: diagnosis(citations=["a"]))
        return Critique(axes, critic, asked("applier", each))


def test_all_train_cases_of_the_incumbent_are_looked_at_first():
    proposer = critique([], [])
    wanted = ask(proposer, brief_of())
    assert isinstance(wanted, Ask)
    assert wanted.purpose == "feedback"
    assert wanted.candidate == brief_of().incumbent.id
    assert wanted.pairs == tuple(Pair(f"q{n}", 0) for n in range(12))
    assert ask(proposer, brief_of(5)) == wanted, "the same in every step: they are paid for once"


def test_a_diagnosis_becomes_an_edit_of_the_axis_with_its_whole_record():
    proposer = critique([diagnosis()], [revision()])
    reply = ask(proposer, looked_at(brief_of()))
    assert reply == Proposal(
        (Write("prompt.md", NEW),),
        why="it must know the tool",
        cites=("q1",),
        about={
            "kind": "textual",
            "axis": "instructions",
            "critic": {
                "model": "critic-model",
                **json.loads(diagnosis()),
                # `q99` is no case
                "citations": ["q1"],
                "citations_dropped": 1,
            },
            "applier": {
                "model": "applier-model",
                "edit_type": "insert",
                "rationale": "it must know the tool",
                "diff_summary": "a line on the tool",
                "diff_lines_added": 1,
                "diff_lines_removed": 0,
            },
        },
    )


def test_the_text_of_another_axis_is_a_value_in_its_file():
    proposer = critique([diagnosis()], [revision("Takes b from a.")])
    brief = looked_at(brief_of(axis=DESCRIPTION.path))
    reply = ask(proposer, brief)
    assert isinstance(reply, Proposal)
    assert reply.edits == (SetValue("agent.yaml", DESCRIPTION.path, "Takes b from a."),)
    assert "Takes one number from another." in told(log(proposer.critic)[0])


def test_the_critic_sees_what_was_expected_what_was_used_and_what_the_graders_say():
    """Bug 10 of the original: it saw inputs and answers alone."""
    proposer = critique([diagnosis(confidence=0.0)], [])
    ask(proposer, looked_at(brief_of()))
    seen = told(log(proposer.critic)[0])
    for part in (
        "[input] What is ",
        "[expected answer] gold ",
        '[expected tools] [{"name": "subtract", "args": {"a": ',
        '[tool call] subtract({"a": 7, "b": 1})',
        "[tool result] six",
        "[answer] wrong answer of q",
        "[finding] equality 0.00, 1 needed: the grader wanted a number",
    ):
        assert seen.count(part) == 10, part
    assert "11 cases of 12 did not pass; you are shown 10." in seen
    assert "case `q0`" not in seen.lower(), "that one passed"
    assert "SECRET" not in seen


def test_every_turn_of_a_conversation_is_told_with_what_was_expected_of_it():
    turns = [{"input": "a", "ground_truth": "x"}, {"input": "b", "ground_truth": "y"}]
    case = Case("talk", {"name": "talk", "turns": turns})
    brief = replace(brief_of(), train=(case,))
    trace = (
        said(Message("user", "a")),
        answered("x", 0.1),
        said(Message("user", "b")),
        used("find", {}, ToolAnswer("no such key", wrong=True, seconds=0.1)),
    )
    pair = Pair("talk", 0)
    gone = Outcome(failure=Failure("timeout", "candidate", "it never came to an end"))
    answer = Answer(Ask("x", (pair,), "feedback"), {pair: gone}, {pair: trace})
    proposer = critique([diagnosis(confidence=0.0)], [])
    ask(proposer, replace(brief, answers=(answer,)))
    seen = told(log(proposer.critic)[0])
    shown = """\
--- turn 1 of 2
[input] a
[expected answer] x
[answer] x
--- turn 2 of 2
[input] b
[expected answer] y
[tool call] find({})
[tool result] (the call was wrong) no such key
[answer] there was none
[ended by] timeout: it never came to an end
"""
    assert "# Case `talk` failed: timeout" in seen
    assert shown in seen


def test_other_failures_are_shown_in_every_step():
    """Bug 10 of the original: the first five, in the same order every time."""
    shown: list[frozenset[str]] = []
    for step in range(8):
        proposer = critique([diagnosis(confidence=0.0)], [], max_failures=3)
        ask(proposer, looked_at(brief_of(step)))
        seen = told(log(proposer.critic)[0])
        shown.append(frozenset(case.id for case in TRAIN if f"# Case `{case.id}` did" in seen))
    assert {len(cases) for cases in shown} == {3}
    assert len(set(shown)) > 5
    assert len({case for cases in shown for case in cases}) > 8


def test_the_last_three_diagnoses_of_this_text_that_did_not_help_are_told_with_their_verdicts():
    past = (
        refused(0, "the first"),
        refused(1, "of another text"),
        refused(2, "the second"),
        refused(3, "the kept one", Verdict("keep", "better")),
        refused(4, "the stale one", Verdict("skip", "", code="stale")),
        refused(5, "the third"),
        refused(6, "the fourth"),
    )
    assert past[1].proposal is not None
    other = replace(past[1].proposal, about={**past[1].proposal.about, "axis": "elsewhere"})
    past = (past[0], replace(past[1], proposal=other), *past[2:])
    proposer = critique([diagnosis(confidence=0.0)], [])
    ask(proposer, looked_at(brief_of(7, past=past)))
    seen = told(log(proposer.critic)[0])
    names = ("first", "second", "third", "fourth")
    assert [name for name in names if f"failing pattern: the {name}" in seen] == [*names[1:]]
    assert "verdict: discard (judged): no gain in step 6" in seen
    for never in ("of another text", "the kept one", "the stale one"):
        assert never not in seen


def test_a_diagnosis_without_confidence_costs_no_second_call_and_is_on_record():
    proposer = critique([diagnosis(confidence=0.39)], [])
    reply = ask(proposer, looked_at(brief_of()))
    assert isinstance(reply, Skip)
    assert reply.why == "low confidence in the diagnosis: 0.39, 0.4 needed"
    assert (reply.ends, reply.exhausted) == ("", False)
    assert reply.about["axis"] == "instructions"
    critic = cast("Mapping[str, Any]", reply.about["critic"])
    assert (critic["model"], critic["confidence"]) == ("critic-model", 0.39)
    assert log(proposer.applier) == []


def test_where_every_case_passes_the_phase_is_over():
    passed = {case.id: outcome(1.0) for case in TRAIN}
    brief = looked_at(brief_of(), passed)
    for looks in (1, 2):
        again = ask(critique([], []), brief)
        assert isinstance(again, Ask), "one draw says little of a case that fails now and then"
        assert {pair.repeat for pair in again.pairs} == {looks}
        brief = replace(brief, answers=(*brief.answers, brief.answers[0]))
    reply = ask(critique([], []), brief)
    assert isinstance(reply, Skip)
    assert reply.ends == "exhausted"


def test_where_some_could_not_be_run_it_is_not_over():
    lost = Outcome(failure=Failure("server", "infrastructure", "503"))
    outcomes = {case.id: outcome(1.0) for case in TRAIN} | {"q3": lost}
    reply = ask(critique([], []), looked_at(brief_of(), outcomes))
    assert isinstance(reply, Skip)
    assert not reply.ends
    assert "1 case could not be run" in reply.why


def test_without_a_word_on_passing_a_case_with_any_loss_counts_as_failing():
    outcomes = {case.id: Outcome({"loss": 0.0}) for case in TRAIN}
    some = outcomes | {"q5": Outcome({"loss": 0.2})}
    proposer = critique([diagnosis(confidence=0.0)], [])
    ask(proposer, looked_at(brief_of(), some))
    assert "# Case `q5` did not pass" in told(log(proposer.critic)[0])
    brief = looked_at(brief_of(), outcomes)
    over = ask(critique([], []), replace(brief, answers=brief.answers * 3))
    assert isinstance(over, Skip)
    assert over.ends == "exhausted"


LONG = "Use the tool. " * 20


@pytest.mark.parametrize(
    ("first", "why"),
    [
        (revision(LONG), "the new text has 279 characters, 200 allowed"),
        (revision(PROMPT.strip()), "the new text is the same as the present one"),
        (revision("  \n"), "the new text is empty"),
        ("I would rather not.", "there is no JSON in it"),
        (revision(edit_type="rewrite"), "at `edit_type`"),
    ],
)
def test_a_text_that_cannot_be_used_is_asked_for_again_with_the_reason(first: str, why: str):
    """Bug 10 of the original: a text that was too long was cut in the middle of a sentence."""
    proposer = critique([diagnosis()], [first, revision()])
    reply = ask(proposer, looked_at(brief_of()))
    assert isinstance(reply, Proposal)
    assert after(brief_of(), reply)["prompt.md"] == NEW
    again = log(proposer.applier)[1]
    assert [message.role for message in again.messages] == ["system", "user", "assistant", "user"]
    assert why in again.messages[-1].text


@pytest.mark.parametrize("bad", [revision(LONG), revision(PROMPT), "no JSON"])
def test_one_that_cannot_be_used_twice_is_a_step_without_a_proposal(bad: str):
    proposer = critique([diagnosis()], [bad, bad])
    reply = ask(proposer, looked_at(brief_of()))
    assert isinstance(reply, Skip)
    assert "applier" in reply.why
    assert reply.about["critic"], "the diagnosis was paid for"
    assert len(log(proposer.applier)) == 2


def test_the_text_of_an_earlier_step_is_asked_for_again_with_what_became_of_it():
    tried = replace(refused(0, "x"), incumbent=brief_of().incumbent.id)
    assert tried.proposal is not None
    tried = replace(tried, proposal=replace(tried.proposal, edits=(Write("prompt.md", NEW),)))
    proposer = critique([diagnosis()], [revision(), revision("Other.")])
    reply = ask(proposer, looked_at(brief_of(1, past=(tried,))))
    assert isinstance(reply, Proposal)
    words = log(proposer.applier)[1].messages[-1].text
    assert "step 0 proposed this very text: discard (judged): no gain in step 0" in words


@pytest.mark.parametrize("who", ["critic", "applier", "applier again"])
def test_a_model_that_fails_is_a_failure_of_the_infrastructure_and_no_crash(who: str):
    """Bug 10 of the original: an error of the backend ended the run."""
    down = Failure("server", "candidate", "503")
    critic: list[Line] = [down if who == "critic" else diagnosis()]
    applier: list[Line] = [down] if who == "applier" else [revision(LONG), down]
    reply = ask(critique(critic, applier), looked_at(brief_of()))
    assert isinstance(reply, Failure)
    assert (reply.kind, reply.blame) == ("server", "infrastructure")


def test_a_critic_without_an_answer_of_use_is_a_step_without_a_proposal():
    for critic in (["no", "nor this"], [diagnosis(confidence=7), diagnosis(confidence=8)]):
        reply = ask(critique([*critic], []), looked_at(brief_of()))
        assert isinstance(reply, Skip)
        assert reply.why.startswith("the critic gave no answer of use")


def test_a_text_that_is_gone_is_a_step_without_a_proposal():
    brief = replace(brief_of(), incumbent=make_brief({"agent.yaml": AGENT}).incumbent)
    reply = ask(critique([], []), brief)
    assert isinstance(reply, Skip)
    assert "there is no prompt.md" in reply.why


def test_the_longest_cases_are_left_out_where_room_lacks_and_the_proposal_says_so():
    brief = looked_at(brief_of())
    (answer,) = brief.answers
    pair = Pair("q4", 0)
    long = (said(Message("user", "q4 " * 3000)), answered("no", 0.1))
    brief = replace(brief, answers=(replace(answer, traces={**answer.traces, pair: long}),))
    proposer = critique([diagnosis()], [revision()], max_failures=12)
    proposer = replace(proposer, critic=replace(proposer.critic, room=4000))
    reply = ask(proposer, brief)
    assert isinstance(reply, Proposal)
    seen = told(log(proposer.critic)[0])
    assert seen.count("did not pass\n") == 10
    assert reply.unseen == "not shown to the model, which has no room for it: 1 failing case"


def test_examples_behind_a_text_stay_and_do_not_count_in_its_length():
    examples = f"\n\n{BEGIN}\nExample\nInput: {'long ' * 60}\nAnswer: 1\n{END}\n"
    brief = brief_of()
    texts = {**TEXTS, "prompt.md": PROMPT.rstrip() + examples}
    brief = looked_at(replace(brief, incumbent=Candidate(texts)))
    marked = revision(f"Use the tool.\n{BEGIN}\n{END}")
    proposer = critique([diagnosis()], [marked, revision()])
    reply = ask(proposer, brief)
    assert isinstance(reply, Proposal)
    assert reply.edits == (Write("prompt.md", NEW.rstrip() + examples),)
    assert "mark examples" in log(proposer.applier)[1].messages[-1].text
    assert "It has 33 characters, and may have 200 at most." in told(log(proposer.critic)[0])
    assert "Input: long long" in told(log(proposer.critic)[0])
    assert "Input: long long" not in told(log(proposer.applier)[0])


def test_marks_in_the_middle_of_a_text_stay():
    texts = {**TEXTS, "prompt.md": f"{BEGIN}\n{END}\nBe brief.\n"}
    brief = looked_at(replace(brief_of(), incumbent=Candidate(texts)))
    good = f"{BEGIN}\n{END}\nBe kind."
    proposer = critique([diagnosis()], [revision("Be kind."), revision(good)])
    reply = ask(proposer, brief)
    assert isinstance(reply, Proposal)
    assert reply.edits == (Write("prompt.md", f"{good}\n"),)
    assert "no more and no fewer than before" in log(proposer.applier)[1].messages[-1].text


def test_further_texts_are_shown_where_they_fit_and_the_text_itself_only_once():
    def further(texts: Mapping[str, str]) -> Mapping[str, str]:
        return {"Its instructions": texts["prompt.md"], "The tool `subtract`": "Subtracts."}

    proposer = critique([diagnosis(confidence=0.0)], [], further=further)
    ask(proposer, looked_at(brief_of()))
    seen = told(log(proposer.critic)[0])
    assert "# The tool `subtract`, which stays as it is" in seen
    assert seen.count(PROMPT) == 1


def test_an_applier_has_room_for_the_longest_text():
    long = TextAxis("instructions", "prompt.md", max_chars=30_000)
    proposer = replace(critique([diagnosis()], [revision()]), axes={"instructions": long})
    ask(proposer, looked_at(brief_of()))
    assert log(proposer.applier)[0].max_tokens == 10_512
    short = critique([diagnosis()], [revision()])
    ask(short, looked_at(brief_of()))
    assert log(short.applier)[0].max_tokens == 4000


def test_a_brief_that_is_answered_again_costs_no_second_call():
    journal = MemoryJournal()
    proposer = critique([diagnosis()], [revision(LONG), revision()])
    first = ask(proposer, looked_at(brief_of()), journal)
    assert ask(proposer, looked_at(brief_of()), journal) == first
    assert (len(log(proposer.critic)), len(log(proposer.applier))) == (1, 2)


@pytest.mark.parametrize(("name", "read"), [("critic", DIAGNOSIS), ("applier", REVISION)])
def test_what_is_shipped_asks_for_all_that_is_read(name: str, read: Mapping[str, Any]):
    schema = shipped(name)["response_format"]
    assert set(read["required"]) <= set(schema["required"])
    assert schema["properties"] == read["properties"]


def test_critic_and_applier_are_told_what_was_read_and_found_good():
    """What they see changes with a review, not by the way."""
    past = (refused(0, "sums are wrong"),)

    def further(texts: Mapping[str, str]) -> Mapping[str, str]:
        return {"The tool `subtract`": "Takes one number from another."}

    proposer = critique(
        [diagnosis()], [revision(LONG), revision()], max_failures=2, further=further
    )
    assert isinstance(ask(proposer, looked_at(brief_of(1, past=past))), Proposal)
    check_golden(told(log(proposer.critic)[0]), "critic")
    check_golden(told(log(proposer.applier)[1]), "applier")
