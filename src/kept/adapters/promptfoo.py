"""Adapter for users who have a promptfooconfig.yaml: its prompts compete, its tests decide.

Kept reads the config and writes an ordinary task into the folder of the runs. So all commands work
on the result. Neither promptfoo nor node is needed.
"""

import hashlib
import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal, TypedDict, Unpack

from kept.adapters.arguments import check_calls, check_own, limits_of, place
from kept.api import Result
from kept.core.budget import Budget
from kept.core.ports import Gate, Sink
from kept.errors import SetupError
from kept.recipes.importers import Draft, write
from kept.recipes.importers.promptfoo.compile import Chosen, draft_of
from kept.recipes.task.compile import compile_task
from kept.run import gate_of
from kept.run_sync import run_plan
from kept.store.home import Home

TASKS = "tasks"
"""Folder of the written tasks, inside the folder of the runs."""


class Terms(TypedDict, total=False):
    """Arguments of `optimize` besides the config."""

    prompt: str
    """Label of the initial prompt; by default the first.

    The other prompts are tried as candidates.
    """
    provider: str
    """Id or label of a provider of the config, or a Kept model such as `local/smollm2`."""
    judge: str
    """Default grader, if the config names none: a provider of promptfoo's or a model of Kept's."""
    reflection_lm: str
    """Author of further prompts, based on failed train cases.

    A model of Kept's, such as `openai/gpt-5`, or a provider of promptfoo's.
    """
    metric: str
    """Metric to maximize: `score` (default), `pass`, or a `metric` of the config."""
    max_metric_calls: int
    """Limit on rollouts of all kinds."""
    budget: Budget | int
    split: str
    seed: int
    gate: Gate | Literal["race", "strict"]
    workers: int
    width: int
    sinks: Sequence[Sink]
    home: str | Path
    resume: str
    run_dir: str | Path


def task(config: str | Path, folder: str | Path, **terms: Unpack[Terms]) -> list[Path]:
    """Write the task equivalent to a config into a folder, as `kept init --from` does."""
    return write(_draft(config, terms).files, Path(folder))


def optimize(config: str | Path, **terms: Unpack[Terms]) -> Result:
    """Improve a prompt of a config by its tests, and keep only changes that are proven better.

    `result.best.text` is the prompt. The config and its files are never written to.

    Args:
        config: a promptfooconfig.yaml.
        **terms: see `Terms`.
    """
    draft = _draft(config, terms)
    home, resume = _place(terms)
    spec = _written(draft, home) / "task.yaml"
    began = gate_of(home.find_run(resume)) if resume else ""
    plan = compile_task(spec, _settings(terms), began).plan
    gate = terms.get("gate")
    if gate is not None and not isinstance(gate, str):
        plan = replace(plan, gate=gate, inputs={**plan.inputs, "gate": repr(gate)})
    result = run_plan(plan, home, resume, tuple(terms.get("sinks", ())))
    return replace(result, warnings=(*draft.notes, *result.warnings))


def _draft(config: str | Path, terms: Terms) -> Draft:
    unknown = [name for name in terms if name not in Terms.__annotations__]
    if unknown:
        hint = f"there are {', '.join(Terms.__annotations__)}"
        raise SetupError(f"`{unknown[0]}` is no argument of this call", hint=hint)
    check_own(terms)
    chosen = Chosen(
        terms.get("prompt"), terms.get("provider"), terms.get("judge"), terms.get("reflection_lm")
    )
    return draft_of(Path(config), chosen)


def _place(terms: Terms) -> tuple[Home, str | None]:
    found: dict[str, Any] = {
        "home": terms.get("home"),
        "resume": terms.get("resume"),
        **place(terms),
    }
    home = Home(Path(found["home"])) if found["home"] is not None else Home.find(Path.cwd())
    return home, found["resume"]


def _written(draft: Draft, home: Home) -> Path:
    """Write the task into a folder named by the hash of its contents; existing files stay."""
    told = json.dumps(draft.files, sort_keys=True, ensure_ascii=False)
    name = hashlib.sha256(told.encode("utf-8", "surrogatepass")).hexdigest()[:12]
    folder = home.path / TASKS / f"promptfoo-{name}"
    if not (folder / "task.yaml").exists():
        # write task.yaml last: a folder without it was left by a killed process
        rest = {file: text for file, text in draft.files.items() if file != "task.yaml"}
        missing = {file: text for file, text in rest.items() if not (folder / file).exists()}
        write(missing, folder)
        write({"task.yaml": draft.files["task.yaml"]}, folder)
    return folder


def _settings(terms: Terms) -> list[str]:
    """Arguments of the call in the form of `--set` values."""
    said: dict[str, Any] = {
        "objective.primary_metric": terms.get("metric"),
        "cases.split": terms.get("split"),
        "cases.seed": terms.get("seed"),
        # a gate object replaces the plain one later, so any valid name will do here
        "gate": gate if isinstance(gate := terms.get("gate"), str | None) else "strict",
        "workers": terms.get("workers"),
        "width": terms.get("width"),
        "budget.max_rollouts": terms.get("max_metric_calls"),
    }
    budget = limits_of(terms)
    check_calls(budget, terms.get("max_metric_calls"))
    if budget is not None:
        names = ("max_iterations", "max_failures", "max_minutes", "max_usd", "max_rollouts")
        limits = {name: getattr(budget, name) for name in names}
        said |= {f"budget.{name}": one for name, one in limits.items() if one is not None}
    return [f"{key}={json.dumps(value)}" for key, value in said.items() if value is not None]
