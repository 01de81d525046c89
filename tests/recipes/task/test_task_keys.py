"""Every key of a task does what it says, seen in a run."""

import asyncio
import hashlib
import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from kept.core.artifact import Candidate
from kept.core.ports import Scope
from kept.core.proposal import Brief, ProposerReply, Skip
from kept.core.state import State
from kept.errors import SpecError
from kept.recipes.task.compile import compile_task
from kept.run import Ended, inputs_of, resume, start
from kept.store.home import Home
from kept.store.reader import Run

# The score is how often the text says `good`; other words are measures of their own.
RUN = """\
cd "$KEPT_CANDIDATE" && grep -q crash prompt.md && exit 3
cp prompt.md "$KEPT_OUTPUT/out"
"""
SCORE = """\
of() { grep -o "$1" "$KEPT_OUTPUT/out" | wc -l; }
printf '{"score": %d, "metrics": {"bad": %d, "tidy": %s' "$(of good)" "$(of bad)" \\
  "$(grep -q untidy "$KEPT_OUTPUT/out" && echo false || echo true)"
grep -q rare "$KEPT_OUTPUT/out" && printf ', "rare": 1'
printf '}}'
"""
TASK = """\
artifacts: {include: ["*.md"]}
runner: {command: "sh run.sh"}
scorer: {command: "sh score.sh"}
objective: {primary_metric: score, direction: maximize}
proposers: [{kind: variants, files: ["drafts/*"]}]
budget: {max_iterations: 20}
width: 1
"""


def write(folder: Path, drafts: Sequence[str], more: str = "", seed: str = "good\n") -> Path:
    (folder / "drafts").mkdir(parents=True)
    for number, text in enumerate(drafts):
        (folder / "drafts" / f"{number}.md").write_text(text)
    (folder / "prompt.md").write_text(seed)
    (folder / "run.sh").write_text(RUN)
    (folder / "score.sh").write_text(SCORE)
    (folder / "task.yaml").write_text(TASK + more)
    return folder / "task.yaml"


def run(task: Path, *overrides: str) -> Ended:
    plan = compile_task(task, overrides).plan
    return asyncio.run(start(plan, Home(task.parent / ".kept")))


def verdicts(state: State) -> list[str]:
    return [step.verdict.outcome for step in state.history if step.candidate]


def reasons(state: State) -> list[str]:
    return [step.verdict.reason for step in state.history if step.candidate]


def rows(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def test_files_of_other_types_are_carried_and_never_edited(tmp_path: Path):
    task = write(tmp_path, [], "mutation: {allowed_file_types: [.md]}\n")
    (tmp_path / "tool.py").write_text("pass\n")
    for name in ("prompt.md", "tool.py"):
        (tmp_path / "drafts" / "both").mkdir(exist_ok=True)
        (tmp_path / "drafts" / "both" / name).write_text("good good\n")
    include = "artifacts.include=[prompt.md, tool.py]"
    with pytest.raises(SpecError, match=r"`drafts/both/tool.py` has no artifact `tool.py`"):
        compile_task(task, [include])
    (tmp_path / "drafts" / "both" / "tool.py").unlink()
    plan = compile_task(task, [include]).plan
    assert list(plan.rules.artifacts) == ["prompt.md"]
    assert set(plan.seed.texts) == {"prompt.md", "tool.py"}
    state = run(task, include).state
    assert verdicts(state) == ["keep"]


def test_a_candidate_that_changes_too_many_lines_is_not_even_run(tmp_path: Path):
    task = write(tmp_path, ["good\n" * 5], "mutation: {max_changed_lines: 3}\n")
    state = run(task).state
    assert reasons(state) == ["changes 4 lines, 3 allowed"]
    assert state.spend.rollouts == 0


@pytest.mark.slow
def test_a_draft_that_holds_up_a_rule_crashes_and_the_run_goes_on(tmp_path: Path):
    rule = "scorer={type: rules, timeout_seconds: 0.5, rules: [{kind: matches, pattern: '(o+)+$'}]}"
    task = write(tmp_path, ["o" * 40 + "!\n", "foo\n"], seed="x\n")
    state = run(task, rule).state
    assert verdicts(state) == ["crash", "keep"]
    assert "the rule `matches` took too long on this candidate" in state.history[0].verdict.private


PROTECT = """mutation:
  protect: [{begin: "<!-- keep -->", end: "<!-- /keep -->"}, {section: Limits}]
"""
HELD = "good\n<!-- keep -->\nfixed\n<!-- /keep -->\n\n## Limits\n\nNever guess.\n"


def test_what_is_protected_no_draft_changes_and_no_program(tmp_path: Path):
    drafts = [
        HELD.replace("fixed", "good"),
        HELD.replace("Never", "good"),
        "good good good\n",
        HELD.replace("good\n", "good good\n", 1),
    ]
    task = write(tmp_path, drafts, PROTECT, seed=HELD)
    both = "proposers=[{kind: variants, files: [drafts/*]}, {kind: command, command: sh edit.sh}]"
    edit = "cd $KEPT_CANDIDATE && sed -i 's/good/& & &/; s/fixed/good good/' prompt.md"
    (tmp_path / "edit.sh").write_text(edit)
    folder, state = run(task, both, "budget.max_iterations=7")
    told = [(step.turn.proposer, step.verdict.code, step.verdict.reason) for step in state.history]
    inside = "protected in prompt.md: inside `<!-- keep -->` … `<!-- /keep -->`"
    limits = "protected in prompt.md: the section `Limits`"
    assert [row[1:] for row in told if row[0] == "variants"] == [
        ("protected", inside),
        ("protected", limits),
        ("protected", inside),
        ("judged", "strictly better: `score` 1 → 2"),
    ]
    assert {row[1:] for row in told if row[0] == "command"} == {("protected", inside)}
    # the seed three times, and the one that was kept twice
    assert state.spend.rollouts == 5
    found = Run(folder)
    assert found.best["prompt.md"] == drafts[3]
    found.close()


def test_a_program_that_proposes_is_told_what_is_protected(tmp_path: Path):
    task = write(tmp_path, [], PROTECT, seed=HELD)
    line = 'sh -c "cp $KEPT_BRIEF $KEPT_OUTPUT/why.txt; echo good >> $KEPT_CANDIDATE/prompt.md"'
    command = f"proposers=[{{kind: command, command: '{line}'}}]"
    state = run(task, command, "budget.max_iterations=1").state
    assert state.history[0].proposal is not None
    assert (
        '"protected": [{"begin": "<!-- keep -->", "end": "<!-- /keep -->"}, {"section": "Limits"}]'
        in (state.history[0].proposal.why)
    )


@pytest.mark.parametrize(
    ("score", "parse"),
    [
        ('{"result": {"points": 7}, "extra": {"bad": 1}}', "score_field: result.points"),
        ('{"points": 7, "score": 99, "extra": {"score": 98, "bad": 1}}', "score_field: points"),
        ('{"score": 7, "extra": {"bad": 1}}', "format: json"),
    ],
)
def test_the_score_is_read_where_the_spec_says(score: str, parse: str, tmp_path: Path):
    task = write(tmp_path, ["x\n"])
    (tmp_path / "score.sh").write_text(f"echo '{score}'")
    folder, state = run(task, f"scorer.parse={{{parse}, metrics_field: extra}}")
    assert verdicts(state) == ["discard"]
    found = Run(folder)
    _, _, outcome = next(found.rollouts())
    found.close()
    assert (outcome.metrics["score"], outcome.metrics["bad"]) == (7, 1)


def test_a_score_that_is_not_where_the_spec_says_is_no_candidates_fault(tmp_path: Path):
    state = run(write(tmp_path, ["x\n"]), "scorer.parse={score_field: points}").state
    assert state.stopped is not None
    assert state.stopped.kind == "error"
    assert "there is no `points`" in state.stopped.message


@pytest.mark.parametrize(
    ("constraint", "text", "outcome"),
    [
        ("{metric: bad, op: '<=', value: 1}", "good good bad\n", "keep"),
        ("{metric: bad, op: '<', value: 1}", "good good bad\n", "discard"),
        ("{metric: bad, op: '>', value: 0}", "good good\n", "discard"),
        ("{metric: bad, op: '>=', value: 1}", "good good bad\n", "keep"),
        ("{metric: bad, op: '!=', value: 1}", "good good bad\n", "discard"),
        ("{metric: tidy, op: '==', value: true}", "good good\n", "keep"),
        ("{metric: tidy, op: '==', value: true}", "good good untidy\n", "discard"),
        ("{metric: tidy, op: '!=', value: true}", "good good untidy\n", "keep"),
        ("{metric: rare, op: '>=', value: 0}", "good good rare\n", "keep"),
        ("{metric: rare, op: '>=', value: 0}", "good good\n", "discard"),
    ],
)
def test_a_constraint_blocks_a_gain(constraint: str, text: str, outcome: str, tmp_path: Path):
    assert verdicts(run(write(tmp_path, [text]), f"constraints=[{constraint}]").state) == [outcome]


def test_a_constraint_on_what_the_scorer_did_not_emit_fails_by_name(tmp_path: Path):
    task = write(tmp_path, ["good good\n"], "constraints: [{metric: x, op: <, value: 9}]\n")
    state = run(task).state
    assert reasons(state) == ["constraint broken: x < 9: not emitted by every rollout"]


def test_a_gain_within_the_tolerance_is_a_tie_that_a_tie_breaker_may_decide(tmp_path: Path):
    drafts = ["good good\n", "good good bad\n", "good good good\n"]
    task = write(tmp_path, drafts, "policy: {tie_breakers: [{lower: bad}]}\n", "good bad\n")
    state = run(task, "objective.tie_tolerance=1").state
    assert verdicts(state) == ["keep", "discard", "discard"]
    assert reasons(state)[0] == "tied (`score` 1 → 2), but lower `bad`: 1 → 0"
    assert verdicts(run(task).state) == ["keep", "discard", "keep"]


def test_a_crash_is_dropped_and_the_run_goes_on(tmp_path: Path):
    task = write(tmp_path, ["crash\n", "good good\n"], "logging: {results_file: out/r.jsonl}\n")
    state = run(task).state
    assert verdicts(state) == ["crash", "keep"]
    found = rows(tmp_path / "out" / "r.jsonl")
    assert [(row["decision"], row.get("on_failure")) for row in found[:2]] == [
        ("crash", "discard"),
        ("keep", None),
    ]


def test_on_failure_stop_ends_the_run_at_the_first_crash(tmp_path: Path):
    task = write(tmp_path, ["good good\n", "crash\n", "good good good\n"])
    state = run(task, "policy.on_failure=stop").state
    assert verdicts(state) == ["keep", "crash"]
    assert state.stopped is not None
    assert state.stopped.kind == "failures"


def test_max_failures_ends_the_run(tmp_path: Path):
    task = write(tmp_path, ["crash\n", "good good\n", "crash crash\n", "good good good\n"])
    state = run(task, "budget.max_failures=2").state
    assert verdicts(state) == ["crash", "keep", "crash"]
    assert state.stopped is not None
    assert state.stopped.kind == "failures"


def test_where_results_go_and_what_a_crash_does_may_differ_on_a_resume(tmp_path: Path):
    task = write(tmp_path, ["good good\n"])
    strict = "gate=strict"
    plain = inputs_of(compile_task(task, [strict]).plan)
    for same in (
        "logging.results_file=x",
        "policy.on_failure=stop",
        "policy.keep_if=better_primary",
    ):
        assert inputs_of(compile_task(task, [strict, same]).plan) == plain
    for other in ("mutation.max_changed_lines=9", "scorer.parse.score_field=x"):
        assert inputs_of(compile_task(task, [strict, other]).plan) != plain
    # without a word the gate is another, by whichever key it is asked for
    assert inputs_of(compile_task(task, []).plan) != plain
    asked = inputs_of(compile_task(task, ["policy.keep_if=better_primary"]).plan)
    assert asked == plain


class Listening:
    """A proposer that has nothing to say and keeps what it was told."""

    name = "variants"
    serial = False

    def __init__(self) -> None:
        self.briefs: list[Brief] = []

    async def propose(self, brief: Brief, scope: Scope) -> ProposerReply:
        self.briefs.append(brief)
        return Skip("nothing", exhausted=True)


def brief_of(task: Path) -> Brief:
    listening = Listening()
    plan = replace(compile_task(task).plan, proposers=(listening,))
    asyncio.run(start(plan, Home(task.parent.parent / ".kept")))
    return listening.briefs[0]


def test_the_rubric_and_the_instruction_of_a_task_reach_the_brief(tmp_path: Path):
    task = write(tmp_path / "a", ["x\n"])
    (tmp_path / "a" / "prompt.md").rename(tmp_path / "a" / "skill.md")
    assert brief_of(task).guidance == {}
    old = inputs_of(compile_task(task).plan)
    (tmp_path / "a" / "rubric.md").write_text("be clear\n")
    (tmp_path / "a" / "prompt.md").write_text("edit boldly\n")
    task.write_text(task.read_text().replace('"*.md"', "skill.md"))
    assert brief_of(task).guidance == {"instruction": "edit boldly\n", "rubric": "be clear\n"}
    new = inputs_of(compile_task(task).plan)
    assert new.keys() - old.keys() == {"`rubric.md`", "`prompt.md`"}


def test_a_prompt_that_is_the_artifact_is_no_instruction(tmp_path: Path):
    task = write(tmp_path / "a", ["x\n"])
    assert brief_of(task).guidance == {}


def test_nothing_of_one_task_reaches_another(tmp_path: Path):
    """One home, the same texts, the same ids: the second run knows nothing of the first."""
    for name in "ab":
        more = f"id: same\ndescription: SECRET-{name}\n"
        write(tmp_path / name, ["good good\n"], more)
    home = Home(tmp_path / ".kept")
    for name in "ab":
        plan = compile_task(tmp_path / name / "task.yaml").plan
        state = asyncio.run(start(plan, home)).state
        assert verdicts(state) == ["keep"]
        assert state.spend.rollouts == 5, "what another task measured is not served from a cache"
    brief = brief_of(tmp_path / "b" / "task.yaml")
    assert not brief.history
    assert not brief.memory
    assert "SECRET-a" not in repr(brief)


def sha256(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def test_a_line_of_the_results_has_the_hash_of_each_changed_file(tmp_path: Path):
    task = write(tmp_path, ["good good\n"], "logging: {results_file: r.jsonl}\n")
    run(task)
    (change,) = rows(tmp_path / "r.jsonl")[0]["diff"]
    assert (change["before"], change["after"]) == (sha256("good\n"), sha256("good good\n"))


def test_candidates_are_diffs_and_the_kept_ones_are_files_too(tmp_path: Path):
    task = write(tmp_path, ["bad\n", "good good\n"], "logging: {candidate_dir: out}\n")
    folder, state = run(task)
    shelf = tmp_path / "out" / folder.name
    names = {str(path.relative_to(shelf)) for path in shelf.rglob("*")}
    assert names == {"0000-discard.diff", "0001-keep.diff", "0001-keep", "0001-keep/prompt.md"}
    assert (shelf / "0001-keep" / "prompt.md").read_text() == "good good\n"
    assert "+bad" in (shelf / "0000-discard.diff").read_text()
    assert Candidate({"prompt.md": "good good\n"}).id == state.best


def test_a_resume_continues_the_results_and_leaves_those_of_other_runs(tmp_path: Path):
    task = write(tmp_path, ["good good\n", "bad\n"], "logging: {results_file: r.jsonl}\n")
    first = run(task, "budget.max_iterations=1").folder
    second = run(task).folder
    plan = compile_task(task, ["budget.max_iterations=2"]).plan
    asyncio.run(resume(plan, first))
    found = [(row["run"], row["iteration"]) for row in rows(tmp_path / "r.jsonl")]
    assert sorted(found) == sorted(
        [(second.name, 0), (second.name, 1), (second.name, 2), (first.name, 0), (first.name, 1)]
    )


def test_results_that_cannot_be_written_are_told_and_do_not_stop_the_run(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
):
    task = write(tmp_path, ["good good\n"], "logging: {results_file: drafts/0.md/r.jsonl}\n")
    assert verdicts(run(task).state) == ["keep"]
    assert caplog.text.count("cannot write") == 1
