"""The files of single rollouts that `exports: full` adds, and the folder of each. Pure.

    rollout/predictions/CASE/conversation.json
    rollout/predictions/CASE/target_system_prompt.txt, target_user_prompt.txt
    rollout/predictions/CASE/codex_raw.txt, codex_trace_summary.txt     where an agent CLI worked

Names and records are those of the method's source, whose scripts read them.
"""

import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any
from urllib.parse import quote

from kept.core.exchange import CASE, COMMAND, EXPECTED
from kept.core.rollout import Job, TraceItem
from kept.core.stage import StepRecords
from kept.recipes.skill.records import is_step

MAX_NAME_BYTES = 200
"""Bytes of the folder name of a case; file systems allow 255."""

_EVALUATIONS = {
    "decide": "selection_eval",
    "screen": "train_eval",
    "promote": "promotion_eval",
    "test": "test_eval",
    "measure": "measure_eval",
}
"""Folder of each purpose that measures a skill."""

_NOT_IN_CONVERSATION = ("session", EXPECTED, CASE)


class PredictionFolders:
    """Finds the folder of a rollout.

    A batch belongs to the step that asked for it, a measurement to the step that made the skill.
    """

    def __init__(self, seed: str) -> None:
        self._seed = seed
        self._made_in: dict[str, str] = {}

    def add(self, candidate: str | None, place: str | None) -> None:
        """Remember the first step with a folder that made a skill."""
        if candidate is not None and candidate != self._seed and place is not None:
            self._made_in.setdefault(candidate, place)

    def folder_of(self, job: Job, step: StepRecords, place: str | None) -> str:
        """Name the folder of one rollout, below that of the run."""
        skill = job.candidate_id
        if job.purpose == "feedback" and place is not None:
            part = "rollout"
            if not is_step(step):  # it compares two skills
                part += "_curr" if skill == step.opened.incumbent else "_prev"
            return f"{place}/{part}/{case_folder(job.case_id)}"
        if job.purpose == "probe" and place is not None:
            # a probe that goes on from an earlier rollout is a candidate of its own
            return f"{place}/deep_reflect/{case_folder(job.case_id)}"
        part = _EVALUATIONS.get(job.purpose, job.purpose)
        if skill == self._seed:
            part += "_baseline"
        else:
            part = f"{self._made_in.get(skill, f'candidates/{skill}')}/{part}"
        again = f"/repeat_{job.repeat:02}" if job.repeat else ""
        return f"{part}/{case_folder(job.case_id)}{again}"


def case_folder(case: str) -> str:
    """A case's id as one safe name below `predictions/`."""
    name = "".join(c if c.isalnum() or c in "-_. " else _escaped(c) for c in case)
    if name.startswith("."):
        name = f"%2E{name[1:]}"
    if len(name.encode()) > MAX_NAME_BYTES:
        digest = hashlib.sha256(case.encode("utf-8", "surrogateescape")).hexdigest()[:16]
        name = f"{name.encode()[: MAX_NAME_BYTES - 20].decode(errors='ignore')}~{digest}"
    return f"predictions/{name}"


def _escaped(char: str) -> str:
    return quote(char, safe="", errors="surrogatepass")


def prediction_files(trace: Sequence[TraceItem], agent: str) -> dict[str, Any]:
    """The files of one rollout by name: texts, and JSON of `conversation.json`.

    `agent` is the short name of the agent CLI that worked, as `codex`; empty for a chat model.
    """
    files: dict[str, Any] = {"conversation.json": list(_conversation(trace))}
    first = {role: next((i.text for i in trace if i.role == role), "") for role in _PROMPTS}
    files |= {name: first[role] for role, name in _PROMPTS.items() if first[role]}
    if agent:
        raw = next((item.data.get("raw") for item in trace if item.role == "session"), "")
        summary = next(filter(None, (item.data.get("summary") for item in trace)), "")
        files |= {f"{agent}_raw.txt": str(raw), f"{agent}_trace_summary.txt": str(summary)}
    return files


_PROMPTS = {"system": "target_system_prompt.txt", "user": "target_user_prompt.txt"}
"""File of the first item of each role, which the conversation leaves out."""


def _conversation(trace: Sequence[TraceItem]) -> Iterator[dict[str, Any]]:
    """A trace in the records of the source."""
    turn = 0
    prompts = set(_PROMPTS)
    for item in trace:
        data: Mapping[str, Any] = item.data
        step = {"step": data["step"]} if "step" in data else {}
        match item.role:
            case role if role in prompts:
                prompts.remove(role)
            case role if role in _NOT_IN_CONVERSATION or data.get("summary"):
                pass
            case "assistant":
                turn += 1
                said = {"type": "message", "turn": turn, "role": "assistant"}
                calls = {k: data[k] for k in ("tool_calls",) if k in data}
                yield {**said, **step, "content": item.text, **calls}
            case "tool":
                yield {"type": "tool_call", **step, "cmd": _command(data), "obs": item.text}
            case "step":
                done = {"action": data.get("action", ""), "env_feedback": item.text}
                yield {**step, **done, "reasoning": data.get("reasoning", "")}
            case "verification":
                yield {"role": "system", "content": item.text}
            case role:
                yield {"role": role, "content": item.text}


def _command(data: Mapping[str, Any]) -> str:
    """Command line of a tool call, or its name with the arguments."""
    if COMMAND in data:
        return str(data[COMMAND])
    arguments = data.get("arguments")
    said = json.dumps(arguments, ensure_ascii=False, default=str) if arguments else ""
    return f"{data.get('name', '')}({said})"
