"""One update an epoch: who is asked what, what cannot be used, and which is put forward."""

import asyncio
import json
import time
from collections.abc import Callable
from dataclasses import replace
from typing import cast

import pytest

from kept.core.artifact import Candidate
from kept.core.edit import Write
from kept.core.llm import ModelReply, ModelRequest
from kept.core.proposal import (
    USELESS,
    Ask,
    ClosedStep,
    History,
    Proposal,
    ProposerReply,
    Skip,
    Turn,
)
from kept.core.rollout import Failure, Pair
from kept.core.score import Finding, Outcome
from kept.core.verdict import Verdict
from kept.engine.replay import JournalScope
from kept.models.prompts import ARTIFACTS, prompt
from kept.models.scripted import ScriptedModel
from kept.orchestrator.prompt_update import (
    LONGEST,
    UPDATE,
    Offer,
    Update,
    best_offer,
    changed_share,
    fault_in,
)
from kept.orchestrator.toolkit import own_artifacts
from kept.proposers.llm import Asked
from kept.testing import MemoryJournal
from kept.testing.suites.proposer import ProposerSuite

TEXTS = own_artifacts()
Says = Callable[[str, int], str | ModelReply | Failure]
"""By artifact and how often it was asked of it."""


def reply(content: str | None, expected: float = 0.1, confidence: float = 0.5) -> str:
    return json.dumps(
        {
            "change": content is not None,
            "content": content or "",
            "rationale": "it mends something",
            "expected_loss_reduction": expected,
            "confidence": confidence,
        }
    )


def updater(says: Says, **more: object) -> tuple[Update, ScriptedModel]:
    def answer(request: ModelRequest) -> str | ModelReply | Failure:
        told = request.messages[0].text
        name = next(one for one in ARTIFACTS if f"`{one}`" in told)
        return says(name, sum(m.role == "assistant" for m in request.messages))

    model = ScriptedModel(answer)
    asked = Asked(model, ModelRequest(()))
    made = Update(asked=asked, told=prompt("update"), **more)  # pyright: ignore[reportArgumentType] # by its names
    return made, model


def added(name: str, words: str = "One more line.") -> str:
    return f"{TEXTS[name].rstrip()}\n{words}\n"


class TestUpdate(ProposerSuite):
    def make_proposer(self) -> Update:
        return updater(lambda name, _: reply(added(name)))[0]

    def incumbent(self) -> Candidate:
        return Candidate(TEXTS)

    def outcome(self, pair: Pair) -> Outcome:
        return Outcome({"score": 0.5}, findings=(Finding(f"something in {pair.case}"),))


def proposed(made: Update, closed: tuple[ClosedStep, ...] = (), **of: object) -> ProposerReply:
    suite = TestUpdate()
    brief = replace(suite.brief(), history=History(closed))
    scope = JournalScope(MemoryJournal(), "propose/0")
    ask = asyncio.run(made.propose(brief, scope))
    assert isinstance(ask, Ask) and ask.purpose == "feedback"
    answer = suite._answer(ask)  # pyright: ignore[reportPrivateUsage] # as the suite answers
    if of:
        answer = replace(answer, outcomes=dict.fromkeys(answer.outcomes, of["outcome"]))  # pyright: ignore[reportArgumentType] # one for all
    return asyncio.run(made.propose(replace(brief, answers=(answer,)), scope))


def test_every_artifact_has_a_question_of_its_own_and_one_update_is_put_forward():
    worth: dict[str, float] = dict(
        zip(map(str, ARTIFACTS), (0.1, 0.3, 0.2, 0.0, 0.05, 0.1), strict=True)
    )
    made, model = updater(lambda name, _: reply(added(name), worth[name], 0.5))
    said = proposed(made)
    assert isinstance(said, Proposal)
    assert model.calls == 6
    assert said.edits == (Write("manager_planning_preamble", added("manager_planning_preamble")),)
    assert said.about["artifact"] == "manager_planning_preamble"
    considered = cast("list[object]", said.about["considered"])
    assert len(considered) == 6


def test_of_equal_promises_the_surer_wins_and_then_the_first_by_name():
    offers = [
        Offer("b", "", "", 0.2, 0.5),
        Offer("c", "", "", 0.1, 1.0),
        Offer("a", "", "", 0.2, 0.5),
    ]
    assert best_offer(offers).name == "c"
    assert best_offer([offers[0], offers[2]]).name == "a"


def test_what_nobody_would_change_is_a_step_without_a_proposal():
    said = proposed(updater(lambda name, _: reply(None))[0])
    assert isinstance(said, Skip) and said.why == "no text is to be changed"


def test_a_reply_that_cannot_be_used_is_asked_for_once_more():
    def says(name: str, times: int) -> str:
        if name != "worker_pitfalls":
            return reply(None)
        return reply("all of it anew " * 100) if not times else reply(added(name))

    made, model = updater(says)
    said = proposed(made)
    assert isinstance(said, Proposal) and model.calls == 7
    assert "percent of the text changes, 50 allowed" in model.requests[-1].messages[-1].text


@pytest.mark.parametrize("good", [0, 1])
def test_replies_none_of_which_can_be_used_are_told_apart_from_a_wish_for_no_change(good: int):
    """One text that is to stay as it is was an answer."""
    said = proposed(updater(lambda name, _: reply(None) if name in ARTIFACTS[:good] else "Hm.")[0])
    assert isinstance(said, Skip) and said.about["unusable"] == len(ARTIFACTS) - good
    assert said.about.get(USELESS) == (None if good else "optimizer")
    start = "no text is to be changed; of 5 texts there is no" if good else "the optimizer gave no"
    assert said.why.startswith(start)


def test_an_outage_of_one_question_is_an_outage_of_the_turn():
    def says(name: str, _: int) -> str | Failure:
        gone = Failure("server", "infrastructure", "nobody answers", tried=True)
        return gone if name == "critique_rubric" else reply(added(name))

    said = proposed(updater(says)[0])
    assert isinstance(said, Failure) and said.blame == "infrastructure"


def test_where_nothing_is_wrong_nobody_is_asked():
    made, model = updater(lambda name, _: reply(added(name)))
    said = proposed(made, outcome=Outcome({"score": 0.0}))
    assert isinstance(said, Skip) and said.exhausted and not model.calls


def test_an_outage_that_took_every_task_is_no_epoch_without_an_update():
    gone = Failure("server", "infrastructure", "nobody answers", tried=True)
    made, model = updater(lambda name, _: reply(None))
    assert proposed(made, outcome=Outcome(failure=gone)) == gone and not model.calls


def test_texts_that_no_task_runs_with_are_nothing_to_go_by():
    broken = Failure("crash", "candidate", "it ends at once")
    said = proposed(updater(lambda name, _: reply(None))[0], outcome=Outcome(failure=broken))
    assert isinstance(said, Skip) and not said.exhausted


HINT = "experiment_context_hint_template"
RUBRIC = TEXTS["critique_rubric"]


@pytest.mark.parametrize(
    ("name", "content", "said"),
    [
        ("critique_rubric", RUBRIC, "the new text is the present one"),
        ("critique_rubric", "  \n", "the new text is empty"),
        (
            "critique_rubric",
            RUBRIC.replace("{{kept.categories}}", "any"),
            "`{{kept.categories}}` is",
        ),
        ("critique_rubric", "x" * LONGEST, f"{LONGEST + 1} characters, {LONGEST} allowed"),
        ("worker_pitfalls", "Something else altogether. " * 30, "percent of the text changes"),
        ("worker_pitfalls", added("worker_pitfalls"), ""),
        (HINT, added(HINT), ""),
    ],
)
def test_a_text_that_cannot_be_used_is_told_why(name: str, content: str, said: str):
    told = {"change": True, "content": content}
    found = fault_in(name, TEXTS[name], told, 0.5)  # pyright: ignore[reportArgumentType] # one of them
    assert said in found if said else not found, found


def test_a_share_is_of_words_removed_and_added():
    text = "one two three four " * 20
    assert changed_share(text, text) == 0
    assert changed_share(text, "other words " * 40) == 1
    assert changed_share(text, text + "five " * 20) == pytest.approx(20 / 180)
    assert changed_share("short", "short and longer") == pytest.approx(2 / 60)


def test_the_share_of_a_text_whose_words_are_alike_is_found_in_time():
    before, after = (" ".join("a" if n % k else f"{n}" for n in range(7000)) for k in (2, 3))
    began = time.process_time()
    assert 0 < changed_share(before, after) <= 1
    assert time.process_time() - began < 10


def rolled_back(step: int, outcome: str = "discard", code: str = "judged") -> ClosedStep:
    return ClosedStep(
        step,
        Turn(UPDATE),
        "old",
        "new",
        Proposal((Write("worker_pitfalls", f"text {step}"),), why=f"why {step}"),
        (),
        Verdict(outcome, f"verdict {step}", code),  # pyright: ignore[reportArgumentType] # of those
    )


def test_a_step_is_halved_only_where_the_policy_says_so_and_only_by_rollbacks():
    steps = (
        rolled_back(0),
        rolled_back(1, "keep"),
        rolled_back(2, "skip", "indecisive"),
        rolled_back(3, "discard", "guard"),
        rolled_back(4),
    )
    assert updater(lambda name, _: reply(None), halves=True)[0].share(steps) == 0.125
    assert updater(lambda name, _: reply(None))[0].share(steps) == 0.5


def test_who_proposes_is_told_what_was_tried_and_what_became_of_it():
    made, model = updater(lambda name, _: reply(None))
    proposed(made, (rolled_back(0), rolled_back(1, "skip", "indecisive")))
    told = model.requests[0].messages[-1].text
    assert "why 0\nverdict: discard (judged): verdict 0" in told and "text 0" in told
    assert "why 1" not in told, "what nobody could tell says nothing"
