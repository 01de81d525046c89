"""Records of skill training: history.json, runtime_state.json, and files of rollouts. Pure.

`exports: full` adds a folder for each rollout:

    rollout/predictions/CASE/conversation.json
    rollout/predictions/CASE/target_system_prompt.txt, target_user_prompt.txt
    rollout/predictions/CASE/codex_raw.txt, codex_trace_summary.txt     of an agent CLI

Names and records are those of the method's source, whose scripts read them.
"""

import hashlib
import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, cast
from urllib.parse import quote

from kept.core.budget import NOTHING, Spend
from kept.core.event import StepRecords
from kept.core.llm import CASE, COMMAND, EXPECTED
from kept.core.proposal import Note, Proposal, Skip
from kept.core.rollout import Job, TraceItem
from kept.core.score import Evaluation
from kept.core.turns import STEP, epoch_of

_NOTHING: Mapping[str, Any] = {}


def about_of(step: StepRecords) -> Mapping[str, Any]:
    """Return what a step recorded about itself, with or without a proposal."""
    reply = step.proposed.reply if step.proposed else None
    return reply.about if isinstance(reply, Proposal | Skip | Note) else _NOTHING


def is_step(step: StepRecords) -> bool:
    """True if it reflected on a batch; other steps are ends of epochs and measurements."""
    phase = step.opened.turn.phase
    return phase.endswith(f"/{STEP}") and bool(epoch_of(phase))


def place_of(step: StepRecords, steps: int) -> str | None:
    """Return the folder of a turn's files after this number of steps; None if it has none."""
    turn = step.opened.turn
    if is_step(step):
        return f"steps/step_{steps:04}"
    if not (epoch := epoch_of(turn.phase)):
        return None
    # a proposer with a turn after every step needs a folder for each step
    after = bool(turn.settings.get("step"))
    return f"{turn.proposer}/step_{steps:04}" if after else f"{turn.proposer}/epoch_{epoch:02}"


@dataclass(frozen=True, slots=True)
class Standing:
    """State of a run after some of its steps."""

    steps: int = 0
    """Steps that reflected on a batch."""
    current: str = ""
    current_path: str = "skills/skill_v0000.md"
    current_step: int = 0
    """Number of the step after which it was kept."""
    current_score: float | None = None
    current_origin: str = "initial_skill"
    best: str = ""
    best_score: float | None = None
    best_step: int = 0
    best_origin: str = "initial_skill"

    def after(self, step: StepRecords, metric: str) -> "Standing":
        """Return the state after one more closed step."""
        closed, turn = step.closed, step.opened.turn
        now = replace(self, steps=self.steps + is_step(step))
        scores = {e.candidate: score_of(e, metric) for e in _deciding(step)}
        if self.current in scores:
            now = replace(now, current_score=scores[self.current])
        if self.best in scores:
            now = replace(now, best_score=scores[self.best])
        made = closed.candidate
        origin = f"{turn.proposer}_{now.steps:04}"
        # a later proof of the incumbent must not change who made it
        if closed.verdict.outcome == "keep" and made is not None and made != self.current:
            # a step has its own file; another change gets a file with its proposer's name
            by = "" if is_step(step) else f"_{turn.proposer}"
            now = replace(
                now,
                current=made,
                current_path=f"skills/skill_v{now.steps:04}{by}.md",
                current_step=now.steps,
                # None if it was not measured: the score of another text does not apply
                current_score=scores.get(made),
                current_origin=origin,
            )
        if closed.verdict.best and made is not None:
            # the step that made it, although its proof may come much later
            now = replace(
                now,
                best=made,
                best_score=now.current_score if made == now.current else scores.get(made),
                best_step=now.current_step if made == now.current else now.steps,
                best_origin=now.current_origin if made == now.current else origin,
            )
        return now


def state_of(standing: Standing) -> dict[str, Any]:
    """Return the content of `runtime_state.json`."""
    return {
        "last_completed_step": standing.steps,
        "current_skill_path": standing.current_path,
        "current_score": standing.current_score,
        "current_origin": standing.current_origin,
        "best_skill_path": "best_skill.md",
        "best_score": standing.best_score,
        "best_step": standing.best_step,
        "best_origin": standing.best_origin,
        "current_candidate": standing.current,
        "best_candidate": standing.best,
    }


def history_row(step: StepRecords, standing: Standing, metric: str) -> dict[str, Any]:
    """Return the row of a step in `history.json`."""
    closed, about = step.closed, about_of(step)
    settings = step.opened.turn.settings
    proposed = step.proposed.t if step.proposed else closed.t
    mine = [e for e in _deciding(step) if e.candidate == closed.candidate]
    rollout = cast("Mapping[str, Any]", about.get("rollout") or _NOTHING)
    merged = cast("Mapping[str, Any]", about.get("merged") or _NOTHING)
    lists = (v for k, v in merged.items() if k not in ("said", "reasoning"))
    # the merged items are the only list left; its key depends on the update mode
    size = next((len(one) for one in lists if isinstance(one, list)), 0)  # pyright: ignore[reportUnknownArgumentType]
    spend = closed.spend
    return {
        "step": standing.steps,
        "epoch": settings.get("epoch"),
        "step_in_epoch": settings.get("step"),
        "timing": {
            "seconds": round(closed.t - step.opened.t, 3),
            "propose_seconds": round(proposed - step.opened.t, 3),
            "gate_seconds": round(closed.t - proposed, 3),
        },
        "tokens": _tokens(step),
        "usage": {
            "rollouts": spend.rollouts,
            "calls": spend.calls,
            "prompt_tokens": spend.tokens_in,
            "completion_tokens": spend.tokens_out,
            "usd": round(spend.usd, 6),
        },
        "rollout_hard": rollout.get("hard"),
        "rollout_soft": rollout.get("soft"),
        "rollout_n": rollout.get("n"),
        "accumulation_batches": about.get("batches"),
        "n_patches": len(about.get("patches", ())),
        "n_edits_merged": size,
        "n_edits_ranked": len(about.get("items", ())),
        "edit_budget": settings.get("max_edits"),
        "candidate_hash": closed.candidate,
        "edit_apply_summary": dict(Counter(report.fate for report in closed.reports)),
        "selection_hard": mine[0].metric("hard") if mine else None,
        "selection_soft": mine[0].metric("soft") if mine else None,
        "gate_metric": metric,
        "candidate_gate_score": score_of(mine[0], metric) if mine else None,
        "action": action_of(step),
        "outcome": closed.verdict.outcome,
        "reason": closed.verdict.words,
        "numbers": dict(closed.verdict.numbers),
        "current_score": standing.current_score,
        "best_score": standing.best_score,
    }


def action_of(step: StepRecords) -> str:
    """Return the result of a step, in the words of the method's source."""
    verdict = step.closed.verdict
    if verdict.outcome == "keep":
        return "accept_new_best" if verdict.best else "accept"
    if verdict.outcome == "discard":
        return "reject"
    return f"skip_{verdict.code.replace(' ', '_')}"


def score_of(evaluation: Evaluation, metric: str) -> float | None:
    """Return the metric that decides."""
    return evaluation.metric(metric)


def scores_of(
    step: StepRecords, before: Standing, metric: str
) -> tuple[float | None, float | None]:
    """Return the deciding scores of the skill before and of the proposed one."""
    scores = {e.candidate: score_of(e, metric) for e in _deciding(step)}
    # the incumbent may have been measured in an earlier step
    known = {before.current: before.current_score, **scores}
    return known.get(step.closed.incumbent), scores.get(step.closed.candidate or "")


def _tokens(step: StepRecords) -> dict[str, dict[str, int]]:
    """Return calls and tokens by model; all use outside the proposal is the student's."""
    whole, teacher = step.closed.spend, step.proposed.spend if step.proposed else NOTHING
    return {
        "teacher": _used(teacher, NOTHING),
        "student": _used(whole, teacher),
    }


def _used(spend: Spend, but: Spend) -> dict[str, int]:
    return {
        "calls": spend.calls - but.calls,
        "prompt_tokens": spend.tokens_in - but.tokens_in,
        "completion_tokens": spend.tokens_out - but.tokens_out,
    }


def _deciding(step: StepRecords) -> list[Evaluation]:
    return [e for e in step.closed.evaluations if e.purpose == "decide"]


def flattened(config: Mapping[str, Any]) -> dict[str, Any]:
    """Return the content of `config.json`: keys without sections, as they may stand in a file.

    A key that an earlier section has, too, keeps its section as a prefix.
    """
    found: dict[str, Any] = {}
    for section, told in config.items():
        if not isinstance(told, Mapping):
            found[section] = told
            continue
        for key, value in cast("Mapping[str, Any]", told).items():
            alone = section if key == "name" else key
            found[f"{section}.{key}" if alone in found else alone] = value
    return found


MAX_NAME_BYTES = 200
"""Most bytes of the folder name of a case; file systems allow 255."""

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
    """Names the folders of rollouts.

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
            # a probe that continues an earlier rollout has its own candidate
            return f"{place}/deep_reflect/{case_folder(job.case_id)}"
        part = _EVALUATIONS.get(job.purpose, job.purpose)
        if skill == self._seed:
            part += "_baseline"
        else:
            part = f"{self._made_in.get(skill, f'candidates/{skill}')}/{part}"
        again = f"/repeat_{job.repeat:02}" if job.repeat else ""
        return f"{part}/{case_folder(job.case_id)}{again}"


def case_folder(case: str) -> str:
    """Return a safe folder name for a case's id, below `predictions/`."""
    name = "".join(
        c if c.isalnum() or c in "-_. " else quote(c, safe="", errors="surrogatepass") for c in case
    )
    # neither hidden folders nor `..`
    if name.startswith("."):
        name = f"%2E{name[1:]}"
    # a hash keeps shortened names distinct
    if len(name.encode()) > MAX_NAME_BYTES:
        digest = hashlib.sha256(case.encode("utf-8", "surrogateescape")).hexdigest()[:16]
        name = f"{name.encode()[: MAX_NAME_BYTES - 20].decode(errors='ignore')}~{digest}"
    return f"predictions/{name}"


def prediction_files(trace: Sequence[TraceItem], agent: str) -> dict[str, Any]:
    """Return the files of one rollout by name: texts, and JSON of `conversation.json`.

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
    """Yield a trace as records of the method's source."""
    turn = 0
    prompts = set(_PROMPTS)
    for item in trace:
        data: Mapping[str, Any] = item.data
        step = {"step": data["step"]} if "step" in data else {}
        match item.role:
            # the first item of each is a file of its own
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
    """Return the command line of a tool call, or its name with the arguments."""
    if COMMAND in data:
        return str(data[COMMAND])
    arguments = data.get("arguments")
    said = json.dumps(arguments, ensure_ascii=False, default=str) if arguments else ""
    return f"{data.get('name', '')}({said})"
