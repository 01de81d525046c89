"""What epochs end with: two skills compared, guidance, notes, a look back, reminders."""

import asyncio
from dataclasses import replace
from typing import Any

import pytest

from kept.core.artifact import Artifact, Candidate, Rules
from kept.core.edit import Append, Edit, Fill, Replace, apply_edits
from kept.core.llm import ModelReply, ModelRequest
from kept.core.proposal import Answer, Ask, Brief, ClosedStep, History, Note, Proposal, Skip, Turn
from kept.core.rollout import Failure, Pair
from kept.core.score import Finding, Outcome
from kept.core.verdict import Verdict
from kept.recipes.skill.document import APPENDIX, SLOW_UPDATE, region_text
from kept.recipes.skill.proposers.analyst import Sight, step_buffer
from kept.recipes.skill.proposers.epoch_end import (
    Comparison,
    MetaReflect,
    MetaSkill,
    SlowUpdate,
    past_skill,
)
from kept.recipes.skill.proposers.reflect import Lapses, appendix_text, fresh_notes, notes_in
from kept.recipes.skill.proposers.update import Appendix
from kept.testing import ScriptedModel
from tests.proposers.briefs import ask
from tests.recipes.skill.proposers.scenes import (
    RULES,
    SKILL,
    Say,
    about,
    edit,
    make_brief,
    outcome,
    proposer,
    shown,
    teacher,
)

KEPT, REFUSED = Verdict("keep", "better"), Verdict("discard", "not better")


def step_of(epoch: int, number: int, before: str, after: str, verdict: Verdict, **told: Any):
    """A closed step that made one text of another."""
    old = Candidate({"SKILL.md": before})
    edits = (Fill("SKILL.md", "<!-- x -->", "<!-- /x -->", after),) if after else ()
    applied = apply_edits(old, edits, RULES)
    turn = Turn("step", f"e{epoch}/step", number, {"epoch": epoch, "step": number})
    proposal = Proposal(edits, about=told)
    made = applied.candidate
    return made, ClosedStep(number, turn, old.id, made.id, proposal, applied.reports, verdict)


def at_end(name: str, closed: list[ClosedStep], skill: str, epoch: int = 2) -> Brief:
    turn = Turn(name, f"e{epoch}/{name}", 0, {"epoch": epoch, "step": 0})
    return replace(make_brief(skill=skill), turn=turn, history=History(closed), answers=())


def test_the_skill_of_the_last_epoch_is_found_by_taking_back_what_was_kept():
    one, first = step_of(1, 0, SKILL, "one", KEPT)
    two, second = step_of(2, 1, one["SKILL.md"], "two", KEPT)
    _, third = step_of(2, 2, two["SKILL.md"], "never", REFUSED)
    brief = at_end("slow_update", [first, second, third], two["SKILL.md"])
    assert past_skill(brief) == one


def answered(brief: Brief, comparison: Comparison, hard: dict[str, tuple[float, float]]) -> Brief:
    """The brief with what both skills came to: then, and now."""
    past = past_skill(brief).id
    while (wanted := comparison.asks(brief)) is not None:
        at = 0 if wanted.candidate == past else 1
        told = {pair: outcome(hard[pair.case][at]) for pair in wanted.pairs}
        brief = replace(brief, answers=(*brief.answers, Answer(wanted, told, {})))
    return brief


BOTH = {"a": (0.0, 1.0), "b": (1.0, 0.0), "c": (0.0, 0.0), "d": (1.0, 1.0)}


def two_epochs(name: str) -> tuple[Brief, Comparison]:
    made, step = step_of(2, 0, SKILL, "now", KEPT)
    comparison = Comparison(Sight(about), samples=4)
    brief = at_end(name, [step], made["SKILL.md"])
    return answered(brief, comparison, BOTH), comparison


def test_two_skills_meet_on_the_same_cases_and_each_case_is_told_by_what_became_of_it():
    brief, comparison = two_epochs("slow_update")
    asks: list[Ask] = [answer.ask for answer in brief.answers]
    assert len(asks) == 2 and asks[0].pairs == asks[1].pairs
    assert {one.purpose for one in asks} == {"feedback"}
    assert all(pair.repeat == 1 for pair in asks[0].pairs), "in the draw of this epoch"
    found = {row.case.id: row.change for row in comparison.compared(brief)}
    assert found == {
        "a": "improved",
        "b": "regressed",
        "c": "persistent_fail",
        "d": "stable_success",
    }


def test_guidance_and_notes_of_an_epoch_compare_the_same_cases():
    """Each drew cases of its own: what was rolled out for the one was no use to the other."""
    comparison = Comparison(Sight(about), samples=2, run_seed=5)
    briefs = [replace(two_epochs(name)[0], seed=n) for n, name in enumerate(("a", "b", "c"))]
    assert len({comparison.pairs(brief) for brief in briefs}) == 1
    brief = briefs[0]
    later = [replace(brief.turn, settings={"epoch": n, "step": 0}) for n in range(2, 9)]
    drawn = {tuple(p.case for p in comparison.pairs(replace(brief, turn=one))) for one in later}
    assert len(drawn) > 1, "and other ones in other epochs"


def compared_skills(edits: tuple[Edit, ...]) -> str:
    """What is told of two skills of which the one became the other by edits, all of them kept."""
    old = Candidate({"SKILL.md": SKILL, "references/units.md": "Metres.\n", "x.md": "Else.\n"})
    rules = Rules({path: Artifact(path) for path in old.texts})
    applied = apply_edits(old, edits, rules)
    _, step = step_of(2, 0, SKILL, "", KEPT)
    step = replace(step, candidate=applied.candidate.id, reports=applied.reports)
    brief = replace(at_end("slow_update", [step], SKILL), incumbent=applied.candidate, rules=rules)
    items = Comparison(Sight(about)).items(brief, [])
    return "\n".join(f"{item.title}\n{item.text}" for item in items)


def test_two_skills_that_are_folders_differ_by_their_files_too():
    """SKILL.md alone was shown, and that twice: as if nothing had changed between two epochs."""
    told = compared_skills((Append("references/units.md", "Feet too.\n"),))
    assert "## Its file `references/units.md`\nMetres.\nFeet too." in told
    assert "## Its file `references/units.md` at the end of the last epoch\nMetres.\n" in told
    assert told.count("- First rule.") == told.count("Else.") == 1, "what is the same, once"
    same = compared_skills(())
    assert "## The skill at the end of the last epoch\nThe same as now" in same
    other = compared_skills((Replace("SKILL.md", "First", "Last"),))
    assert "## The skill now\n# Skill\n\n- Last rule." in other
    assert "## The skill at the end of the last epoch\n# Skill\n\n- First rule." in other


def test_what_a_judge_says_of_two_skills_holds_no_answer_where_the_config_forbids_it():
    brief, told = two_epochs("slow_update")
    judged = outcome(0.0)._replace(findings=(Finding("expected: gold of b"),))
    answers = [
        replace(one, outcomes={p: judged if p.case == "b" else o for p, o in one.outcomes.items()})
        for one in brief.answers
    ]
    brief = replace(brief, answers=tuple(answers))
    hiding = Comparison(Sight(about, gold=False), samples=4)
    for comparison, there in ((told, True), (hiding, False)):
        items = comparison.items(brief, comparison.compared(brief))
        assert any("gold of b" in item.text for item in items) == there


def test_guidance_goes_into_its_region_and_nothing_else_of_the_skill_changes():
    brief, comparison = two_epochs("slow_update")
    told = {"reasoning": "why", "slow_update_content": f"Do so. {APPENDIX.begin}"}
    made, model = teacher(lambda _: told)
    reply = ask(SlowUpdate(made, comparison), brief)
    assert isinstance(reply, Proposal)
    after = apply_edits(brief.incumbent, reply.edits, brief.rules).candidate["SKILL.md"]
    assert region_text(after, SLOW_UPDATE) == "Do so." and APPENDIX.begin not in after
    assert after.startswith(brief.incumbent["SKILL.md"].rstrip())
    text = shown(model.requests[0])
    assert text.index("## Regressed (1)") < text.index("## Stable success (1)")
    again = at_end("slow_update", list(brief.history), after)
    again = answered(again, comparison, BOTH)
    second = ask(
        SlowUpdate(teacher(lambda _: {**told, "slow_update_content": "Do so."})[0], comparison),
        again,
    )
    assert isinstance(second, Skip), "the same guidance is no news"


def test_an_outage_that_took_one_of_two_skills_is_no_turn_without_guidance():
    brief, comparison = two_epochs("slow_update")
    away = Failure("server", "infrastructure", "away", tried=True)
    then, now = brief.answers
    gone = replace(now, outcomes=dict.fromkeys(now.outcomes, Outcome(failure=away)))
    made, model = teacher(lambda _: {})
    reply = ask(SlowUpdate(made, comparison), replace(brief, answers=(then, gone)))
    assert reply == away and not model.calls


def test_notes_of_the_teacher_are_a_note_and_change_nothing():
    brief, comparison = two_epochs("meta_skill")
    brief = replace(brief, memory=(Note("Old notes.", "meta_skill"), Note("other", "else")))
    made, model = teacher(lambda _: {"reasoning": "", "meta_skill_content": " Be brief. "})
    reply = ask(MetaSkill(made, comparison), brief)
    assert isinstance(reply, Note) and (reply.text, reply.topic) == ("Be brief.", "meta_skill")
    assert reply.about["meta_skill_content"] == "Be brief." and reply.about["pairs"]
    assert "Old notes." in shown(model.requests[0]) and "other" not in shown(model.requests[0])


def test_a_look_back_sees_all_steps_and_what_it_said_of_the_epoch_before():
    told: dict[str, Any] = {"items": [edit("- Be quick.")], "digest": {"failure_patterns": []}}
    _, one = step_of(1, 0, SKILL, "", REFUSED)
    back = ClosedStep(
        1,
        Turn("meta_reflect", "e1/meta_reflect", 0, {"epoch": 1, "step": 0}),
        "x",
        None,
        None,
        (),
        Verdict("skip", "nothing"),
        skip=Skip("nothing", about={"meta_summary": "It was slow."}),
    )
    _, two = step_of(2, 2, SKILL, "", REFUSED, **told)
    brief = at_end("meta_reflect", [one, back, two], SKILL)
    edits = [edit(f"- {n}.") for n in range(3)]
    said = {"meta_summary": "short rules", "patch": {"reasoning": "why", "edits": edits}}
    made, model = teacher(lambda _: said)
    reply = ask(MetaReflect(made, max_edits=2), brief)
    assert isinstance(reply, Proposal) and len(reply.edits) == 2
    assert (reply.about["meta_summary"], reply.about["over_budget"]) == ("short rules", 1)
    text = shown(model.requests[0])
    assert "It was slow." in text and "Be quick." in text and text.count("## Step ") == 1


@pytest.mark.parametrize(
    ("numbers", "told"),
    [
        ({"gain": -0.05, "screen_gain": 0.2}, "not kept (judged), `hard` -0.0500"),
        ({"screen_gain": -0.75}, "not kept (judged), `hard` -0.7500 on train cases"),
        ({"screen_gain": 0.1, "estimate": 1.5}, "not kept (judged), `hard` +0.1000 on train cases"),
        ({}, "not kept (judged)"),
    ],
)
def test_what_was_refused_is_told_with_what_it_lost(numbers: dict[str, float], told: str):
    """Of what the race had screened out, which is most of it, nothing was told."""
    verdict = replace(REFUSED, numbers=numbers)
    _, step = step_of(1, 1, SKILL, "", verdict, items=[edit("- Be quick.")], digest={"n_fail": 1})
    brief = replace(make_brief(closed=(step,)), turn=Turn("step", "e1/step", 1, {"epoch": 1}))
    lines = step_buffer(brief).splitlines()
    assert lines[0].endswith(f"its edits were {told}")
    assert lines[1] == "- edit that was not kept: append with `- Be quick.`"


def noted(*notes: str) -> list[ClosedStep]:
    return [step_of(1, 0, SKILL, "", REFUSED, notes=list(notes))[1]]


def test_reminders_that_say_the_same_in_other_signs_are_one():
    assert fresh_notes(["Mind the gap!", "mind  the GAP", "Else."], ["else"]) == ["Mind the gap!"]
    assert notes_in(f"{APPENDIX.begin}\n{appendix_text(['a', 'b'])}\n{APPENDIX.end}") == ["a", "b"]


def test_reminders_of_an_epoch_come_together_and_old_ones_stay():
    old = f"{SKILL}\n{APPENDIX.begin}\n{appendix_text(['Old.'])}\n{APPENDIX.end}\n"
    made, model = teacher(lambda _: "")
    reply = ask(Appendix(made, Lapses()), at_end("appendix", noted("New.", "old"), old, 1))
    assert isinstance(reply, Proposal) and not reply.ungated and not model.requests
    after = apply_edits(Candidate({"SKILL.md": old}), reply.edits, RULES).candidate["SKILL.md"]
    assert notes_in(after) == ["Old.", "New."]
    nothing = ask(Appendix(made, Lapses()), at_end("appendix", noted("OLD!"), old, 1))
    assert isinstance(nothing, Skip)


def test_too_many_reminders_are_put_together_and_kept_where_that_fails():
    notes = [f"Note {n}." for n in range(4)]

    def reminders(say: Say) -> tuple[list[str], Proposal]:
        reply = ask(
            Appendix(teacher(say)[0], Lapses(threshold=3)),
            at_end("appendix", noted(*notes), SKILL, 1),
        )
        assert isinstance(reply, Proposal)
        after = apply_edits(Candidate({"SKILL.md": SKILL}), reply.edits, RULES).candidate
        return notes_in(after["SKILL.md"]), reply

    def says(told: object) -> Say:
        return lambda _: told

    assert reminders(says({"notes": ["All of it."]}))[0] == ["All of it."]
    few, model = teacher(says("never asked"))
    reply = ask(Appendix(few, Lapses(threshold=4)), at_end("appendix", noted(*notes), SKILL, 1))
    assert isinstance(reply, Proposal) and not model.calls, "as many as may be are left alone"
    kept, reply = reminders(says({"notes": notes}))
    assert kept == notes and "no shorter" in str(reply.about["said"])
    kept, reply = reminders(says("prose"))
    assert kept == notes and "not put together" in str(reply.about["said"])


def test_no_more_calls_are_in_flight_than_allowed():
    rows = {f"q{n}": (0.0, ()) for n in range(12)}
    most = flying = 0

    class Slow(ScriptedModel):
        async def complete(self, request: ModelRequest) -> ModelReply | Failure:
            nonlocal most, flying
            flying += 1
            most = max(most, flying)
            await asyncio.sleep(0.001)
            flying -= 1
            return ModelReply('{"failure_summary": [], "patch": {"reasoning": "", "edits": []}}')

    one = proposer(lambda _: "", size=1, at_once=3, batch=12)
    one = replace(one, teacher=replace(one.teacher, model=Slow(())))
    reply = ask(one, make_brief(rows))
    assert isinstance(reply, Skip) and most == 3
    assert Pair("q0", 0) in make_brief(rows).answers[0].outcomes
