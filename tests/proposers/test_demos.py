"""Examples from train cases: which, how many, in what order, and never one that decides."""

import asyncio
from dataclasses import replace
from itertools import permutations

import pytest

from kept.core.artifact import Artifact, Candidate, Rules
from kept.core.case import Case, Cases
from kept.core.edit import Replace
from kept.core.ports import Proposer
from kept.core.proposal import Proposal, Skip
from kept.core.rollout import Job
from kept.proposers.few_shot import DemoSets, Layout, example
from kept.testing import MemoryJournal, ProposerSuite, ScriptedEvaluator
from kept.testing.run import sit, small_plan
from tests.proposers.briefs import after, ask, make_brief, run_dry

PROMPT = "Answer.\n\n<!-- demos:start -->\n<!-- demos:end -->\n\nQ: {question}\n"
LAYOUT = Layout("Q: {input}\nA: {expected}")
TRAIN = tuple(Case(f"t{n}", {"input": f"{n} + 1", "expected": n + 1}) for n in range(4))


def shown(text: str) -> str:
    region = LAYOUT.region(text)
    assert region is not None
    return region


def test_an_example_has_the_fields_of_its_case():
    assert example("{id}: {input} = {expected}", TRAIN[1]) == "t1: 1 + 1 = 2"
    assert example("{case}", Case("a", [1, "ü"])) == '[1, "ü"]'
    assert example("{{{case}}}", Case("a", "x")) == "{x}"


def test_every_set_in_every_order_is_tried_once_and_then_it_is_over():
    proposer = DemoSets("p.md", LAYOUT, 0, 2)
    found, end = run_dry(proposer, {"p.md": PROMPT}, TRAIN)
    brief = make_brief({"p.md": PROMPT})
    tried = [shown(after(brief, proposal)["p.md"]) for proposal in found]
    blocks = [example(LAYOUT.template, case) for case in TRAIN]
    expected = [LAYOUT.render(s) for size in (1, 2) for s in permutations(blocks, size)]
    assert sorted(tried) == sorted(expected)
    assert {proposal.why[:10] for proposal in found} == {"1 example:", "2 examples"}
    assert end == Skip("every set of examples was tried", exhausted=True)


def test_what_is_outside_the_marks_stays():
    brief = make_brief({"p.md": PROMPT, "q.md": "other"}, train=TRAIN)
    reply = ask(DemoSets("p.md", LAYOUT), brief)
    assert isinstance(reply, Proposal)
    text = after(brief, reply)["p.md"]
    assert text.replace(shown(text), shown(PROMPT)) == PROMPT
    assert after(brief, reply)["q.md"] == "other"


def test_the_line_endings_of_the_file_stay():
    proposer = DemoSets("p.md", LAYOUT, 1, 2)
    prompt = PROMPT.replace("\n", "\r\n")
    found, end = run_dry(proposer, {"p.md": prompt}, TRAIN)
    assert len(found) == 4 + 4 * 3
    for proposal in found:
        text = after(make_brief({"p.md": prompt}), proposal)["p.md"]
        assert text.count("\r\n") == text.count("\n")
    assert isinstance(end, Skip)


def test_a_case_that_holds_a_mark_is_no_example():
    bad = Case("bad", {"input": "what is <!-- demos:end --> for?", "expected": "an end"})
    found, _ = run_dry(DemoSets("p.md", LAYOUT, 1, 1), {"p.md": PROMPT}, (*TRAIN, bad))
    assert len(found) == len(TRAIN)


def test_neighbours_of_what_stands_there_are_proposed_among_others():
    now = ("t2", "t0", "t3")
    blocks = {case.id: example(LAYOUT.template, case) for case in TRAIN}
    region = LAYOUT.render([blocks[id_] for id_ in now])
    text = PROMPT.replace(shown(PROMPT), region)
    proposer = DemoSets("p.md", LAYOUT, 1, 4)
    assert proposer._read(region, blocks) == now
    near = 0
    for step in range(40):
        reply = ask(proposer, make_brief({"p.md": text}, step, train=TRAIN))
        assert isinstance(reply, Proposal)
        (edit,) = reply.edits
        assert isinstance(edit, Replace)
        demos = proposer._read(edit.new, blocks)
        assert len(set(demos)) == len(demos)
        assert 1 <= len(demos) <= 4
        assert demos != now
        near += len(set(demos) ^ set(now)) <= 2
    assert near > 20


def test_examples_that_are_not_ours_are_written_over_and_not_taken_for_a_set():
    text = PROMPT.replace("start -->\n", "start -->\nQ: 9\nA: 10\n")
    reply = ask(DemoSets("p.md", LAYOUT), make_brief({"p.md": text}, train=TRAIN))
    assert isinstance(reply, Proposal)
    assert "Q: 9" not in after(make_brief({"p.md": text}), reply)["p.md"]


@pytest.mark.parametrize(
    "text", ["no marks", PROMPT + PROMPT, "<!-- demos:end --> <!-- demos:start -->"]
)
def test_without_just_one_pair_of_marks_there_is_nothing_to_propose(text: str):
    reply = ask(DemoSets("p.md", LAYOUT), make_brief({"p.md": text}, train=TRAIN))
    assert isinstance(reply, Skip)
    assert not reply.exhausted


def test_sets_that_are_open_are_not_proposed_again():
    brief = make_brief({"p.md": PROMPT}, train=TRAIN[:2])
    proposer = DemoSets("p.md", LAYOUT, 1, 1)
    first = ask(proposer, brief)
    assert isinstance(first, Proposal)
    second = ask(proposer, replace(brief, open=(first,)))
    assert isinstance(second, Proposal)
    assert ask(proposer, replace(brief, open=(first, second))) == Skip(
        "every set of examples was tried", exhausted=False
    )


def test_no_text_of_a_deciding_case_enters_a_candidate():
    hidden = tuple(Case(f"h{n}", {"input": f"secret {n}", "expected": "gold"}) for n in range(3))
    journal = MemoryJournal()

    def quality(candidate: Candidate, case: Case) -> float:
        return candidate["p.md"].count("Q:") / 10

    runner = ScriptedEvaluator(quality=quality)
    seed = Candidate({"p.md": PROMPT})
    plan = replace(
        small_plan(runner, DemoSets("p.md", LAYOUT)),
        seed=seed,
        rules=Rules({"p.md": Artifact("p.md")}),
        cases=Cases(TRAIN, hidden, hidden[:1]),
    )
    state = asyncio.run(sit(plan, journal))
    assert state.keeps
    candidates = {job.candidate_id for job in runner.log}
    assert len(candidates) > 5
    for id_ in candidates:
        text = journal.load(id_)["p.md"]
        assert "secret" not in text
        assert "gold" not in text
    assert isinstance(runner.log[0], Job)
    assert "Q: " in journal.load(state.best)["p.md"]


class TestDemos(ProposerSuite):
    def make_proposer(self) -> Proposer:
        return DemoSets("text", Layout("{case}"))

    def incumbent(self) -> Candidate:
        return Candidate({"text": PROMPT})
