"""Built-in prompts, one Markdown file each; a spec may name its own file instead.

A user's text replaces the whole file. The caller adds the material to work on and the form of the
reply, which are not part of it. A prompt may contain a few facts of the task as `{{kept.NAME}}`.
All other text between braces stays unchanged.
"""

import re
from collections.abc import Iterator, Mapping
from functools import lru_cache
from pathlib import Path
from typing import Literal, get_args

TaskPrompt = Literal[
    "component", "edit", "rewrite", "simplify", "reflect", "agent", "judge", "judge_pair"
]
MetricPrompt = Literal[
    "groundedness",
    "relevance",
    "coherence",
    "fluency",
    "geval",
    "statements",
    "faithfulness",
    "answer_relevancy",
    "contextual_precision",
    "contextual_recall",
    "contextual_relevancy",
]
SkillPrompt = Literal[
    "analyst_error",
    "analyst_success",
    "analyst_error_rewrite",
    "analyst_success_rewrite",
    "analyst_error_full_rewrite",
    "analyst_success_full_rewrite",
    "merge_failure",
    "merge_success",
    "merge_final",
    "merge_failure_full_rewrite",
    "merge_success_full_rewrite",
    "merge_final_full_rewrite",
    "ranking",
    "repair",
    "rewrite_skill",
    "lapses_failure",
    "lapses_success",
    "consolidate",
    "slow_update",
    "meta_skill",
    "meta_reflect",
    "deep_probe",
]
RunPrompt = Literal[
    "manager",
    "worker",
    "critic",
    "worker_pitfalls",
    "manager_planning_preamble",
    "experiment_context_hint_template",
    "pattern_library",
    "tool_description_templates",
    "critique_rubric",
]
SuitePrompt = Literal["update"]
Name = TaskPrompt | MetricPrompt | SkillPrompt | RunPrompt | SuitePrompt

ASKED: tuple[Name, ...] = get_args(TaskPrompt)
"""Prompts of models that a task or an adapter may call; users may replace them."""

METRICS: tuple[Name, ...] = get_args(MetricPrompt)
"""Prompts of judges that the metrics of an agent's tests use."""

SKILLS: tuple[Name, ...] = get_args(SkillPrompt)
"""Prompts of the optimizer that trains a skill; environments and users may add others."""

_BY_MODE = ("analyst_error", "analyst_success", "merge_failure", "merge_success", "merge_final")

SKILL_FILES: tuple[str, ...] = tuple(
    dict.fromkeys(
        (
            *SKILLS,
            *(f"{name}{mode}" for name in _BY_MODE for mode in ("_rewrite", "_full_rewrite")),
            "ranking_rewrite",
        )
    )
)
"""Allowed names of those prompt files, including update modes without a built-in prompt."""

RUN: tuple[RunPrompt, ...] = get_args(RunPrompt)
"""Prompts of `kept agent run`."""

ARTIFACTS: tuple[RunPrompt, ...] = RUN[3:]
"""Run prompts that can be improved and are versioned; the first three define the roles."""

NAMES: tuple[Name, ...] = (*ASKED, *METRICS, *SKILLS, *RUN, *get_args(SuitePrompt))

ABOUT: Mapping[Name, str] = {
    "component": "writes one text anew, for `kept.adapters`",
    "edit": "proposes a few precise edits",
    "rewrite": "writes the texts anew",
    "simplify": "proposes less text at no loss",
    "reflect": "says what went wrong in each case, then proposes edits",
    "agent": "has an agent CLI edit a copy of the files",
    "judge": "judges an output by criteria",
    "judge_pair": "says which of two answers is better",
    "groundedness": "grades whether an answer follows from its sources",
    "relevance": "grades whether an answer deals with what was asked",
    "coherence": "grades whether an answer holds together",
    "fluency": "grades how well an answer reads",
    "geval": "grades an answer by criteria of yours",
    "statements": "takes a text apart into statements",
    "faithfulness": "says whether passages support a statement",
    "answer_relevancy": "says whether a statement is to the point",
    "contextual_precision": "says whether a passage is useful",
    "contextual_recall": "says whether passages hold what was expected",
    "contextual_relevancy": "says whether a passage's statement is to the point",
    "analyst_error": "says why rollouts failed, and proposes edits of a skill",
    "analyst_success": "says why rollouts succeeded, and proposes edits of a skill",
    "analyst_error_rewrite": "the same of failures, with suggestions",
    "analyst_success_rewrite": "the same of successes, with suggestions",
    "analyst_error_full_rewrite": "the same of failures, with a whole skill",
    "analyst_success_full_rewrite": "the same of successes, with a whole skill",
    "merge_failure": "puts together what analysts of failures propose",
    "merge_success": "puts together what analysts of successes propose",
    "merge_final": "puts both together, failures first",
    "merge_failure_full_rewrite": "makes one skill of those of analysts of failures",
    "merge_success_full_rewrite": "makes one skill of those of analysts of successes",
    "merge_final_full_rewrite": "makes one skill of both, failures first",
    "ranking": "chooses as many changes as a step may keep",
    "repair": "mends edits that do not apply",
    "rewrite_skill": "writes a skill anew by suggestions",
    "lapses_failure": "tells defects of a skill from lapses of its reader",
    "lapses_success": "notes rules that are easily forgotten",
    "consolidate": "puts reminders together",
    "slow_update": "says what an epoch has taught",
    "meta_skill": "remembers how a skill is improved",
    "meta_reflect": "looks back on an epoch, and proposes edits",
    "deep_probe": "has a rollout done again to see more of it",
    "manager": "plans an agent run, sends workers, ends it",
    "worker": "does one subtask of an agent run",
    "critic": "judges what a worker brought back",
    "worker_pitfalls": "what workers are warned of",
    "manager_planning_preamble": "what a manager is told before it plans",
    "experiment_context_hint_template": "what a manager is told of where its task comes from",
    "pattern_library": "ways of delegating that a manager may take up",
    "tool_description_templates": "what workers are told of their tools, a section each",
    "critique_rubric": "what a critic goes by",
    "update": "proposes a new version of a prompt artifact",
}
"""Summary of what a model does with each prompt."""

_PROPOSING: Mapping[str, str] = {
    "metric": "the name of the measure that is to become better",
    "direction": "`maximize` or `minimize`",
    "bounds": "its least and its greatest value, as in `0 to 1`; `any` where the task has none",
    "files": "the files that may be edited, with commas between",
    "max_files": "how many of them one proposal may change, or `any number`",
    "max_changed_lines": "how many lines it may remove and add in all, or `any number`",
}
_GRADING: Mapping[str, str] = {"scale": "the greatest grade; the least is 1"}
_GEVAL: Mapping[str, str] = {
    "name": "what the metric is called",
    "criteria": "its criteria, which are sent behind the prompt as well",
}
_JUDGING: Mapping[str, str] = {"criteria": "the names of the criteria, with commas between"}

PLACEHOLDERS: Mapping[Name, Mapping[str, str]] = {
    "component": {},
    "edit": _PROPOSING,
    "rewrite": _PROPOSING,
    "simplify": _PROPOSING,
    "reflect": _PROPOSING,
    "agent": _PROPOSING,
    "judge": _JUDGING,
    "judge_pair": _JUDGING,
    "groundedness": _GRADING,
    "relevance": _GRADING,
    "coherence": _GRADING,
    "fluency": _GRADING,
    "geval": _GEVAL,
    "statements": {},
    "faithfulness": {},
    "answer_relevancy": {},
    "contextual_precision": {},
    "contextual_recall": {},
    "contextual_relevancy": {},
    **{name: {} for name in SKILLS},
    "manager": {
        "tools": "the tools that workers may have, with commas between",
        "workers": "how many workers one turn may send",
    },
    "worker": {"name": "the worker's name"},
    "critic": {},
    "worker_pitfalls": {},
    "manager_planning_preamble": {},
    "experiment_context_hint_template": {
        "inputs": "what the task came with, in words",
        "parent": "which run it goes on from, in words; empty for none",
    },
    "pattern_library": {},
    "tool_description_templates": {},
    "critique_rubric": {"categories": "the categories of defects, with commas between"},
    "update": {
        "artifact": "the name of the text that may be changed",
        "about": "what that text is for",
        "share": "how much of it one update may change, in percent",
    },
}
"""Placeholders of each prompt, and their meaning."""

_HERE = Path(__file__).parent

_PLACE = re.compile(r"\{\{\s*kept\.([^{}\s]*)\s*\}\}")


@lru_cache
def prompt(name: Name) -> str:
    """Text of a built-in prompt."""
    return (_HERE / f"{name}.md").read_text(encoding="utf-8")


def filled(text: str, values: Mapping[str, str]) -> str:
    """Fill in the placeholders of a prompt; unknown ones stay as they are."""
    return _PLACE.sub(lambda place: values.get(place[1], place[0]), text)


def strange_places(name: Name, text: str) -> Iterator[tuple[int, str]]:
    """Yield line and text of each placeholder that a prompt of this name does not have."""
    for place in _PLACE.finditer(text):
        if place[1] not in PLACEHOLDERS[name]:
            yield text.count("\n", 0, place.start()) + 1, place[0]
