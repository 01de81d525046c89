"""Examples from train cases that pass: which, how many, in what order, in whose words."""

from collections.abc import Sequence
from dataclasses import replace
from itertools import permutations
from typing import cast

import pytest

from kept.core.artifact import Candidate
from kept.core.case import Case
from kept.core.edit import SetValue, Write
from kept.core.llm import PASSED, Message, ToolAnswer, answered, said, used
from kept.core.ports import Proposer
from kept.core.proposal import Answer, Ask, Brief, ClosedStep, History, Proposal, Skip, Turn
from kept.core.rollout import Failure, Pair, TraceItem
from kept.core.score import Outcome
from kept.core.verdict import Verdict
from kept.proposers.few_shot import BEGIN, END, Shots
from kept.proposers.text_units import TextAxis
from kept.testing import ProposerSuite
from tests.proposers.briefs import TIED, after, ask, close, make_brief

PROMPT = "---\nversion: 3\n---\nSay what it is.\n"
AXIS = TextAxis("instructions", "prompt.md")
TRAIN = tuple(
    Case(f"q{n}", {"input": f"question {n}", "ground_truth": f"gold {n}"}) for n in range(5)
)
REGION = f"{BEGIN}\nExample\nInput: question 3\nAnswer: answer 3\n{END}"


def trace(n: int, answer: str = "") -> tuple[TraceItem, ...]:
    return (
        said(Message("system", "Say what it is.")),
        said(Message("user", f"question {n}")),
        used("look", {}, ToolAnswer("seen", seconds=0.1)),
        answered(answer or f"answer {n}", 0.2),
    )


def looked_at(brief: Brief, passing: Sequence[int] = (1, 2, 3)) -> Brief:
    pairs = tuple(Pair(case.id, 0) for case in brief.train)
    outcomes = {
        pair: Outcome({PASSED: float(n in passing), "score": 0.0}) for n, pair in enumerate(pairs)
    }
    traces = {pair: trace(n) for n, pair in enumerate(pairs)}
    return replace(brief, answers=(Answer(Ask("x", pairs, "feedback"), outcomes, traces),))


def brief_of(
    step: int = 0, past: Sequence[ClosedStep] = (), text: str = PROMPT, path: str = "prompt.md"
) -> Brief:
    brief = make_brief({path: text}, step, past, TRAIN)
    return replace(brief, turn=Turn("demos", "c1/demos", step))


def demos_of(proposal: Proposal) -> list[str]:
    return cast("list[str]", proposal.about["demos"])


def run_dry(
    proposer: Shots, past: list[ClosedStep], text: str = PROMPT
) -> tuple[list[Proposal], Skip]:
    found: list[Proposal] = []
    while True:
        brief = looked_at(brief_of(len(past), past, text))
        reply = ask(proposer, brief)
        if isinstance(reply, Skip):
            return found, reply
        assert isinstance(reply, Proposal)
        found.append(reply)
        past.append(close(brief, reply))


class TestShots(ProposerSuite):
    """By the rules of every proposer."""

    def make_proposer(self) -> Proposer:
        return Shots(TextAxis("text", "text"))

    def outcome(self, pair: Pair) -> Outcome:
        return Outcome({PASSED: 1.0, "score": 1.0})

    def _answer(self, ask: Ask) -> Answer:
        traces = {pair: trace(n) for n, pair in enumerate(ask.pairs)}
        return replace(super()._answer(ask), traces=traces)


def test_all_train_cases_of_the_incumbent_are_looked_at_first():
    wanted = ask(Shots(AXIS), brief_of())
    assert isinstance(wanted, Ask)
    assert (wanted.candidate, wanted.purpose) == (brief_of().incumbent.id, "feedback")
    assert wanted.pairs == tuple(Pair(f"q{n}", 0) for n in range(5))


def test_examples_stand_at_the_end_in_the_agents_own_words_and_the_rest_stays():
    brief = looked_at(brief_of(), [3])
    reply = ask(Shots(AXIS), brief)
    assert reply == Proposal(
        (Write("prompt.md", f"---\nversion: 3\n---\nSay what it is.\n\n{REGION}\n"),),
        why="1 example: q3",
        about={"kind": "demos", "axis": "instructions", "demos": ["q3"]},
    )


def test_examples_that_stand_there_are_written_over():
    text = f"Say what it is.\n\n{REGION}\n\nNever lie.\n"
    reply = ask(Shots(AXIS, most=1), looked_at(brief_of(text=text), [2]))
    assert isinstance(reply, Proposal)
    new = after(brief_of(text=text), reply)["prompt.md"]
    assert new == text.replace("question 3", "question 2").replace("answer 3", "answer 2")


def test_the_text_may_be_a_value_of_the_agents_file():
    axis = TextAxis("instructions", "agent.yaml", "instructions.inline")
    brief = looked_at(brief_of(text="instructions: {inline: Say it.}\n", path="agent.yaml"), [3])
    reply = ask(Shots(axis), brief)
    assert isinstance(reply, Proposal)
    assert reply.edits == (SetValue("agent.yaml", "instructions.inline", f"Say it.\n\n{REGION}"),)


def test_every_set_of_those_that_pass_is_tried_once_and_then_the_phase_is_over():
    found, end = run_dry(Shots(AXIS, most=2), [])
    tried = [tuple(demos_of(proposal)) for proposal in found]
    passing = ("q1", "q2", "q3")
    assert sorted(tried) == sorted([*permutations(passing, 1), *permutations(passing, 2)])
    assert end == Skip("every set of examples that fits was tried", ends="exhausted")


def test_sets_are_free_again_when_something_else_was_kept():
    past: list[ClosedStep] = []
    found, _ = run_dry(Shots(AXIS, most=1), past)
    other = close(brief_of(len(past)), Proposal((Write("prompt.md", "x"),)), Verdict("keep", ""))
    past.append(replace(other, turn=Turn("critique", "c1/textual")))
    again, _ = run_dry(Shots(AXIS, most=1), past)
    assert len(found) == len(again) == 3


def test_neighbours_of_the_set_that_stands_there_are_tried_among_others():
    brief = looked_at(brief_of(0), range(5))
    near = 0
    for step in range(1, 30):
        proposal = Proposal((), about={"demos": ["q1", "q2", "q3"]})
        kept = close(brief, proposal, Verdict("keep", ""))
        text = f"Say what it is.\n\n{REGION}\n"
        reply = ask(Shots(AXIS), looked_at(brief_of(step, [kept], text), range(5)))
        assert isinstance(reply, Proposal)
        demos = demos_of(reply)
        assert demos != ["q1", "q2", "q3"]
        near += len({*demos} ^ {"q1", "q2", "q3"}) <= 2
    assert near > 15


def test_a_text_that_would_be_too_long_is_not_proposed_and_never_cut():
    tight = replace(AXIS, max_chars=len("Say what it is.\n\n") + len(REGION) + 1)
    found, end = run_dry(Shots(tight), [])
    assert {len(demos_of(proposal)) for proposal in found} == {1}
    assert len(found) == 3
    assert end.ends == "exhausted"
    assert isinstance(ask(Shots(replace(AXIS, max_chars=50)), looked_at(brief_of())), Skip)


def test_what_did_not_pass_was_not_answered_or_holds_a_mark_is_no_example():
    brief = looked_at(brief_of(), range(5))
    (answer,) = brief.answers
    pairs = [Pair(f"q{n}", 0) for n in range(5)]
    traces = {
        pairs[0]: trace(0)[:-1],
        pairs[1]: trace(1, f"it ends with {END}"),
        pairs[2]: (),
        pairs[3]: trace(3),
        pairs[4]: trace(4),
    }
    crash = Outcome(failure=Failure("crash", "candidate", "gone"))
    answer = replace(answer, traces=traces, outcomes={**answer.outcomes, pairs[4]: crash})
    reply = ask(Shots(AXIS), replace(brief, answers=(answer,)))
    assert isinstance(reply, Proposal)
    assert demos_of(reply) == ["q3"]


def test_where_no_case_passes_the_phase_is_over_unless_some_could_not_be_run():
    none = ask(Shots(AXIS), looked_at(brief_of(), []))
    assert none == Skip("no train case passes that could be an example", ends="exhausted")
    brief = looked_at(brief_of(), [])
    (answer,) = brief.answers
    lost = {Pair("q1", 0): Outcome(failure=Failure("server", "infrastructure", "503"))}
    answer = replace(answer, outcomes={**answer.outcomes, **lost})
    reply = ask(Shots(AXIS), replace(brief, answers=(answer,)))
    assert isinstance(reply, Skip)
    assert not reply.ends


@pytest.mark.parametrize("text", [f"{BEGIN} x", f"{REGION}{REGION}", f"{END}{BEGIN}"])
def test_marks_that_are_not_there_just_once_leave_nothing_to_propose(text: str):
    reply = ask(Shots(AXIS), looked_at(brief_of(text=text)))
    assert isinstance(reply, Skip)
    assert "just once" in reply.why


def test_sets_that_are_open_are_not_proposed_again_and_do_not_end_the_phase():
    brief = looked_at(brief_of(), [1, 2])
    first = ask(Shots(AXIS, most=1), brief)
    assert isinstance(first, Proposal)
    second = ask(Shots(AXIS, most=1), replace(brief, open=(first,)))
    assert isinstance(second, Proposal)
    third = ask(Shots(AXIS, most=1), replace(brief, open=(first, second)))
    assert isinstance(third, Skip)
    assert not third.ends


def test_a_set_whose_step_went_stale_may_be_tried_again():
    brief = looked_at(brief_of(), [1])
    first = ask(Shots(AXIS), brief)
    assert isinstance(first, Proposal)
    stale = close(brief, first, Verdict("skip", "", code="stale"))
    for verdict, again in ((stale.verdict, True), (TIED, False)):
        past = [replace(stale, verdict=verdict)]
        reply = ask(Shots(AXIS), replace(brief, step=1, history=History(past)))
        assert isinstance(reply, Proposal if again else Skip)


def test_the_line_ends_of_the_text_stay():
    text = "Say what it is.\r\nBe brief.\r\n"
    brief = looked_at(brief_of(text=text), [1, 2])
    reply = ask(Shots(AXIS), brief)
    assert isinstance(reply, Proposal)
    new = Candidate(after(brief, reply))["prompt.md"]
    assert new.count("\r\n") == new.count("\n")
