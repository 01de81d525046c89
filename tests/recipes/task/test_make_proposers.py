"""Proposers of a task.yaml, run from start to end."""

import asyncio
import json
from pathlib import Path

import pytest

from kept.core.proposal import Proposal
from kept.core.state import State
from kept.recipes.task.compile import compile_task
from kept.run import start
from kept.store.home import Home
from tests.recipes.task.tasks import TASK, write_task

OLD = '[{kind: variants, files: ["alternatives/*.md"]}]'
EDITOR = """\
import json, os, pathlib
brief = json.loads(pathlib.Path(os.environ["KEPT_BRIEF"]).read_text())
def content(name):
    try:
        return pathlib.Path(name).read_text()
    except OSError:
        return ""
names = ("cases.jsonl", "score.sh", "results.jsonl", "edit.py")
seen = [name for name in names if content(name)]
path = pathlib.Path(os.environ["KEPT_CANDIDATE"], "prompt.md")
path.write_text(path.read_text() + f"line {brief['step']}\\n")
print("sees", seen, "after", [step["outcome"] for step in brief["steps"]])
"""


def run(
    folder: Path,
    proposers: str,
    more: str = "",
    score: str = "wc -c < prompt.md",
    prompt: str = "seed\n",
) -> tuple[Path, State]:
    """A task whose score is a measure of the prompt."""
    text = TASK.replace('scorer: {command: "true"}', 'scorer: {command: "sh score.sh"}')
    path = write_task(folder, text.replace(OLD, proposers) + f"workers: 1\nwidth: 1\n{more}")
    (folder / "score.sh").write_text(f"""printf '{{"score": %d}}' "$({score})\"""")
    (folder / "prompt.md").write_text(prompt)
    (folder / "edit.py").write_text(EDITOR)
    rows = [{"q": f"question {n}", "a": f"answer {n}"} for n in range(8)]
    (folder / "cases.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    plan = compile_task(path, ["budget.max_iterations=4"]).plan
    return asyncio.run(start(plan, Home(folder / ".kept")))


@pytest.mark.parametrize(("named", "shown"), [("", ()), (", fields: q", ("question",))])
def test_a_program_sees_of_cases_what_it_is_given_and_no_answers(
    named: str, shown: tuple[str, ...], tmp_path: Path
):
    line = 'cp "$KEPT_BRIEF" "$KEPT_OUTPUT/why.txt"; echo x >> "$KEPT_CANDIDATE/prompt.md"'
    said = f"[{{kind: command, command: '{line}'{named}}}]"
    _, state = run(tmp_path, said, "cases: {file: cases.jsonl}\n")
    proposal = state.history[0].proposal
    assert proposal is not None and '"train"' in proposal.why
    assert "answer" not in proposal.why
    assert [word for word in ("question", "answer") if f"{word} 1" in proposal.why] == [*shown]


@pytest.mark.slow
def test_a_program_proposes_between_the_same_walls_as_the_runner(tmp_path: Path):
    more = "cases: {file: cases.jsonl}\nlogging: {results_file: results.jsonl}\n"
    folder, state = run(tmp_path, "[{kind: command, command: python edit.py}]", more)
    assert "keep" in (tmp_path / "results.jsonl").read_text()
    assert [step.verdict.outcome for step in state.history] == ["keep"] * 4
    best = (folder / "best" / "prompt.md").read_text()
    assert best == "seed\nline 0\nline 1\nline 2\nline 3\n"
    last = state.history[-1].proposal
    assert isinstance(last, Proposal)
    walls = "bwrap" in str(state.settings.spec.sandbox)
    if walls:
        assert last.why == "sees ['edit.py'] after ['keep', 'keep', 'keep']"
    assert (tmp_path / "prompt.md").read_text() == "seed\n"


@pytest.mark.slow
def test_a_program_that_fails_is_a_crash_that_blames_no_candidate(tmp_path: Path):
    _, state = run(tmp_path, "[{kind: command, command: 'echo no idea >&2; exit 4'}]")
    assert {step.verdict.code for step in state.history} == {"proposer failed"}
    assert "exit 4: no idea" in state.history[0].verdict.reason


@pytest.mark.slow
def test_lines_are_left_out_as_long_as_that_scores_better(tmp_path: Path):
    prompt = "one two\nthree\nfour\n"
    score = "expr 100 - $(wc -c < prompt.md)"
    folder, state = run(tmp_path, "[{kind: prune, units: [line]}]", score=score, prompt=prompt)
    assert [step.verdict.outcome for step in state.history] == ["keep", "keep", "skip"]
    assert (folder / "best" / "prompt.md").read_text() in prompt.splitlines(keepends=True)
    assert state.stopped is not None
    assert state.stopped.kind == "nothing left to propose"
