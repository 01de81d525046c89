import asyncio
import json
import shutil
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from kept.core.case import IMPLICIT_CASE
from kept.core.event import RunStarted, StepClosed
from kept.core.objective import Constraint, Objective, TieBreaker
from kept.core.plan import Plan
from kept.core.rollout import Failure
from kept.core.state import State
from kept.errors import JournalError, SetupError, SpecError
from kept.gates.repeats import Repeats
from kept.gates.seed_rules import Strict
from kept.proposers.variants import Variants
from kept.recipes.task.compile import compile_task
from kept.results.summary import values
from kept.run import inputs_of, resume, start
from kept.store.home import Home
from kept.store.reader import Run
from tests.recipes.task.tasks import TASK, write_task

EXAMPLES = Path(__file__).parents[3] / "examples"

RUN = 'echo ran >> runs; cat "$KEPT_CANDIDATE/prompt.md" > "$KEPT_OUTPUT/out"'
SCORE = """echo scored >> scores; printf '{"score": %d}' "$(wc -c < "$KEPT_OUTPUT/out")\""""


def task_that_counts(folder: Path, **texts: str) -> Path:
    """A task whose score is the length of the prompt, and which logs what it runs."""
    text = TASK.replace('runner: {command: "true"}', 'runner: {command: "sh run.sh"}')
    text = text.replace('scorer: {command: "true"}', 'scorer: {command: "sh score.sh"}')
    sandbox = "sandbox: {writable: [runs, scores]}\n"
    path = write_task(folder, text + sandbox + "workers: 1\nwidth: 1\n")
    for log in ("runs", "scores"):
        (folder / log).touch()
    (folder / "run.sh").write_text(RUN)
    (folder / "score.sh").write_text(SCORE)
    for name, content in texts.items():
        (folder / "alternatives" / f"{name}.md").write_text(content)
    return path


def plan_of(path: Path, *overrides: str) -> Plan:
    return compile_task(path, overrides).plan


def run(path: Path, *overrides: str) -> tuple[Path, State]:
    return asyncio.run(start(plan_of(path, *overrides), Home(path.parent / ".kept")))


def go_on(path: Path, folder: Path, *overrides: str) -> State:
    return asyncio.run(resume(plan_of(path, *overrides), folder)).state


def count(path: Path, log: str) -> int:
    file = path.parent / log
    return len(file.read_text().splitlines()) if file.exists() else 0


def cut(folder: Path, kinds: Sequence[str], lines: Sequence[str]) -> None:
    """Leave of a journal only events of these kinds, and of its rollouts only such lines."""
    for name, kept in (("journal.jsonl", kinds), ("rollouts.jsonl", lines)):
        rows = (folder / name).read_text().splitlines(keepends=True)
        (folder / name).write_text("".join(r for r in rows if json.loads(r)["kind"] in kept))


def test_a_task_without_cases_may_name_the_gate_that_it_would_have(tmp_path: Path):
    task = write_task(tmp_path)
    named, default = plan_of(task, "gate=repeats"), plan_of(task)
    assert named.gate == default.gate == Repeats()
    also = plan_of(task, "gate=repeats", "policy={keep_if: better_primary}")
    assert also.gate == Repeats(), "what is named goes first"
    assert plan_of(task, "policy={keep_if: better_primary}").gate == Strict()


def test_the_gate_of_repeats_is_refused_where_it_could_decide_nothing(tmp_path: Path):
    task = write_task(tmp_path)
    (tmp_path / "cases.jsonl").write_text("".join(f"{n}\n" for n in range(40)))
    with pytest.raises(SpecError) as told:
        plan_of(task, "gate=repeats", "cases={file: cases.jsonl}")
    (problem,) = told.value.problems
    assert problem.message == (
        "`gate: repeats` is for a task without cases: with cases, `race` or `strict`"
    )
    with pytest.raises(SetupError, match="29 rollouts are too few for the gate `repeats`"):
        plan_of(task, "gate=repeats", "budget.max_rollouts=29")


def test_the_minimal_form_becomes_a_plan(tmp_path: Path):
    plan = plan_of(write_task(tmp_path))
    assert plan.recipe == "task"
    assert dict(plan.seed.texts) == {"prompt.md": "seed\n"}
    assert list(plan.rules.artifacts) == ["prompt.md"]
    assert plan.cases.holdout == (IMPLICIT_CASE,)
    assert plan.objective == Objective("score", "maximize")
    assert plan.gate.name == "repeats"
    assert plan.budget.max_iterations == 20
    assert plan.width == min(32, 2 * plan.workers)
    assert plan.spec.path == str(tmp_path.resolve() / "task.yaml")
    assert plan.spec.id == tmp_path.name
    assert plan.spec.overrides == ()


def test_everything_a_task_may_say_reaches_the_plan(tmp_path: Path):
    (tmp_path / "cases.jsonl").write_text("".join(f'{{"q": {n}}}\n' for n in range(10)))
    text = TASK.replace("[prompt.md]", "['*.md'], exclude: [notes.md], max_files_per_iteration: 2")
    text = text.replace("maximize}", "minimize, bounds: [0, 9], tie_tolerance: 0.5}")
    text = text.replace("max_iterations: 20", "max_failures: 3, max_minutes: 1.5, max_rollouts: 7")
    text += """\
cases: {file: cases.jsonl, split: "2:6:2", seed: 4}
constraints: [{metric: ok, op: ==, value: true}, {metric: length, op: "<=", value: 9}]
policy: {tie_breakers: [{lower: length}, {higher: joy}]}
gate: strict
workers: 3
width: 5
id: my-task
description: What it is for.
"""
    (tmp_path / "notes.md").write_text("not mine")
    plan = plan_of(
        write_task(tmp_path, text), "workers=2", "budget.max_usd=1", "budget.usd_per_rollout=0.1"
    )
    assert dict(plan.seed.texts) == {"prompt.md": "seed\n"}
    assert plan.rules.max_files == 2
    assert plan.objective == Objective(
        "score",
        "minimize",
        (0, 9),
        (Constraint("ok", "==", 1), Constraint("length", "<=", 9)),
        (TieBreaker("length", "lower"), TieBreaker("joy", "higher")),
        0.5,
    )
    assert len(plan.cases.holdout) == 6
    assert (plan.workers, plan.width) == (2, 5)
    assert (plan.budget.max_failures, plan.budget.max_minutes) == (3, 1.5)
    assert (plan.budget.max_rollouts, plan.budget.max_usd) == (7, 1)
    assert plan.spec.id == "my-task"
    assert plan.spec.description == "What it is for."
    assert plan.worst_usd == 0.1
    assert plan.spec.overrides == ("workers=2", "budget.max_usd=1", "budget.usd_per_rollout=0.1")


def test_two_proposers_of_one_kind_have_names_of_their_own(tmp_path: Path):
    more = '"alternatives/*.md"]}, {kind: variants, files: ["alternatives/a.md"'
    plan = plan_of(write_task(tmp_path, TASK.replace('"alternatives/*.md"', more)))
    assert [proposer.name for proposer in plan.proposers] == ["variants", "variants-2"]
    assert all(isinstance(proposer, Variants) for proposer in plan.proposers)


def test_copies_of_cases_across_splits_are_a_warning(tmp_path: Path):
    row = '{{"id": {}, "q": "where is my parcel, it was sent a week ago"}}\n'
    (tmp_path / "cases.jsonl").write_text("".join(row.format(n) for n in range(4)))
    compiled = compile_task(write_task(tmp_path, TASK + "cases: {file: cases.jsonl}\n"))
    (told,) = compiled.warnings
    assert "pairs of cases are the same across splits: " in told


@pytest.mark.parametrize(
    ("before", "after", "drifts"),
    [
        ("max_iterations: 20", "max_iterations: 90", ""),
        ("budget:", "workers: 7\nwidth: 3\ndescription: x\nid: y\nbudget:", ""),
        ("budget:", "gate: strict\nbudget:", "gate"),
        ("runner: {", "runner: {cwd: ., ", ""),
        ('{command: "true"}\nscorer', '{command: "false"}\nscorer', "spec"),
        ("runner: {", "runner: {timeout_seconds: 9, ", "spec"),
        ("maximize", "minimize", "spec"),
        ("budget:", "constraints: [{metric: a, op: <, value: 1}]\nbudget:", "spec"),
    ],
)
def test_a_resume_notices_what_changes_verdicts_and_allows_the_rest(
    before: str, after: str, drifts: str, tmp_path: Path
):
    old = inputs_of(plan_of(write_task(tmp_path)))
    assert before in TASK
    new = inputs_of(plan_of(write_task(tmp_path, TASK.replace(before, after))))
    assert {name for name in old if old[name] != new[name]} == ({drifts} if drifts else set())


def test_a_resume_notices_changed_files(tmp_path: Path):
    path = write_task(tmp_path)
    old = inputs_of(plan_of(path))
    (tmp_path / "alternatives" / "a.md").write_text("changed")
    changed = inputs_of(plan_of(path))
    assert {name for name in old if old[name] != changed[name]} == {"`alternatives/a.md`"}
    (tmp_path / "prompt.md").write_text("changed")
    changed = inputs_of(plan_of(path))
    both = {"`alternatives/a.md`", "artifacts"}
    assert {name for name in old if old[name] != changed[name]} == both


def test_a_task_runs_and_keeps_what_is_better(tmp_path: Path):
    path = task_that_counts(tmp_path, b="longer by far\n", c="mid\n")
    folder, state = run(path)
    assert [step.verdict.outcome for step in state.history] == [
        "discard",
        "keep",
        "discard",
        "skip",
    ]
    assert values(state) == (5, 14)
    assert (folder / "best" / "prompt.md").read_text() == "longer by far\n"
    assert (tmp_path / "prompt.md").read_text() == "seed\n"
    # the seed three times, what was kept twice
    assert (count(path, "runs"), count(path, "scores")) == (3 + 1 + 2 + 1, 7)


def test_a_run_killed_between_running_and_scoring_scores_again_without_running_again(
    tmp_path: Path,
):
    path = task_that_counts(tmp_path)
    folder, whole = run(path)
    assert (count(path, "runs"), count(path, "scores")) == (4, 4)
    cut(folder, ("run_started", "step_opened", "proposed"), ("call",))
    events = (folder / "journal.jsonl").read_text().splitlines()
    (folder / "journal.jsonl").write_text("\n".join(events[:3]) + "\n")
    (folder / "steps.idx").unlink(missing_ok=True)
    state = go_on(path, folder)
    assert (count(path, "runs"), count(path, "scores")) == (4, 8)
    assert state.settled() == whole.settled()


def test_a_run_killed_before_anything_arrived_runs_again(tmp_path: Path):
    path = task_that_counts(tmp_path)
    folder, whole = run(path)
    cut(folder, ("run_started", "step_opened"), ())
    events = (folder / "journal.jsonl").read_text().splitlines()
    (folder / "journal.jsonl").write_text("\n".join(events[:2]) + "\n")
    (folder / "steps.idx").unlink(missing_ok=True)
    state = go_on(path, folder)
    assert (count(path, "runs"), count(path, "scores")) == (8, 8)
    assert state.settled() == whole.settled()


def test_a_finished_run_goes_on_with_a_larger_budget_and_not_with_another_spec(tmp_path: Path):
    path = task_that_counts(tmp_path, b="longer by far\n")
    folder, state = run(path, "budget.max_iterations=1")
    assert len(state.history) == 1
    state = go_on(path, folder, "budget.max_iterations=2")
    assert [step.verdict.outcome for step in state.history] == ["discard", "keep"]
    with pytest.raises(JournalError, match="spec changed since it started"):
        go_on(path, folder, "runner.command=sh run.sh again")


def test_calls_are_let_go_of_when_their_rollout_is_settled(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    from kept.store.journal import RunJournal

    left: list[int] = []
    close = RunJournal.close

    def look_and_close(journal: RunJournal) -> None:
        left.append(len(journal._calls))
        close(journal)

    monkeypatch.setattr(RunJournal, "close", look_and_close)
    run(task_that_counts(tmp_path, b="longer by far\n"))
    assert left == [0]


def test_a_scorer_that_never_works_stops_the_run_and_blames_no_candidate(tmp_path: Path):
    path = task_that_counts(tmp_path)
    (tmp_path / "score.sh").write_text("echo no scores today >&2; exit 1")
    folder, state = run(path)
    assert state.stopped is not None
    assert state.stopped.kind == "error"
    assert "no scores today" in state.stopped.message
    found = Run(folder)
    failures = {outcome.failure for _, _, outcome in found.rollouts()}
    found.close()
    what = "the scorer failed: exit 1: no scores today"
    expected = Failure("harness", "infrastructure", what, scoring=True)
    assert {failure and replace(failure, detail="") for failure in failures} == {expected}


def test_the_trace_of_a_rollout_holds_what_the_command_said(tmp_path: Path):
    path = task_that_counts(tmp_path)
    (tmp_path / "run.sh").write_text(f"{RUN}; echo to stdout; echo to stderr >&2")
    folder, _ = run(path)
    found = Run(folder)
    _, _, outcome = next(found.rollouts())
    assert [(item.role, item.text) for item in found.trace(outcome.trace)] == [
        ("stdout", "to stdout\n"),
        ("stderr", "to stderr\n"),
    ]
    found.close()


@pytest.mark.slow
def test_the_minimal_example_runs_from_start_to_end(tmp_path: Path):
    shutil.copytree(EXAMPLES / "minimal", tmp_path / "minimal")
    compiled = compile_task(tmp_path / "minimal" / "task.yaml")
    assert compiled.warnings == ()
    folder, state = asyncio.run(start(compiled.plan, Home(tmp_path)))
    outcomes = [step.verdict.outcome for step in state.history if step.candidate]
    assert outcomes == ["keep", "keep", "discard", "discard", "keep"]
    codes = [step.verdict.code for step in state.history if step.candidate]
    assert codes == ["judged", "judged", "judged", "constraint", "judged"]
    assert values(state) == (0.2, 1.0)
    events = Run(folder).events
    assert isinstance(events[0], RunStarted)
    first = next(event for event in events if isinstance(event, StepClosed))
    assert first.evaluations[0].metrics["words"].n == 1


def test_variables_that_were_set_are_not_written_down(tmp_path: Path):
    task = write_task(tmp_path)
    plan = plan_of(task, "workers=2", "runner.env.API_KEY=sk-canary-0123")
    assert plan.spec.overrides == ("workers=2",)
    assert plan.spec.hidden == ("runner.env.API_KEY",)
    assert "sk-canary" not in repr(plan.spec) + repr(plan.facts) + repr(plan.inputs)
