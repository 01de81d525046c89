"""A batch of rollouts of every shape, and a teacher that is told what to say."""

import json
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, NamedTuple

from kept.core.artifact import Artifact, Candidate, Rules
from kept.core.case import Case
from kept.core.llm import ModelRequest
from kept.core.objective import Objective
from kept.core.proposal import Answer, Brief, ClosedStep, History, Note, ProposerReply, Turn
from kept.core.rollout import Failure, Pair, TraceItem
from kept.core.score import Finding, Outcome
from kept.models.prompts import SKILLS, prompt
from kept.recipes.skill.document import REGIONS
from kept.recipes.skill.proposers.analyst import Sight
from kept.recipes.skill.proposers.reflect import Analysts
from kept.recipes.skill.proposers.step import StepProposer
from kept.recipes.skill.proposers.teacher import PATCH, Prompts, Teacher
from kept.testing import ScriptedModel
from tests.proposers.briefs import ask

SKILL = "# Skill\n\n- First rule.\n- Second rule.\n"
RULES = Rules({"SKILL.md": Artifact("SKILL.md", REGIONS)})
OWN = {name: prompt(name) for name in SKILLS}

OF_TEACHER = ("rounds", "prompts", "window", "at_once", "request", "rewriting")

Say = Callable[[ModelRequest], Any]


class About(NamedTuple):
    task: str
    type: str = ""
    reference: str = ""
    preview: str = ""
    golds: tuple[str, ...] = ()


def about(case: Case) -> About:
    preview = "A1: 3" if case.id == "d" else ""
    gold = f"gold of {case.id}"
    return About(f"do {case.id}", "sums", gold, preview, (gold, f"other of {case.id}"))


def chat(answer: str) -> tuple[TraceItem, ...]:
    return (
        TraceItem("system", f"You work by a skill.\n\n{SKILL}"),
        TraceItem("user", "What is it?"),
        TraceItem("assistant", answer),
        TraceItem("verification", "expected gold of a", {"reference": "gold of a"}),
    )


TOOLS = (
    TraceItem("system", "You have a shell."),
    TraceItem("user", "Count the files."),
    TraceItem("assistant", "I look.", {"tool_calls": [{"name": "shell"}]}),
    TraceItem("tool", "a b c", {"command": "ls", "step": 1}),
    TraceItem("tool", "3", {"name": "count", "arguments": {"what": "files"}, "step": 2}),
    TraceItem("info", "ran for a while", {"summary": "listed, then counted"}),
    TraceItem("session", "never shown"),
    TraceItem("assistant", "4"),
)
STEPS = (
    TraceItem("user", "Put the mug away."),
    TraceItem("step", "You see a mug.", {"step": 1, "action": "look", "reasoning": "where?"}),
    TraceItem("step", "You hold it.", {"step": 2, "action": "take mug"}),
)
ROWS: Mapping[str, tuple[float, tuple[TraceItem, ...]]] = {
    "a": (0.0, chat("no idea")),
    "b": (0.5, TOOLS),
    "c": (1.0, STEPS),
    "d": (1.0, chat("gold of d")),
}


def outcome(hard: float) -> Outcome:
    findings = () if hard == 1 else (Finding("not what was expected"),)
    return Outcome({"hard": hard, "soft": hard}, findings=findings)


def make_brief(
    rows: Mapping[str, tuple[float, tuple[TraceItem, ...]]] = ROWS,
    closed: tuple[ClosedStep, ...] = (),
    *,
    skill: str = SKILL,
    epoch: int = 1,
    max_edits: int | None = 2,
    memory: tuple[Note, ...] = (),
) -> Brief:
    settings: dict[str, object] = {"epoch": epoch, "step": 1, "number": 1, "max_edits": max_edits}
    brief = Brief(
        step=len(closed),
        turn=Turn("step", f"e{epoch}/step", 0, settings),
        seed=1,
        incumbent=Candidate({"SKILL.md": skill}),
        history=History(closed),
        open=(),
        train=tuple(Case(name) for name in rows),
        memory=memory,
        rules=RULES,
        objective=Objective("hard", "maximize", (0.0, 1.0)),
    )
    first = ask(proposer(lambda _: ""), brief)
    assert not isinstance(first, Failure) and hasattr(first, "pairs")
    pairs = [Pair(name, epoch - 1) for name in rows]
    outcomes = {pair: outcome(rows[pair.case][0]) for pair in pairs}
    traces = {pair: rows[pair.case][1] for pair in pairs}
    answer = Answer(first, outcomes, traces)  # pyright: ignore[reportArgumentType]
    return replace(brief, answers=(answer,))


def teacher(say: Say, **more: Any) -> tuple[Teacher, ScriptedModel]:
    def line(request: ModelRequest) -> Any:
        said = say(request)
        return said if isinstance(said, Failure | str) else json.dumps(said)

    model = ScriptedModel(line)
    given: dict[str, Any] = {"prompts": Prompts((OWN,)), "request": ModelRequest(()), **more}
    return Teacher(model=model, **given), model


def proposer(say: Say, **more: Any) -> StepProposer:
    of_teacher = {k: more.pop(k) for k in OF_TEACHER if k in more}
    of_analysts: dict[str, Any] = {"size": 8}
    of_analysts |= {k: more.pop(k) for k in ("failure_only", "lapses", "size") if k in more}
    sight = more.pop("sight", Sight(about))
    update = more.pop("update", PATCH)
    given: dict[str, Any] = {"batch": 8, "max_edits": 3, **more}
    analysts = Analysts(sight, update, **of_analysts)
    return StepProposer(teacher=teacher(say, **of_teacher)[0], analysts=analysts, **given)


def propose(
    say: Say, brief: Brief | None = None, **more: Any
) -> tuple[ProposerReply, list[ModelRequest]]:
    made = proposer(say, **more)
    reply = ask(made, brief or make_brief())
    assert isinstance(made.teacher.model, ScriptedModel)
    return reply, made.teacher.model.requests


def wants(request: ModelRequest) -> set[str]:
    properties: Any = request.schema["properties"]
    return set(properties)


def shown(request: ModelRequest) -> str:
    return "\n\n".join(f"[{message.role}]\n{message.text}" for message in request.messages)


def edit(content: str, op: str = "append", target: str = "") -> dict[str, str]:
    return {"op": op, "target": target, "content": content}


def analysis(request: ModelRequest, *edits: dict[str, str], **more: Any) -> dict[str, Any]:
    seen: dict[str, Any] = {"success_patterns": ["it worked"]}
    if "failure_summary" in wants(request):
        row = {"failure_type": "slip", "count": 1, "description": "it slipped"}
        seen = {"failure_summary": [row]}
    return {**seen, "patch": {"reasoning": "because", "edits": list(edits)}, **more}


def by_side(request: ModelRequest) -> Any:
    """Each analyst appends a rule; a merger keeps both."""
    if "patch" in wants(request):
        side = "failure" if "failure_summary" in wants(request) else "success"
        return analysis(request, edit(f"- From {side}."))
    if "selected_indices" in wants(request):
        return {"reasoning": "both", "selected_indices": [1, 0]}
    rows = [{"from": [n], **edit(f"- Merged {n}.")} for n in (0, 1)]
    return {"reasoning": "together", "edits": rows}


def suggesting(request: ModelRequest) -> Any:
    row = {"type": "add_rule", "title": "t", "motivation": "m", "instruction": "i"}
    made = analysis(request)
    suggestions = [{**row, "priority_hint": "low"}]
    return {**made, "patch": {"reasoning": "because", "revise_suggestions": suggestions}}


def rewriting(request: ModelRequest, merged: list[dict[str, Any]]) -> Any:
    if "patch" not in wants(request):
        return {"reasoning": "together", "skill_candidates": merged}
    row: dict[str, Any] = {"title": "t", "change_summary": [], "new_skill": "# New\n"}
    return {**analysis(request), "patch": {"reasoning": "because", "skill_candidates": [row]}}
