"""The step of training: what analysts are shown, and what becomes of what they say."""

import json
import re
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from kept.core.artifact import Artifact, Candidate, Rules
from kept.core.case import Case
from kept.core.llm import ModelRequest
from kept.core.proposal import Ask, ClosedStep, Note, Proposal, Skip, Turn
from kept.core.rollout import Failure, TraceItem, Usage
from kept.core.score import Finding, Outcome
from kept.core.verdict import Verdict
from kept.evaluators.environments.chat_student import probed, probing_of
from kept.recipes.skill.document import REGIONS
from kept.recipes.skill.proposers.analyst import HIDDEN, Sight, redacted
from kept.recipes.skill.proposers.reflect import Deep, Lapses
from kept.recipes.skill.proposers.teacher import REWRITE, SUGGEST, Prompts
from kept.testing import MemoryJournal, ScriptedModel
from tests.proposers.briefs import ask, check_golden
from tests.recipes.skill.proposers.scenes import (
    OWN,
    ROWS,
    SKILL,
    about,
    analysis,
    by_side,
    chat,
    edit,
    make_brief,
    propose,
    proposer,
    rewriting,
    shown,
    suggesting,
    wants,
)


def test_the_brief_of_an_analyst_reads_so():
    closed = ClosedStep(
        0,
        Turn("step", "e1/step", 0, {"epoch": 1, "step": 0}),
        "x",
        "y",
        Proposal(
            (),
            about={
                "digest": {
                    "n_total": 4,
                    "n_fail": 3,
                    "failure_patterns": [{"pattern": "slips", "count": 2, "task_ids": ["a"]}],
                },
                "items": [edit("- Be quick.")],
            },
        ),
        (),
        Verdict("discard", "not better", numbers={"gain": -0.05}),
    )
    brief = make_brief(closed=(closed,), memory=(Note("Short rules help.", "meta_skill"),))
    _, requests = propose(by_side, brief)
    by_kind = {"failure_summary" in wants(one): one for one in requests if "patch" in wants(one)}
    check_golden(shown(by_kind[True]), "skill_failure")
    check_golden(shown(by_kind[False]), "skill_success")


def test_failures_and_successes_are_looked_at_apart_and_a_part_of_a_case_is_no_success():
    """The original took any score above zero for a success."""
    _, requests = propose(by_side)
    failing = next(shown(one) for one in requests if "failure_summary" in wants(one))
    solved = next(shown(one) for one in requests if "success_patterns" in wants(one))
    assert sorted(re.findall(r"\(id=(\w)\)", failing)) == ["a", "b"]
    assert sorted(re.findall(r"\(id=(\w)\)", solved)) == ["c", "d"]


def test_minibatches_are_cut_the_same_way_each_time_and_asked_together():
    rows = {f"q{n}": (0.0, ROWS["a"][1]) for n in range(7)}
    first, one = propose(by_side, make_brief(rows), size=3)
    second, two = propose(by_side, make_brief(rows), size=3)
    assert first == second and sorted(map(shown, one)) == sorted(map(shown, two))
    sizes = [len(re.findall(r"\(id=", shown(r))) for r in one if "failure_summary" in wants(r)]
    assert sorted(sizes) == [1, 3, 3]


def test_failure_only_asks_no_analyst_of_successes():
    _, requests = propose(by_side, failure_only=True)
    assert not any("success_patterns" in wants(one) for one in requests)
    solved = make_brief({"c": ROWS["c"]})
    reply, none = propose(by_side, solved, failure_only=True)
    assert isinstance(reply, Skip) and (reply.why, none) == ("every case is solved", [])


def test_the_expected_answer_is_shown_only_where_the_config_allows_it():
    _, told = propose(by_side)
    assert any("gold of a" in shown(one) for one in told)
    _, hidden = propose(by_side, sight=Sight(about, gold=False))
    assert not any("gold of a" in shown(one) for one in hidden)
    assert any("[the expected answer]" in shown(one) for one in hidden)


def test_what_an_agent_did_is_told_only_where_the_config_allows_it():
    _, told = propose(by_side)
    assert any("listed, then counted" in shown(one) for one in told)
    assert not any("never shown" in shown(one) for one in told)
    _, hidden = propose(by_side, sight=Sight(about, agent_traces=False))
    assert not any("listed, then counted" in shown(one) for one in hidden)


def test_whose_an_edit_is_and_what_stands_behind_it_is_carried_by_code():
    def say(request: ModelRequest) -> Any:
        if "patch" in wants(request):
            return analysis(request, edit("- x."))
        if "selected_indices" in wants(request):
            return {"reasoning": "", "selected_indices": [0, 1]}
        nowhere: list[int] = []
        rows = [{"from": [0, 1], **edit("- x.")}, {"from": nowhere, **edit("- y.")}]
        return {"reasoning": "", "edits": rows}

    reply, _ = propose(say)
    assert isinstance(reply, Proposal)
    items: Any = reply.about["items"]
    assert [(one["support_count"], one["source_type"]) for one in items] == [
        (4, "failure"),
        (0, "success"),
    ]


def test_many_patches_are_merged_level_by_level():
    rows = {f"q{n}": (0.0, ROWS["a"][1]) for n in range(5)}
    merges: list[int] = []

    def say(request: ModelRequest) -> Any:
        if "patch" in wants(request):
            return analysis(request, edit(f"- {len(merges)} {shown(request)[-40:]!r}."))
        found = re.findall(r"^(\d+): \{", shown(request), re.MULTILINE)
        merges.append(len(found))
        return {"reasoning": "", "edits": [{"from": list(range(len(found))), **edit("- all.")}]}

    reply, _ = propose(say, make_brief(rows), size=1, merge_size=2)
    assert isinstance(reply, Proposal)
    # 5 patches: two pairs and one alone, then one pair and one alone, then the last two
    assert merges == [2, 2, 2, 2]
    items: Any = reply.about["items"]
    assert [one["support_count"] for one in items] == [5]


def test_where_a_merger_says_nothing_of_use_all_stand_in_a_row_and_that_is_told():
    def say(request: ModelRequest) -> Any:
        if "patch" in wants(request):
            return by_side(request)
        return "I would rather not" if "from" in str(request.schema) else by_side(request)

    reply, _ = propose(say, max_edits=2)
    assert isinstance(reply, Proposal)
    items: Any = reply.about["items"]
    assert [one["content"] for one in items] == ["- From failure.", "- From success."]
    said: Any = reply.about["said"]
    assert any("put in a row" in one for one in said)


@pytest.mark.parametrize("bad", [[], [7], ["x", -1, True], [0, 1]])
def test_a_list_of_places_of_no_use_is_asked_again_and_then_told(bad: list[object]):
    """The original cut the list off in silence."""
    asked = 0

    def say(request: ModelRequest) -> Any:
        nonlocal asked
        if "selected_indices" in wants(request):
            asked += 1
            return {"reasoning": "", "selected_indices": bad}
        return by_side(request)

    reply, _ = propose(say, make_brief(max_edits=1), rounds=3)
    assert asked == 3, "as often as it may be asked"
    assert isinstance(reply, Proposal)
    ranked: Any = reply.about["ranked"]
    assert ranked["by"] == "support" and "no ranking could be used" in ranked["said"]


@pytest.mark.parametrize("bad", [[1, 7], [1, 1], [-1, 1], ["x", 1], [1, None], [1.5, 1]])
def test_places_of_a_ranking_that_are_none_are_dropped_and_reported(bad: list[object]):
    asked = 0

    def say(request: ModelRequest) -> Any:
        nonlocal asked
        if "selected_indices" in wants(request):
            asked += 1
            return {"reasoning": "", "selected_indices": bad}
        return by_side(request)

    reply, _ = propose(say, make_brief(max_edits=1))
    assert asked == 1
    assert isinstance(reply, Proposal)
    ranked: Any = reply.about["ranked"]
    assert (ranked["by"], ranked["selected_indices"]) == ("ranked", [1])
    assert "dropped from the ranking of 2 edits: `" in ranked["said"]


def test_sources_of_a_merged_item_that_are_none_are_dropped_and_reported():
    def say(request: ModelRequest) -> Any:
        if "from" in str(request.schema):
            return {"reasoning": "", "edits": [{"from": [0, -1, "x", 9, 1], **edit("- Both.")}]}
        return by_side(request)

    reply, _ = propose(say, max_edits=2)
    assert isinstance(reply, Proposal)
    items: Any = reply.about["items"]
    assert [one["content"] for one in items] == ["- Both."]
    said: Any = reply.about["said"]
    assert any('dropped from its sources: `-1`, `"x"`, `9`' in one for one in said)


def test_keys_that_nobody_asked_for_are_ignored():
    def say(request: ModelRequest) -> Any:
        said = by_side(request)
        inner = said.get("patch", said)
        rows = [{**row, "mood": "fine"} for row in inner.get("edits", ())]
        return {**said, "sure": True, **({"edits": rows} if inner is said and rows else {})}

    plain, _ = propose(by_side, max_edits=2)
    reply, requests = propose(say, max_edits=2)
    assert isinstance(reply, Proposal)
    assert isinstance(plain, Proposal)
    assert (reply.edits, reply.about["items"]) == (plain.edits, plain.about["items"])
    assert all(len(request.messages) == 2 for request in requests), "nothing was asked again"


def test_a_second_list_of_use_is_taken():
    def say(request: ModelRequest) -> Any:
        if "selected_indices" in wants(request):
            again = len(request.messages) > 2
            return {"reasoning": "", "selected_indices": [1] if again else [9]}
        return by_side(request)

    reply, _ = propose(say, make_brief(max_edits=1))
    assert isinstance(reply, Proposal)
    ranked: Any = reply.about["ranked"]
    assert (ranked["by"], ranked["selected_indices"]) == ("ranked", [1])


def lost(request: ModelRequest) -> Any:
    """Edits that have no place in the skill."""
    if "patch" in wants(request):
        return analysis(request, edit("- New.", "replace", "- Third rule."))
    if "edits" in wants(request) and "reasoning" not in wants(request):
        return {"edits": [{"index": 0, **edit("- New.", "replace", "- First rule.")}]}
    return by_side(request)


def test_an_edit_that_does_not_apply_is_mended_once():
    reply, requests = propose(lost, failure_only=True)
    assert isinstance(reply, Proposal)
    items: Any = reply.about["items"]
    assert items[0]["target"] == "- First rule." and items[0]["repaired"]
    repairs = [one for one in requests if "does not apply" in shown(one)]
    assert len(repairs) == 1 and "target missing" in shown(repairs[0])


def test_with_one_round_nothing_is_repaired():
    reply, requests = propose(lost, failure_only=True, rounds=1)
    assert isinstance(reply, Proposal) and len(requests) == 1
    said: Any = reply.about["said"]
    assert said == ["edit 0 does not apply: target missing not in `SKILL.md`"]


@pytest.mark.parametrize("rounds", [1, 2, 3])
def test_an_analyst_is_asked_no_oftener_than_the_rounds_allow(rounds: int):
    reply, requests = propose(lambda _: "prose", failure_only=True, rounds=rounds)
    assert isinstance(reply, Skip) and len(requests) == rounds
    assert "no analyst gave an answer of use" in reply.why


BENDS: dict[str, Callable[[str], str]] = {
    "trailing comma": lambda text: text[:-1] + ",}",
    "raw newline": lambda text: text.replace("- From", "- From\n"),
    "thoughts before": lambda text: '<think>maybe {"patch": 1}</think>' + text,
    "said twice": lambda text: f"{text}\n{text}",
    "in a fence": lambda text: f"Here it is:\n```json\n{text}\n```\n",
}


@pytest.mark.parametrize("bend", BENDS.values(), ids=list(BENDS))
def test_a_reply_that_is_nearly_json_costs_no_minibatch(bend: Callable[[str], str]):
    """In the original the first four were no reply, and nobody was asked again."""
    reply, requests = propose(lambda request: bend(json.dumps(by_side(request))), rounds=1)
    assert isinstance(reply, Proposal)
    patches: Any = reply.about["patches"]
    assert not any("error" in patch for patch in patches)
    sides = {one["content"].split()[-1] for patch in patches for one in patch["patch"]["edits"]}
    assert sides == {"failure.", "success."}
    assert len(requests) == len(patches) + 1, "the merger too was asked once"


def test_a_minibatch_that_an_outage_took_costs_no_other():
    def say(request: ModelRequest) -> Any:
        if "success_patterns" in wants(request):
            return Failure("server", "infrastructure", "away", tried=True)
        return by_side(request)

    reply, _ = propose(say)
    assert isinstance(reply, Proposal)
    patches: Any = reply.about["patches"]
    assert [("error" in one) for one in patches] == [False, True]


AWAY = Failure("server", "infrastructure", "away", tried=True)


def test_an_outage_that_took_every_minibatch_is_no_step_without_a_change():
    assert propose(lambda _: AWAY)[0] == AWAY

    def mixed(request: ModelRequest) -> Any:
        return AWAY if "success_patterns" in wants(request) else "prose"

    assert propose(mixed)[0] == AWAY, "what was away might have said something"


def test_an_outage_that_took_every_rollout_is_no_step_without_a_change():
    brief = make_brief()
    (answer,) = brief.answers
    paid = replace(AWAY, usage=Usage(calls=1))
    none = replace(answer, outcomes={pair: Outcome(failure=paid) for pair in answer.outcomes})
    reply, requests = propose(by_side, replace(brief, answers=(none,)))
    assert (reply, requests) == (AWAY, []), "the rollouts have paid for themselves"


def test_an_outage_that_took_the_rewrite_is_a_failure_of_the_step():
    def say(request: ModelRequest) -> Any:
        return AWAY if "new_skill" in wants(request) else suggesting(request)

    assert propose(say, update=SUGGEST, failure_only=True)[0] == AWAY


def test_an_outage_that_took_the_repair_of_all_edits_is_a_failure_of_the_step():
    def say(request: ModelRequest) -> Any:
        return AWAY if "does not apply" in shown(request) else lost(request)

    assert propose(say, failure_only=True)[0] == AWAY


@pytest.mark.parametrize("gone", ["success_patterns", "merge", "selected_indices", "probe"])
def test_what_a_step_went_on_without_is_not_asked_for_after_a_kill(gone: str):
    """Else the merge behind it is another request, and a reply that was paid is asked for again."""
    journal, brief = MemoryJournal(), make_brief(max_edits=1)
    away = True

    def say(request: ModelRequest) -> Any:
        wanted = wants(request)
        merges = "edits" in wanted and "patch" not in wanted
        if away and (gone in wanted or (gone == "merge" and merges) or probing(request)):
            return AWAY
        return by_side(request)

    def probing(request: ModelRequest) -> bool:
        return gone == "probe" and "probe_instruction" in wants(request)

    deep = Deep(probed, Sight(about)) if gone == "probe" else None
    first = proposer(say, deep=deep)
    before = ask(first, brief, journal)
    assert isinstance(before, Proposal)
    away = False
    second = proposer(say, deep=deep)
    assert ask(second, brief, journal) == before
    assert isinstance(second.teacher.model, ScriptedModel)
    assert not second.teacher.model.requests, "all that it needs is known"


def test_a_merge_of_whole_skills_that_is_empty_is_asked_again_and_then_told():
    reply, requests = propose(lambda r: rewriting(r, []), update=REWRITE, rounds=2)
    merges = [one for one in requests if "skill_candidates" in wants(one)]
    assert len(merges) == 2, "an empty list is no reply of use"
    assert isinstance(reply, Proposal)
    said: Any = reply.about["said"]
    assert any("the first stands for all" in one for one in said)


def test_a_merged_skill_without_a_text_is_no_reply_of_use():
    empty = {"from": [0], "title": "t", "change_summary": [], "new_skill": " \n"}
    reply, _ = propose(lambda r: rewriting(r, [empty]), update=REWRITE)
    assert isinstance(reply, Proposal)
    assert "# New" in str(reply.edits), "the first of those that were to be merged stands in"


def test_a_merge_that_leaves_nothing_is_a_step_without_a_change():
    def say(request: ModelRequest) -> Any:
        if "patch" in wants(request):
            return suggesting(request)
        return {"reasoning": "none is worth it", "revise_suggestions": []}

    reply, requests = propose(say, update=SUGGEST)
    assert isinstance(reply, Skip) and "left no" in reply.why
    assert not any("new_skill" in wants(one) for one in requests), "there is nothing to write by"
    about: Any = reply.about
    assert about["merged"]["reasoning"] == "none is worth it"


def test_no_accepted_answer_is_shown_by_what_a_judge_says_where_the_config_forbids_it():
    """A judge that sees the expected answer quotes it, and any of those that are accepted."""
    judged = (
        *chat("no idea")[:3],
        TraceItem("metric", "expected Gold of A, or Other  of a", {"name": "judge"}),
        TraceItem("verification", "neither gold of a nor other of a", {"reference": "gold of a"}),
    )
    brief = make_brief({"a": (0.0, judged)})
    (answer,) = brief.answers
    finding = Finding("it is not OTHER of a, but another of ants")
    pair = next(iter(answer.outcomes))
    outcomes = {pair: Outcome({"hard": 0.0, "soft": 0.0}, findings=(finding,))}
    brief = replace(brief, answers=(replace(answer, outcomes=outcomes),))
    _, told = propose(by_side, brief)
    assert "OTHER of a," in shown(told[0])
    _, hidden = propose(by_side, brief, sight=Sight(about, gold=False))
    text = " ".join(shown(hidden[0]).casefold().split())
    assert "gold of a" not in text and not re.search(r"\bother of a\b", text)
    assert "not [the expected answer], but another of ants" in text


@pytest.mark.parametrize(
    ("hidden", "text", "left"),
    [
        (["5"], "5, not 0.5, 5.2, 15 or 5,000.", f"{HIDDEN}, not 0.5, 5.2, 15 or 5,000."),
        (["(A)", "A"], "It is (A).", f"It is {HIDDEN}."),
        (["Paris", "the answer", "answer"], "The  Answer is PARIS", f"{HIDDEN} is {HIDDEN}"),
        (["", " "], "nothing to hide", "nothing to hide"),
    ],
)
def test_answers_are_hidden_as_whole_words(hidden: list[str], text: str, left: str):
    assert redacted(text, hidden) == left


def test_what_a_student_saw_and_said_is_not_marked_where_it_has_the_answer():
    """A mark at the right one of several choices would tell what it should hide."""
    trace = (
        TraceItem("user", "Is it gold of a, or gold of b?"),
        TraceItem("assistant", "It is gold of b, and not gold of a."),
    )
    sight = Sight(about, gold=False)
    _, requests = propose(by_side, make_brief({"a": (0.0, trace)}), sight=sight)
    assert "Is it gold of a, or gold of b?" in shown(requests[0])
    assert "[the expected answer]" not in shown(requests[0])


def test_a_step_says_that_deep_reflection_asks_for_rollouts_too():
    train = tuple(Case(str(n)) for n in range(20))
    deep = Deep(probed, Sight(about), failures=3, successes=2)
    assert proposer(by_side, batch=4, accumulation=2).most_asked(train) == 8
    assert proposer(by_side, batch=4, accumulation=2, deep=deep).most_asked(train) == 13
    assert proposer(by_side, batch=4, deep=deep).most_asked(train) == 8, "no case twice"


@pytest.mark.parametrize(
    ("target", "step", "cases", "before"),
    [
        ("b", 1, {"b"}, 3),
        ("b", 0, {"b"}, 0),
        ("", 1, {"a", "b", "c", "d"}, 0),
        ("nobody", 2, {"a", "b", "c", "d"}, 0),
    ],
)
def test_a_probe_is_put_to_the_rollout_and_the_step_that_the_teacher_names(
    target: str, step: int, cases: set[str], before: int
):
    told = {"reasoning": "to see", "probe_instruction": "Why?"}
    told |= {"probe_target_id": target, "probe_after_step": step}
    reply, _ = propose(lambda _: told, deep=Deep(probed, Sight(about)))
    assert isinstance(reply, Ask) and reply.purpose == "probe"
    assert {pair.case for pair in reply.pairs} == cases
    assert reply.made is not None
    probing = probing_of(reply.made)
    assert probing is not None and probing.instruction == "Why?"
    # of TOOLS: the prompt, what was said, and the first step
    assert len([one for one in probing.before if one.role != "system"]) == before


def test_where_no_rollout_is_of_the_kind_that_is_probed_the_step_goes_on_without():
    deep = Deep(probed, Sight(about), failures=4, successes=0)
    reply, requests = propose(by_side, make_brief({"c": ROWS["c"]}), deep=deep)
    assert isinstance(reply, Proposal)
    assert not any("probe_instruction" in wants(one) for one in requests)
    told: Any = reply.about["probe"]
    assert "no rollout" in told["error"]


def test_rollouts_of_both_kinds_that_are_probed_are_not_called_failed():
    told = {"reasoning": "to see", "probe_instruction": "Why?"}
    told |= {"probe_target_id": "", "probe_after_step": 0}
    _, requests = propose(lambda _: told, deep=Deep(probed, Sight(about)))
    assert "## Trajectories (4 total)\n\n4 cases, 2 of which solved." in shown(requests[0])


def test_a_wrong_key_is_a_failure_of_the_step():
    broken = Failure("harness", "infrastructure", "no key", tried=True)
    assert propose(lambda _: broken)[0] == broken


def test_a_reply_of_nothing_but_lapses_keeps_its_notes():
    def say(request: ModelRequest) -> Any:
        if "failure_summary" in wants(request):
            made = analysis(request)
            del made["patch"]
            return {**made, "appendix_notes": ["Mind the first rule.", "mind the FIRST rule"]}
        return analysis(request, appendix_notes=[])

    reply, requests = propose(say, lapses=Lapses())
    assert isinstance(reply, Skip) and reply.about["notes"] == ["Mind the first rule."]
    assert all("appendix_notes" in wants(one) for one in requests)
    _, only = propose(say, lapses=Lapses("failure_only"))
    assert [("appendix_notes" in wants(one)) == ("failure_summary" in wants(one)) for one in only]
    assert sum("appendix_notes" in wants(one) for one in only) == 1


def test_prompts_of_the_user_come_before_the_environments_and_those_before_ours():
    levels = ({"analyst_error": "USER"}, {"analyst_error": "ENV", "analyst_success": "ENV"}, OWN)
    prompts = Prompts(levels)
    assert prompts.find("analyst_error") == "USER" and prompts.find("analyst_success") == "ENV"
    assert prompts.find("ranking") == OWN["ranking"].strip()
    assert prompts.find("ranking", "_rewrite") == OWN["ranking"].strip(), "what has none falls back"
    assert prompts.find("analyst_error", "_rewrite") == "USER"
    own = Prompts((OWN,))
    assert own.find("analyst_error", "_rewrite") == OWN["analyst_error_rewrite"].strip()
    assert own.find("analyst_error", "_full_rewrite") == OWN["analyst_error_full_rewrite"].strip()


def test_more_edits_than_the_budget_are_counted_and_not_taken():
    def say(request: ModelRequest) -> Any:
        if "patch" in wants(request):
            return analysis(request, *(edit(f"- {n}.") for n in range(5)))
        return by_side(request)

    reply, _ = propose(say, make_brief(max_edits=None), failure_only=True, max_edits=3)
    assert isinstance(reply, Proposal) and len(reply.edits) == 3
    patches: Any = reply.about["patches"]
    assert patches[0]["over_budget"] == 2


def test_each_pattern_is_told_with_the_cases_of_its_own_minibatch():
    """The original paired patterns and cases by the order in which they came."""
    rows = {f"q{n}": (0.0, ROWS["a"][1]) for n in range(2)}

    def say(request: ModelRequest) -> Any:
        said = by_side(request)
        for one in said.get("failure_summary", ()):
            one["count"] = 50
        return said

    reply, _ = propose(say, make_brief(rows), size=1)
    assert isinstance(reply, Proposal)
    digest: Any = reply.about["digest"]
    patches: Any = reply.about["patches"]
    assert {one["count"] for one in digest["failure_patterns"]} == {1}
    found = [one["task_ids"] for one in digest["failure_patterns"]]
    assert found == [patch["cases"] for patch in patches] and found[0] != found[1]


def test_a_proposal_changes_the_skill_and_nothing_else():
    reply, _ = propose(by_side)
    assert isinstance(reply, Proposal)
    assert {edit.path for edit in reply.edits} == {"SKILL.md"} and SKILL not in str(reply.edits)


def test_edits_of_a_skill_folder_name_their_file():
    brief = make_brief()
    texts = {**brief.incumbent.texts, "references/units.md": "Metres.\n"}
    rules = Rules({path: Artifact(path, REGIONS if path == "SKILL.md" else ()) for path in texts})
    brief = replace(brief, incumbent=Candidate(texts), rules=rules)

    def say(request: ModelRequest) -> Any:
        if "patch" in wants(request):
            whole = {**edit("Feet too.", "insert_after", "Metres."), "file": "references/units.md"}
            return analysis(request, whole)
        return by_side(request)

    reply, requests = propose(say, brief, failure_only=True)
    assert isinstance(reply, Proposal) and reply.edits[0].path == "references/units.md"
    assert "Metres." in shown(requests[0]), "the other files are shown, too"
    mended: list[str] = []

    def twice(request: ModelRequest) -> Any:
        at = {"file": "references/units.md"}
        if "patch" not in wants(request):
            mended.append(shown(request))
            return {"edits": []}
        found = {**edit("Yards.", "replace", "Feet."), **at}
        return analysis(request, {**edit("Feet too.", "append"), **at}, found)

    propose(twice, brief, failure_only=True)
    assert "## `references/units.md` with the other edits" in mended[0]
    assert "Metres.\nFeet too." in mended[0], "the file that the edit is for, as it is by now"
    strange = {"op": "append", "target": "", "content": "x", "file": "elsewhere.md"}
    reply, _ = propose(lambda r: analysis(r, strange), brief, failure_only=True)
    assert isinstance(reply, Skip), "a file that is not there is no reply of use"
