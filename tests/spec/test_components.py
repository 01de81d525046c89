"""Components: found by name, described without being built, and rebuilt in a fresh process."""

import asyncio
import json
import pickle
import subprocess
import sys
from importlib.metadata import EntryPoint
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from kept.core.artifact import Candidate
from kept.core.case import Case, Cases
from kept.core.rollout import Job, Rollout
from kept.engine.replay import JournalScope
from kept.evaluators.runners.registry import RUNNERS
from kept.evaluators.scorers.registry import SCORERS
from kept.proposers.registry import PROPOSERS
from kept.recipes.task.sandbox import confine
from kept.recipes.task.spec import TaskSpec
from kept.sandbox.workspace import Scratch
from kept.spec.components import BuildContext, CheckContext, Registry
from kept.spec.source import Source, read_source
from kept.spec.validate import validate
from kept.testing import MemoryJournal

TASK = """\
artifacts: {include: [prompt.md, config.json]}
runner: {command: "cat $KEPT_CANDIDATE/prompt.md"}
scorer: {command: "echo '{\\"score\\": 1}'"}
objective: {primary_metric: score, direction: maximize}
proposers: [{kind: prune}]
budget: {max_iterations: 1}
models: {judge: scripted/judge.jsonl, target: scripted/target.jsonl}
"""
MODEL = "scripted/target.jsonl"
JUDGE: dict[str, Any] = {"type": "judge", "criteria": [{"name": "short", "means": "it is short"}]}
RULES: dict[str, Any] = {
    "type": "rules",
    "target": "output",
    "rules": [{"kind": "tokens", "max": 9}],
}
AGENT = {"agent": "codex_exec", "model": "openai/gpt-5-mini", "prompt": "prompt.md"}
AXIS = {"file": "config.json", "path": "n", "type": "int", "range": [0, 9]}
PARTS = [{"name": "rules", "scorer": RULES}, {"name": "judge", "scorer": JUDGE}]
SPECS: dict[str, list[dict[str, Any]]] = {
    "runners": [
        {"type": "command", "command": "cat $KEPT_CANDIDATE/prompt.md"},
        {"type": "model", "prompt": "prompt.md", "input": "question"},
        {"type": "agent", **AGENT},
    ],
    "scorers": [
        {"type": "command", "command": "echo '{\"score\": 1}'"},
        {"type": "python", "function": "grader:grade"},
        RULES,
        JUDGE,
        {"type": "assertions"},
        {"type": "composite", "parts": PARTS},
    ],
    "proposers": [
        {"kind": "variants", "files": ["alternatives/prompt.md"]},
        {"kind": "numeric", "axes": [AXIS]},
        {"kind": "prune"},
        {"kind": "demos", "file": "prompt.md", "template": "{question}"},
        {"kind": "command", "command": "true"},
        {"kind": "edit", "model": MODEL},
        {"kind": "rewrite", "model": MODEL},
        {"kind": "simplify", "model": MODEL},
        {"kind": "reflect", "model": MODEL},
        {"kind": "agent", **AGENT},
    ],
}
REGISTRIES: dict[str, Registry[Any]] = {
    "runners": RUNNERS,
    "scorers": SCORERS,
    "proposers": PROPOSERS,
}
CASE = Case("one", {"question": "why", "assert": [{"type": "contains", "value": "so"}]})
PROMPT = "Say so.\n<!-- demos:start --><!-- demos:end -->\n"
TEXTS = {"prompt.md": PROMPT, "config.json": '{"n": 1}'}


def source_in(folder: Path) -> Source:
    """A task with all that the specs above name."""
    reply = json.dumps({"short": {"reason": "it is", "level": 5}})
    for name, text in {
        **TEXTS,
        "task.yaml": TASK,
        "alternatives/prompt.md": "Other.\n",
        "grader.py": "def grade(output):\n    return len(output)\n",
        "judge.jsonl": json.dumps({"text": reply}) + "\n",
        "target.jsonl": json.dumps({"text": "so"}) + "\n",
    }.items():
        path = folder / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(text, encoding="utf-8")
    return read_source(folder / "task.yaml")


def built_with(source: Source, **more: Any) -> BuildContext:
    task = validate(source, TaskSpec)
    assert task is not None, source.problems
    return BuildContext(
        source.folder,
        Candidate(TEXTS),
        confine(source, task, TEXTS),
        Scratch(),
        task.models,
        shown=("question",),
        texts=TEXTS,
        name="p",
        **more,
    )


def result_of(group: str, spec: Any, context: BuildContext) -> str:
    """What a component is, and what it makes of a case, as far as it needs no program for that."""
    return asyncio.run(_result(group, spec, context))


async def _result(group: str, spec: Any, context: BuildContext) -> str:
    made = REGISTRIES[group].build(spec, context)
    what, candidate = type(made).__qualname__, context.seed
    job = Job(candidate.id, CASE.id, 0, "decide")
    scope = JournalScope(MemoryJournal(), job)
    if group == "proposers":
        return f"{what} {made.name} {made.serial}"
    if group == "runners" and spec.type == "agent":
        return what
    try:
        if group == "runners":
            ran = await made.run(job, candidate, CASE, scope)
            return f"{what} {ran.output}"
        return f"{what} {await made.score(job, Rollout(output='so'), candidate, CASE, scope)}"
    finally:
        await made.close()
        context.scratch.close()


def cases() -> list[tuple[str, dict[str, Any]]]:
    return [(group, spec) for group, specs in SPECS.items() for spec in specs]


def test_every_component_of_kept_has_a_spec_here():
    for group, registry in REGISTRIES.items():
        assert [row.get("type") or row["kind"] for row in SPECS[group]] == registry.names


@pytest.mark.slow
@pytest.mark.parametrize(("group", "given"), cases())
def test_a_fresh_process_builds_the_same_component(
    tmp_path: Path, group: str, given: dict[str, Any]
):
    source = source_in(tmp_path)
    registry = REGISTRIES[group]
    spec = registry.validate(given)
    found = CheckContext(source, (), TEXTS, Cases(train=(CASE,)))
    if given.get("kind") == "variants":
        registry.check(found, given)
    context = built_with(source, found=found.found)
    here = result_of(group, spec, context)
    program = (
        "import pickle, sys; from tests.spec.test_components import result_of; "
        "print(result_of(*pickle.loads(sys.stdin.buffer.read())))"
    )
    root = Path(__file__).parents[2]
    there = subprocess.run(
        (sys.executable, "-c", program),
        input=pickle.dumps((group, spec, context)),
        cwd=root,
        capture_output=True,
        check=False,
    )
    assert there.returncode == 0, there.stderr.decode()
    assert there.stdout.decode() == f"{here}\n"
    assert here.split()[0] == type(registry.build(spec, context)).__qualname__


def test_needs_name_all_that_a_composite_is_made_of():
    needs = SCORERS.needs(SCORERS.validate({"type": "composite", "parts": PARTS}))
    assert [model.role for model in needs.models] == ["judge"]
    assert needs.worst_seconds == 300.0
    assert needs.worst_usd == 0.0


def test_a_metric_that_a_scorer_does_not_emit_is_reported_with_those_that_it_does(tmp_path: Path):
    source = source_in(tmp_path)
    SCORERS.check(CheckContext(source, ("scorer",), TEXTS, metric="long"), RULES)
    (problem,) = source.problems
    assert problem.message == "the scorer `rules` does not emit `long`"
    assert problem.hint == "it emits score, violation_count, tokens"


def offer(monkeypatch: pytest.MonkeyPatch, point: EntryPoint) -> None:
    """Have one entry point be all that packages offer."""

    def points(*, group: str) -> list[EntryPoint]:
        return [point] if point.group == group else []

    monkeypatch.setattr("kept.spec.components.entry_points", points)


def test_a_package_that_cannot_be_loaded_is_named(monkeypatch: pytest.MonkeyPatch):
    registry: Registry[Any] = Registry("kept.scorers", {})
    point = EntryPoint("broken", "no_such_module:Thing", "kept.scorers")
    offer(monkeypatch, point)
    with pytest.raises(ValueError, match=r"`broken` of the package .* cannot be loaded: No module"):
        registry.validate({"type": "broken"})


def test_a_class_that_is_no_component_is_named(monkeypatch: pytest.MonkeyPatch):
    registry: Registry[Any] = Registry("kept.scorers", {})
    point = EntryPoint("odd", "fractions:Fraction", "kept.scorers")
    offer(monkeypatch, point)
    with pytest.raises(ValueError, match=r"`fractions:Fraction` .* is no component"):
        registry.validate({"type": "odd"})


def test_a_package_cannot_take_a_name_of_kept(monkeypatch: pytest.MonkeyPatch):
    registry: Registry[Any] = Registry(
        "kept.scorers", {"rules": "kept.evaluators.scorers.rules:RulesComponent"}
    )
    point = EntryPoint("rules", "fractions:Fraction", "kept.scorers")
    offer(monkeypatch, point)
    assert registry.names == ["rules"]
    assert type(registry.get("rules")).__name__ == "RulesComponent"


def test_an_unknown_name_is_refused_with_those_that_there_are():
    with pytest.raises(ValidationError) as caught:
        TaskSpec.model_validate({"scorer": {"type": "ruls"}})
    told = [row for row in caught.value.errors() if row["loc"] == ("scorer",)]
    assert [row["type"] for row in told] == ["union_tag_invalid"]
    assert "'rules'" in told[0]["msg"]
