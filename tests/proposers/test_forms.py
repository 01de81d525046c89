"""Whole texts, shorter texts, a diagnosis first: what each is asked for and becomes."""

import json
from collections.abc import Iterator
from dataclasses import replace

import pytest

from kept.core.artifact import Artifact, Heading, Rules
from kept.core.case import Case
from kept.core.edit import Append, Delete, Replace, Write, apply_edits
from kept.core.objective import Objective, TieBreaker
from kept.core.ports import Building, Proposer
from kept.core.proposal import Answer, Ask, Brief, History, NearMiss, Note, Parent, Proposal, Skip
from kept.core.rollout import Failure, Pair, TraceItem
from kept.core.score import Finding, Outcome
from kept.core.verdict import Verdict
from kept.models.client import connect
from kept.models.prompts import Name, prompt
from kept.models.providers import ModelConfig
from kept.proposers.external import plain_brief, prompt_for
from kept.proposers.llm import FORMS, ModelProposer
from kept.proposers.prompt_items import Sight
from kept.proposers.reflect import ReflectProposer, minibatch
from kept.testing import ProposerSuite
from kept.testing.server import ModelServer, Seen
from tests.proposers.briefs import ask, check_golden, close, make_brief

TEXTS = {"prompt.md": "Be brief.\nBe kind, and be kind again.\n"}
TRAIN = tuple(Case(f"c{n}", {"question": f"question {n}", "answer": f"gold {n}"}) for n in range(8))
KINDS: tuple[Name, ...] = ("edit", "rewrite", "simplify", "reflect")


def proposer(kind: Name, server: ModelServer, batch: int = 4) -> ModelProposer:
    config = ModelConfig(provider="openai_compatible", model="m", base_url=server.v1, tries=1)
    given = (connect(config), prompt(kind), Sight(("question",)), FORMS[kind])
    if kind == "reflect":
        return ReflectProposer(*given, name=kind, batch=batch)
    return ModelProposer(*given, name=kind)


def reply(**given: object) -> str:
    return json.dumps({"why": "", "cases": [], **given})


def edit(op: str, target: str = "", text: str = "", path: str = "prompt.md") -> dict[str, str]:
    return {"op": op, "path": path, "target": target, "text": text}


def looked_at(brief: Brief, short: dict[str, float | None]) -> Brief:
    """The brief with how far the incumbent fell short of 1 on some cases; None is a crash."""
    crash = Failure("crash", "candidate", "it said nothing")
    outcomes = {
        Pair(case, 0): Outcome({"score": 1 - loss}, findings=(Finding(f"found in {case}"),))
        if loss is not None
        else Outcome(failure=crash)
        for case, loss in short.items()
    }
    traces = {pair: (TraceItem("assistant", f"trace of {pair.case}"),) for pair in outcomes}
    wanted = Ask(brief.incumbent.id, tuple(outcomes), "feedback")
    return replace(brief, answers=(Answer(wanted, outcomes, traces),))


class _Suite(ProposerSuite):
    kind: Name = "edit"

    @pytest.fixture(autouse=True)
    def serve(self) -> Iterator[None]:
        with ModelServer(self.answer) as server:
            self.server = server
            yield

    def answer(self, seen: Seen) -> str:
        line = edit("append", text=f"line {seen.body['seed']}\n", path="text")
        return reply(edits=[line], diagnosis=[])

    def make_proposer(self) -> Proposer:
        return proposer(self.kind, self.server)


class TestReflect(_Suite):
    """By the rules of every proposer."""

    kind: Name = "reflect"


class TestRewrite(_Suite):
    """By the rules of every proposer."""

    kind: Name = "rewrite"

    def answer(self, seen: Seen) -> str:
        return reply(files=[{"path": "text", "text": f"line {seen.body['seed']}\n"}])


class TestSimplify(_Suite):
    """By the rules of every proposer."""

    kind: Name = "simplify"

    def answer(self, seen: Seen) -> str:
        return reply(edits=[edit("write", path="text")])


def test_whole_texts_are_written_under_the_same_rules():
    texts = {"prompt.md": "# Rules\n\nBe kind.\n", "tool.md": "It adds.\n"}
    guarded = {path: Artifact(path, (Heading("Rules"),)) for path in texts}
    brief = replace(make_brief(texts, train=()), rules=Rules(guarded))
    lost = {"path": "prompt.md", "text": "Be cruel.\n"}
    fine = [
        {"path": "prompt.md", "text": "# Rules\n\nBe kind.\n\n# More\n\nBe brief.\n"},
        {"path": "tool.md", "text": "It adds two numbers.\n"},
    ]
    with ModelServer([reply(files=[lost]), reply(files=fine, why="clearer")]) as server:
        said = ask(proposer("rewrite", server), brief)
        assert "protected" in server.log[1].text
    assert said == Proposal(tuple(Write(row["path"], row["text"]) for row in fine), "clearer")


def test_what_is_to_be_simpler_is_marked_so():
    gone = edit("delete", ", and be kind again")
    with ModelServer([reply(edits=[gone], why="said twice")]) as server:
        said = ask(proposer("simplify", server), make_brief(TEXTS, train=()))
    edits = (Delete("prompt.md", ", and be kind again"),)
    assert said == Proposal(edits, "said twice", simplifies=True)


def test_what_is_not_shorter_is_asked_for_once_more():
    longer = reply(edits=[edit("append", text="Be long.\n")])
    shorter = reply(edits=[edit("replace", "Be brief.", "Brief.")])
    told = "the texts would have 47 characters, and have 38 now: make them shorter"
    with ModelServer([longer, shorter]) as server:
        said = ask(proposer("simplify", server), make_brief(TEXTS, train=()))
        assert f"* {told}" in server.log[1].text
    assert isinstance(said, Proposal)
    assert said.edits == (Replace("prompt.md", "Be brief.", "Brief."),)


def test_what_still_cannot_be_made_shorter_is_for_the_loop_to_report():
    gone = reply(edits=[edit("delete", "words that stand nowhere")])
    with ModelServer([gone, gone]) as server:
        said = ask(proposer("simplify", server), make_brief(TEXTS, train=()))
    assert isinstance(said, Proposal)
    assert said.simplifies


def test_a_long_diagnosis_without_edits_is_cut():
    rows = [{"case": f"c{n}", "cause": "x" * 900} for n in range(24)]
    with ModelServer([reply(diagnosis=rows, why="nothing to do", edits=[])]) as server:
        said = ask(proposer("reflect", server), looked_at(make_brief(TEXTS, train=TRAIN), {}))
    assert isinstance(said, Skip)
    assert said.why.startswith("nothing to do\nc0: xxx")
    assert len(said.why) == 2000


def test_a_diagnosis_comes_before_the_edits_and_is_told_with_them():
    brief = looked_at(make_brief(TEXTS, train=TRAIN), {"c1": 1.0, "c2": 0.0})
    said = reply(
        diagnosis=[{"case": "c1", "cause": "no word on length"}],
        why="a limit was missing",
        cases=["c1"],
        edits=[edit("append", text="One line.\n")],
    )
    with ModelServer([said]) as server:
        found = ask(proposer("reflect", server), brief)
        schema = server.log[0].body["response_format"]["json_schema"]["schema"]
    assert [*schema["properties"]] == ["diagnosis", "why", "cases", "edits"]
    why = "a limit was missing\nc1: no word on length"
    assert found == Proposal((Append("prompt.md", "One line.\n"),), why, ("c1",))


def test_the_cases_looked_at_are_the_same_as_long_as_the_incumbent_is():
    with ModelServer() as server:
        reflect = replace(proposer("reflect", server), sight=Sight(cases=3))
        asks = [ask(reflect, make_brief(TEXTS, step, train=TRAIN)) for step in range(3)]
        other = ask(reflect, make_brief({"prompt.md": "Another.\n"}, train=TRAIN))
    assert isinstance(asks[0], Ask)
    assert isinstance(other, Ask)
    assert len(asks[0].pairs) == 3
    assert asks[0] == asks[1] == asks[2]
    assert other.pairs != asks[0].pairs


def shown(brief: Brief, size: int) -> set[str]:
    return {pair.case for answer in minibatch(brief, size).answers for pair in answer.outcomes}


def test_cases_are_shown_first_that_fail_and_that_a_near_miss_has_won():
    short = {"c0": 0.0, "c1": 0.0, "c2": 1.0, "c3": 1.0, "c4": 1.0, "c5": 1.0, "c6": None}
    brief = looked_at(make_brief(TEXTS, train=TRAIN), short)
    pool = (NearMiss(0, 0.1, (("c3", -1.0), ("c0", -1.0), ("c4", 0.0))), NearMiss(1, 0.1))
    for step in range(20):
        batch = shown(replace(brief, pool=pool, seed=step), 4)
        assert len(batch) == 4
        assert "c3" in batch, "it can be won"
        assert len(batch & {"c0", "c1"}) == 1, "one that went well"
    batches = {frozenset(shown(replace(brief, seed=step), 4)) for step in range(20)}
    assert len(batches) > 3, "others in every step"
    assert not all("c3" in batch for batch in batches), "nothing tells that it can be won"


def test_with_few_failures_the_rest_is_what_went_well_and_an_outage_shows_nothing():
    brief = looked_at(make_brief(TEXTS, train=TRAIN), {"c0": 0.0, "c1": 0.0, "c2": 1.0})
    assert shown(brief, 8) == {"c0", "c1", "c2"}
    assert shown(looked_at(brief, {"c0": 0.0, "c1": 0.0}), 1) < {"c0", "c1"}
    outage = Outcome(failure=Failure("server", "infrastructure", "503"))
    (answer,) = brief.answers
    down = replace(answer, outcomes={**answer.outcomes, Pair("c3", 0): outage})
    assert "c3" not in shown(replace(brief, answers=(down,)), 8)


def full_brief() -> Brief:
    """Everything that a model may be shown."""
    first = make_brief(TEXTS)
    near = Verdict("discard", "a near miss: gain +0.1", code="near miss")
    worse = Verdict("discard", "worse: `score` 0.5 → 0.4")
    past = [
        close(first, Proposal((Append("prompt.md", "Be near.\n"),), why="nearly"), near),
        close(replace(first, step=1), Proposal((Delete("prompt.md", "Be brief.\n"),)), worse),
    ]
    brief = replace(
        make_brief({**TEXTS, "notes.md": "Carried along.\n"}, 2, train=TRAIN),
        history=History(past),
        pool=(NearMiss(0, 0.1, (("c1", -0.25),)),),
        memory=(Note("Cases 1 and 2 are alike."),),
        rules=Rules({"prompt.md": Artifact("prompt.md")}, max_files=1, max_changed_lines=9),
        guidance={"instruction": "Make it friendly.", "rubric": "Friendly is good."},
        objective=Objective(tie_breakers=(TieBreaker("tokens"), TieBreaker("warmth", "higher"))),
    )
    return looked_at(brief, {"c0": 0.0, "c1": 1.0, "c2": None, "c3": 0.5, "c4": 0.75, "c5": 0.0})


@pytest.mark.parametrize("kind", KINDS)
def test_what_a_model_is_told_is_what_was_read_and_found_good(kind: Name):
    """After a change that is meant: delete the file, run this once, read what it wrote."""
    with ModelServer(lambda seen: reply(edits=[], files=[], diagnosis=[])) as server:
        ask(proposer(kind, server), full_brief())
        told = "\n\n".join(f"[{line.role}]\n{line.text}" for line in server.log[0].lines)
    check_golden(told, kind)


def on_a_near_miss(brief: Brief) -> Brief:
    """The same, with the near miss of its first step to build on."""
    near = brief.history[0]
    assert near.proposal is not None
    made = apply_edits(brief.incumbent, near.proposal.edits, brief.rules).candidate
    return replace(brief, incumbent=made, parent=Parent(near, brief.incumbent))


def test_a_model_that_builds_on_a_near_miss_is_told_what_it_is_given():
    """As above: what is written anew is read before it is committed."""
    with ModelServer(lambda seen: reply(edits=[])) as server:
        ask(proposer("edit", server), on_a_near_miss(full_brief()))
        told = "\n\n".join(f"[{line.role}]\n{line.text}" for line in server.log[0].lines[1:])
    check_golden(told, "parent")


def test_an_agent_is_told_what_was_read_and_found_good():
    """As above: what it is to do, and what lies in `brief.json`."""
    brief = on_a_near_miss(full_brief())
    known = json.dumps(plain_brief(brief, ("question",)), ensure_ascii=False, indent=1, default=str)
    check_golden(f"{prompt_for(brief)}\n\n{known}\n", "agent")


def test_limits_count_what_is_built_on():
    brief = on_a_near_miss(full_brief())
    brief = replace(brief, rules=replace(brief.rules, max_changed_lines=2))
    long = reply(edits=[edit("append", text="Be new.\nBe old.\n")])
    short = reply(edits=[edit("append", text="Be new.\n")])
    with ModelServer([long, short]) as server:
        found = ask(proposer("edit", server), brief)
        said = server.log[1].lines[-1].text
    assert "3 lines would change, 2 allowed" in said, "one of them is the near miss's"
    assert isinstance(found, Proposal)
    assert found.edits == (Append("prompt.md", "Be new.\n"),), (
        "what it changes in what it was given"
    )


@pytest.mark.parametrize("kind", KINDS)
def test_all_that_edit_a_text_may_build_on_a_near_miss_but_not_who_simplifies(kind: Name):
    with ModelServer() as server:
        made = proposer(kind, server)
        assert isinstance(made, Building)
        assert made.builds == (kind != "simplify")


def test_a_near_miss_is_looked_at_on_no_more_cases_than_are_shown():
    brief = make_brief(TEXTS, train=TRAIN)
    near = close(brief, Proposal((Append("prompt.md", "Be near.\n"),)))
    with ModelServer() as server:
        reflect = proposer("reflect", server, batch=2)
        first = ask(reflect, brief)
        second = ask(reflect, replace(brief, parent=Parent(near, brief.incumbent)))
    assert isinstance(first, Ask)
    assert isinstance(second, Ask)
    assert (len(first.pairs), len(second.pairs)) == (8, 2)
