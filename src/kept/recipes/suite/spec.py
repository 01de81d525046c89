"""Schema and reader of a prompt suite: tasks, files, splits, and all its problems."""

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path
from typing import Annotated, Any, Literal, cast

from pydantic import AfterValidator, Field

from kept.core.case import SPLITS, Case, Cases, Split, split_cases
from kept.errors import SetupError
from kept.models.prompts import ARTIFACTS, prompt
from kept.orchestrator.prompt_registry import PromptRegistry
from kept.recipes.agent_run.make_toolkit import Found, RunTexts, find_inputs, registry_of, run_texts
from kept.recipes.agent_run.spec import AgentRunSpec, RunBudgetSpec, Usd
from kept.recipes.task.spec import Race
from kept.spec.shared_sections import RoleSpec
from kept.spec.source import Source, open_spec
from kept.spec.validate import (
    Count,
    Finite,
    Ratio,
    Seconds,
    SpecModel,
    Text,
    Texts,
    said,
    shares_of,
    some,
    validate,
)
from kept.store.home import Home

Weight = Annotated[Finite, Field(ge=0)]
Share = Annotated[Finite, Field(gt=0, le=1)]

THEIRS = {"gate_rejections": "gate_reject", "budget": "budget_burn", "status": "terminal"}
"""The source's names of parts of the loss, and Kept's."""


class WeightsSpec(SpecModel):
    """Weight of each part of a task's loss."""

    eval: Weight | None = None
    critique: Weight | None = None
    gate_reject: Weight | None = None
    budget_burn: Weight | None = None
    terminal: Weight | None = None
    gate_rejections: Weight | None = None
    """The source's name of `gate_reject`; the next two are `budget_burn` and `terminal`."""
    budget: Weight | None = None
    status: Weight | None = None

    @classmethod
    def faults(cls, said: Mapping[str, Any]) -> Iterator[str]:
        """Report parts given under both names."""
        for theirs, ours in THEIRS.items():
            if said.get(theirs) is not None and said.get(ours) is not None:
                yield f"`{theirs}` and `{ours}` are the same: give one of them"

    def told(self) -> dict[str, float]:
        """Given weights under Kept's names."""
        given = self.model_dump(exclude_none=True)
        return {THEIRS.get(name, name): value for name, value in given.items()}


class TaskBudgetSpec(SpecModel):
    """Limits of one task's run that differ from the common ones."""

    max_loops: Count | None = None
    max_workers: Count | None = None
    max_tokens: Count | None = None
    max_tool_calls: Count | None = None
    max_minutes: Seconds | None = None
    max_depth: Count | None = None
    max_usd: Usd | None = None
    max_total_workers: Count | None = None
    """The source's name of `max_workers`; the next two are `max_tokens`, and seconds."""
    max_total_tokens: Count | None = None
    max_wall_time: Seconds | None = None

    @classmethod
    def faults(cls, said: Mapping[str, Any]) -> Iterator[str]:
        """Report limits given under both names."""
        for theirs, ours in (
            ("max_total_workers", "max_workers"),
            ("max_total_tokens", "max_tokens"),
            ("max_wall_time", "max_minutes"),
        ):
            if said.get(theirs) is not None and said.get(ours) is not None:
                yield f"`{theirs}` and `{ours}` are the same: give one of them"

    def over(self, usual: RunBudgetSpec) -> RunBudgetSpec:
        """Common budget with this one's limits on top."""
        given = self.model_dump(exclude_none=True)
        seconds = given.pop("max_wall_time", None)
        named = {name.replace("max_total_", "max_"): value for name, value in given.items()}
        named |= {} if seconds is None else {"max_minutes": seconds / 60}
        return usual.model_copy(update=named)


class SuiteTaskSpec(SpecModel):
    """One task of a suite."""

    name: Text
    task: Text
    inputs: Texts = ()
    """Files and folders of the task, relative to the suite."""
    model: RoleSpec | None = None
    worker_model: RoleSpec | None = None
    budget: TaskBudgetSpec = Field(default_factory=TaskBudgetSpec)
    weights: WeightsSpec = Field(default_factory=WeightsSpec)
    split: Split | None = None
    workflow: Text | None = None
    extra: dict[str, Any] = Field(default_factory=dict[str, Any])
    """Free data, ignored by Kept."""

    @classmethod
    def faults(cls, said: Mapping[str, Any]) -> Iterator[str]:
        """Report features of the source that Kept lacks."""
        if said.get("workflow") is not None:
            yield "`workflow` is not run here: a task is done by a manager and workers of Kept"


class SuiteBudgetSpec(SpecModel):
    """Limits of all runs of an optimization together."""

    max_usd: Usd | None = None
    max_minutes: Seconds | None = None
    max_rollouts: Count | None = None


class SuiteSpec(SpecModel):
    """Spec of a prompt suite."""

    name: Text
    description: str = ""
    tasks: Annotated[tuple[SuiteTaskSpec, ...], Field(strict=False), AfterValidator(some)]
    baseline_artifacts: dict[str, Annotated[int, Field(ge=0)]] = Field(
        default_factory=dict[str, int]
    )
    """Versions to begin with; other artifacts begin with the active one."""
    run: AgentRunSpec = Field(default_factory=AgentRunSpec)
    """Settings of all tasks' runs, as in a file for `kept agent run`."""
    optimizer: RoleSpec | None = None
    """Model of the proposer; by default that of KEPT_MODEL."""
    prompt: Text | None = None
    """File that replaces the proposer's built-in prompt `update`."""
    epochs: Count = 5
    """Number of epochs; each tries one update."""
    gate: Literal["race", "rollback"] = "race"
    race: Race | None = None
    step: Share = 0.5
    """Share of a text that one update may change; with `rollback`, each of them halves it."""
    split: Ratio | None = None
    """Shares of train, holdout and test; a small suite has no split by default."""
    workers: Count = 2
    """Number of concurrent runs."""
    random_seed: int = 0
    budget: SuiteBudgetSpec = Field(default_factory=SuiteBudgetSpec)

    @classmethod
    def faults(cls, said: Mapping[str, Any]) -> Iterator[str]:
        """Report keys that do not go together."""
        if said.get("gate") == "rollback" and said.get("race") is not None:
            yield "`race` goes with `gate: race`"


LEAST_SPLIT = 16
"""Tasks needed for a split by default: eight of them decide, as a race needs."""

USUAL_SPLIT = "3:5:2"


@dataclass(frozen=True, slots=True)
class ReadSuite:
    """A suite without problems."""

    source: Source
    spec: SuiteSpec
    home: Home
    registry: PromptRegistry
    texts: RunTexts
    inputs: Mapping[str, Found]
    """Files of each task."""
    cases: Cases
    shared: bool
    """True if all tasks are shown to the proposer and also decide."""
    told: str
    """Prompt of the proposer."""

    def baseline(self) -> dict[str, int]:
        """Versions to begin with, by artifact."""
        active = {name: one.number for name, one in self.registry.active().items()}
        return {**active, **self.spec.baseline_artifacts}

    def files_hash(self) -> str:
        """Hash of the files of all tasks, for a resume."""
        digest = hashlib.sha256()
        for name, found in sorted(self.inputs.items()):
            for path, data in sorted(found.read().items()):
                digest.update(f"{name}\0{path}\0{hashlib.sha256(data).hexdigest()}\n".encode())
        return digest.hexdigest()[:16]


def read_suite(
    file: Path | Source,
    overrides: Sequence[str] = (),
    registry: Path | None = None,
    began: Mapping[str, str] | None = None,
) -> ReadSuite:
    """Read a suite; raises `SpecError` with all problems.

    A resumed run has the texts that it `began` with.
    """
    source = open_spec(file, overrides)
    home = Home.find(source.folder)
    own = registry_of(home)
    held = own
    if registry is not None:
        first = {name: own.version(name, 0).content for name in own.names}
        held = PromptRegistry(registry, first, own.texts)
    spec = validate(source, SuiteSpec)
    _check_names(source)
    _check_splits(source)
    texts = run_texts(source, home, began or _baseline(source, held), ("run", "prompts"))
    # a user's file has precedence over the registry, so its text could not be improved
    for name in sorted(texts.files & set(ARTIFACTS)):
        message = f"`{name}.md` would stand for what is to be improved"
        hint = "take the file out of the folder; `kept agent artifacts` has versions of it"
        source.report(("run", "prompts"), message, hint)
    inputs, told = _inputs(source, home), _prompt(source)
    source.check()
    assert spec is not None, "a spec without problems is one"
    cases, shared = _cases(spec, inputs)
    for found, why in ((cases.train, "to learn from"), (cases.holdout, "to decide by")):
        if not found:
            source.report(("split",) if spec.split else ("tasks",), f"there is no task {why}")
    source.check()
    return ReadSuite(source, spec, home, held, texts, inputs, cases, shared, told)


def _prompt(source: Source) -> str:
    """Prompt of the proposer: a user's file, or the built-in one."""
    given = said(source, ("prompt",))
    if not isinstance(given, str) or not given:
        return prompt("update")
    # imported at use: the import is slow, and few suites have a prompt file
    from kept.spec.checks import read_prompt

    return read_prompt(source, ("prompt",), given, "update") or ""


def _baseline(source: Source, registry: PromptRegistry) -> dict[str, str]:
    """Texts to begin with: active versions, except those that the suite names."""
    texts = registry.texts()
    named = said(source, ("baseline_artifacts",))
    for name, number in cast(
        "dict[object, object]", named if isinstance(named, dict) else {}
    ).items():
        loc = ("baseline_artifacts", str(name))
        if name not in ARTIFACTS:
            near = get_close_matches(str(name), ARTIFACTS, n=1)
            hint = f"did you mean `{near[0]}`?" if near else f"there are {', '.join(ARTIFACTS)}"
            source.report(loc, f"`{name}` is no prompt artifact", hint)
        elif isinstance(number, int) and not isinstance(number, bool) and number >= 0:
            try:
                texts[str(name)] = registry.version(str(name), number).content
            except SetupError as error:
                source.report(loc, error.message, error.hint)
    return texts


def _rows(source: Source) -> list[tuple[int, dict[str, Any]]]:
    """Tasks that are mappings, valid or not, with their indices."""
    rows = said(source, ("tasks",))
    listed = cast("list[object]", rows) if isinstance(rows, list) else []
    return [
        (n, cast("dict[str, Any]", row)) for n, row in enumerate(listed) if isinstance(row, dict)
    ]


def _check_names(source: Source) -> None:
    first: dict[str, int] = {}
    for n, row in _rows(source):
        name = row.get("name")
        if isinstance(name, str) and first.setdefault(name, n) != n:
            where = source.where(("tasks", first[name], "name")).rpartition(":")[2]
            source.report(("tasks", n, "name"), f"another task is named `{name}`, in line {where}")


def _check_splits(source: Source) -> None:
    rollback = said(source, ("gate",)) == "rollback"
    for n, row in _rows(source):
        loc = ("tasks", n, "split")
        if row.get("split") is not None and said(source, ("split",)) is not None:
            source.report(loc, "there is a `split` of the whole suite: give one of them")
        elif row.get("split") == "test" and rollback:
            source.report(loc, "test tasks are looked at by `gate: race` alone")


def _inputs(source: Source, home: Home) -> dict[str, Found]:
    """Files of every named task; problems are reported."""
    found: dict[str, Found] = {}
    for n, row in _rows(source):
        name, given = row.get("name"), row.get("inputs")
        paths = cast("list[object]", given) if isinstance(given, list) else []
        texts = [path for path in paths if isinstance(path, str) and path and "\0" not in path]
        try:
            read = find_inputs(source.folder, texts, (home.path,))
        except SetupError as error:
            source.report(("tasks", n, "inputs"), error.message, error.hint)
            continue
        if isinstance(name, str):
            found[name] = read
    return found


def _cases(spec: SuiteSpec, inputs: Mapping[str, Found]) -> tuple[Cases, bool]:
    """Tasks by split, and True if all of them both train and decide."""
    files = {one.name: sorted(inputs[one.name].files) for one in spec.tasks}
    cases = tuple(
        Case(one.name, {"task": one.task, "inputs": files[one.name]}) for one in spec.tasks
    )
    named = {one.name: one.split for one in spec.tasks}
    if any(named.values()):
        parts = (
            tuple(case for case in cases if (named[case.id] or "holdout") == split)
            for split in SPLITS
        )
        return Cases(*parts), False
    ratio = spec.split or (USUAL_SPLIT if len(cases) >= LEAST_SPLIT else None)
    if ratio is None:
        return Cases(train=cases, holdout=cases), True
    return split_cases(cases, shares_of(ratio), spec.random_seed), False
