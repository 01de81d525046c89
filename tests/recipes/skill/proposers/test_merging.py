"""Aggregate: what stands behind an item, who is asked together, and by which prompt."""

import asyncio
import json
import re
from dataclasses import replace
from typing import Any

import pytest

from kept.core.llm import ModelReply, ModelRequest
from kept.core.proposal import Note, Proposal
from kept.core.rollout import Failure
from kept.recipes.skill.proposers.aggregate import in_a_row
from kept.recipes.skill.proposers.analyst import rows_of
from kept.recipes.skill.proposers.reflect import minibatches
from kept.recipes.skill.proposers.teacher import REWRITE, SUGGEST, Prompts
from kept.testing import ScriptedModel
from tests.proposers.briefs import ask
from tests.recipes.skill.proposers.scenes import (
    OWN,
    ROWS,
    analysis,
    by_side,
    edit,
    make_brief,
    propose,
    proposer,
    rewriting,
    shown,
    suggesting,
    wants,
)


def items_to_merge(request: ModelRequest) -> int:
    return len(re.findall(r"^\d+: \{", shown(request), re.MULTILINE))


def test_two_edits_of_one_analyst_have_no_more_cases_behind_them_than_either():
    """They were added up: one minibatch that said a thing twice outweighed two that said it."""
    rows = {f"q{n}": (0.0, ROWS["a"][1]) for n in range(4)}

    def say(request: ModelRequest) -> Any:
        if "patch" in wants(request):
            return analysis(request, edit("- x."), edit("- x, too."))
        told = "\n".join(shown(request).splitlines()[-4:])
        assert "minibatch" not in told, "names of minibatches are for code"
        made = [{"from": [0, 1], **edit("- One.")}, {"from": [0, 2, 3], **edit("- Both.")}]
        return {"reasoning": "", "edits": made}

    reply, _ = propose(say, make_brief(rows), size=2)
    assert isinstance(reply, Proposal)
    items: Any = reply.about["items"]
    assert [one["support_count"] for one in items] == [2, 4]
    assert [len(one["minibatches"]) for one in items] == [1, 2]


def test_equal_items_in_a_row_are_one_with_the_cases_of_both_each_counted_once():
    cases = {"m0": ["a", "b"], "m1": ["c"], "probe": ["b", "d"]}

    def item(content: str, source: str, *names: str) -> dict[str, Any]:
        own = {"support_count": 0, "source_type": source, "merge_level": 0}
        return {**edit(content), **own, "minibatches": list(names)}

    rows = [item("- x.", "success", "m0"), item("- y.", "failure", "m1")]
    rows += [item("- x.", "success", "m0"), item("- x.", "success", "probe")]
    found = in_a_row(rows, cases)
    assert [(one["content"], one["support_count"]) for one in found] == [("- y.", 1), ("- x.", 3)]
    assert found[1]["minibatches"] == ["m0", "probe"]


def test_mergers_of_a_level_are_asked_together_those_of_both_kinds():
    rows = {f"f{n}": (0.0, ROWS["a"][1]) for n in range(4)}
    rows |= {f"s{n}": (1.0, ROWS["c"][1]) for n in range(4)}
    flying = {"analysts": 0, "mergers": 0}
    all_there = {"analysts": asyncio.Event(), "mergers": asyncio.Event()}
    wanted = {"analysts": 8, "mergers": 4}

    class Together(ScriptedModel):
        """Answers none of a stage before all of it has been asked."""

        async def complete(self, request: ModelRequest) -> ModelReply | Failure:
            stage = "analysts" if "patch" in wants(request) else "mergers"
            flying[stage] += 1
            if flying[stage] >= wanted[stage]:
                all_there[stage].set()
            await asyncio.wait_for(all_there[stage].wait(), 120)
            return await super().complete(request)

    one = proposer(by_side, size=1, merge_size=2)
    model = Together(lambda request: json.dumps(by_side(request)))
    reply = ask(replace(one, teacher=replace(one.teacher, model=model)), make_brief(rows))
    assert isinstance(reply, Proposal)
    assert flying == {"analysts": 8, "mergers": 7}, "four, then one of each kind, then the last"


def test_mergers_and_rankers_are_told_what_the_teacher_remembers():
    brief = make_brief(max_edits=1, memory=(Note("Short rules help.", "meta_skill"),))
    _, requests = propose(by_side, brief)
    asked = [*map(wants, requests)]
    assert any("selected_indices" in one for one in asked) and any("edits" in one for one in asked)
    assert all("## Optimizer Meta Skill" in shown(one) for one in requests)


def test_batches_of_one_step_are_looked_at_apart():
    brief = make_brief({f"q{n}": (float(n % 2), ROWS["a"][1]) for n in range(8)})
    rows = rows_of(brief, [*brief.answers[0].outcomes])
    groups = minibatches([rows[:4], rows[4:]], 8, 3, failure_only=False)
    told = [(one.name, sorted(row.case.id for row in one.rows)) for one in groups]
    assert told == [
        ("minibatch_fail_000", ["q0", "q2"]),
        ("minibatch_fail_001", ["q4", "q6"]),
        ("minibatch_succ_000", ["q1", "q3"]),
        ("minibatch_succ_001", ["q5", "q7"]),
    ]
    others = [minibatches([rows], 2, seed, failure_only=True) for seed in range(9)]
    assert len({str(one) for one in others}) > 1, "another seed, other minibatches"


@pytest.mark.parametrize("update", [SUGGEST, REWRITE], ids=lambda one: one.mode)
def test_every_stage_has_the_prompt_of_the_environment_for_the_way_of_updating(update: Any):
    names = ["analyst_error", "analyst_success", "merge_final"]
    env = {f"{name}{update.suffix}": f"ENV {name}{update.suffix}" for name in names}
    prompts = Prompts(({}, {**env, "analyst_error": "ENV of patches"}, OWN))

    def say(request: ModelRequest) -> Any:
        if "new_skill" in wants(request):
            return {"reasoning": "", "change_summary": [], "new_skill": "# New"}
        whole = {"title": "t", "change_summary": list[str](), "new_skill": "# New"}
        if update is REWRITE:
            return rewriting(request, [{"from": [0], **whole}])
        if "patch" in wants(request):
            return suggesting(request)
        return {"reasoning": "", "revise_suggestions": []}

    _, requests = propose(say, update=update, prompts=prompts)
    told = {request.messages[0].text for request in requests}
    assert set(env.values()) <= told and "ENV of patches" not in told


def test_whole_skills_are_merged_by_a_prompt_that_asks_for_one():
    """Mergers of whole skills were told to make a list, and all but the first were dropped."""
    _, requests = propose(lambda r: rewriting(r, []), update=REWRITE, rounds=1)
    (merger,) = (one for one in requests if "skill_candidates" in wants(one))
    assert merger.messages[0].text.startswith("# Make one skill of several")
    assert items_to_merge(merger) == 2
