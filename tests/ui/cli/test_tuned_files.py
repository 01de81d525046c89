"""What a tuned agent leaves behind runs where it lies, and scores what the journal says."""

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from kept.core.llm import ModelReply, ToolCall
from kept.spec.locate.tree import read_value
from kept.testing.server import ModelServer, Seen
from tests.recipes.agent_config.tune.world import GOOD, POOL, criticise, share
from tests.ui.cli.tasks import kept

pytestmark = pytest.mark.slow

AGENT = """\
name: sums  # with a file, a tool and a grader
model:
  provider: openai
  name: gpt-5-mini
  endpoint: "{url}"
  api_key: "${{KEY}}"
instructions:
  file: ./prompts/system.md
tools:
  - type: function
    name: add
    description: adds two numbers
    file: tools/sums.py
    function: add
evaluations:
  metrics:
    - {{type: code, grader: "graders:close", name: close}}
  optimizer:
    loss: {{close: 1.0}}
    accept_sigma: 0.0
    repeats: 1
    split: '1:1:0'
    axes:
      numeric:
        - {{path: model.temperature, range: [0.0, 1.0]}}
      textual:
        - {{path: instructions, max_chars: 400}}
        - {{path: "tools[name=add].description", max_chars: 80}}
    budget:
      global: {{max_cycles: 2}}
      numeric_phase: {{max_trials: 3, patience: 3}}
      textual_phase: {{max_trials: 4, patience: 4}}
test_cases_file: cases.yaml
"""
HEAD = "---\nversion: 1.2\n---\n"
OLD = "You add."
SET = "gpt-5-nano"
"""A model that is named on a command line alone."""
NUMBERS = re.compile(r"(\d+) \+ (\d+)")


def answer(seen: Seen) -> ModelReply | str:
    """The same for the same agent and case, whatever it is drawn for."""
    schema = json.dumps(seen.body.get("response_format") or {})
    if "failing_pattern" in schema:
        return criticise(seen)
    if "new_text" in schema:
        about_tool = "adds two numbers" in seen.text
        line = POOL[int(share("applier", seen.body.get("seed"), seen.text) * len(POOL))]
        new = f"adds two numbers. {line}"[:80] if about_tool else f"{OLD}\n{line}\n"
        said = {"edit_type": "insert", "rationale": "r", "new_text": new, "diff_summary": "d"}
        return json.dumps(said)
    if not seen.tool_results:
        a, b = NUMBERS.findall(seen.text)[0]
        return ModelReply(
            "",
            finish="tool_calls",
            tool_calls=(ToolCall("one", "add", json.dumps({"a": int(a), "b": int(b)})),),
        )
    temperature = float(seen.body["temperature"])
    lucky = 0.3 + 0.4 * (GOOD in seen.lines[0].text) + 0.2 * (temperature > 0.5)
    lucky += 0.1 * (seen.model == SET)
    right = share("case", *NUMBERS.findall(seen.text)[0]) < lucky
    return seen.tool_results[-1] if right else "I do not know"


@pytest.fixture(scope="module")
def server() -> Iterator[ModelServer]:
    with ModelServer(answer) as made:
        yield made


@pytest.fixture
def tuned(here: Path, server: ModelServer, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of a run, and an agent of several files beside it."""
    monkeypatch.setenv("KEY", "sk-very-secret-key")
    write_parts(here, here)
    (here / "agent.yaml").write_text(AGENT.format(url=server.v1))
    return tune(here)


@pytest.fixture
def tuned_apart(here: Path, server: ModelServer, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The same of an agent with files outside of its folder, and with some of it set besides."""
    monkeypatch.setenv("KEY", "sk-very-secret-key")
    own, shared = here / "agents" / "sums", here / "shared"
    write_parts(own, shared)
    (shared / "note.txt").write_text("numbers are whole\n")
    text = (shared / "cases.yaml").read_text()
    attached = "files: [{path: ../../shared/note.txt, type: text}], "
    (shared / "cases.yaml").write_text(text.replace("ground_truth", f"{attached}ground_truth"))
    text = AGENT.format(url=server.v1).replace("tools/sums.py", "../../shared/tools/sums.py")
    (own / "agent.yaml").write_text(text.replace("cases.yaml", "../../shared/cases.yaml"))
    return tune(own, "--set", f"model.name={SET}", "--set", "execution={llm_timeout: 33}")


def write_parts(own: Path, shared: Path) -> None:
    """What an agent is made of: its own, and what it may share with others."""
    for folder in (own / "prompts", shared / "tools"):
        folder.mkdir(parents=True)
    (own / "prompts" / "system.md").write_text(f"{HEAD}{OLD}\n")
    (shared / "tools" / "sums.py").write_text(
        "def add(a: float, b: float) -> float:\n    return a + b\n"
    )
    (own / "notes.txt").write_text("not named by the agent\n")
    (own / "helper.py").write_text("RATES = open('rates.csv').read()\n")
    (own / "rates.csv").write_text("1\n")
    (own / "graders.py").write_text(
        "import helper\n\n\ndef close(ctx):\n    return ctx.agent_response.strip() in "
        "(ctx.ground_truth, ctx.ground_truth + '.0')\n"
    )
    rows = [f"- {{name: sum-{n}, input: '{n} + 1', ground_truth: '{n + 1}'}}" for n in range(20)]
    (shared / "cases.yaml").write_text("\n".join(rows) + "\n")


def tune(folder: Path, *words: str) -> Path:
    called = kept("test", "optimize", str(folder / "agent.yaml"), "-q", *words)
    assert called.code == 0, called.stderr
    (made,) = (folder / "results" / "optimizer").iterdir()
    return made


def rows_of(folder: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (folder / "trials.jsonl").read_text().splitlines()]


def measured(path: Path) -> float:
    """What a fresh process makes of a candidate, on all cases."""
    env = {"PATH": os.defpath, "HOME": str(path.parent), "KEY": "sk-very-secret-key"}
    command = [sys.executable, "-m", "kept", "eval", str(path), "-q", "--json"]
    done = subprocess.run(command, env=env, capture_output=True, text=True, check=False)
    assert done.returncode in (0, 1), done.stderr
    report = json.loads(done.stdout)
    return 1 - report["summary"]["average_scores"]["close"]


@pytest.mark.parametrize("name", ["tuned", "tuned_apart"])
def test_every_candidate_scores_in_a_fresh_process_what_the_journal_says(
    name: str, request: pytest.FixtureRequest
):
    tuned: Path = request.getfixturevalue(name)
    accepted = [row for row in rows_of(tuned) if row["decision"]["accepted"]]
    touched = {row["axis_target"] for row in accepted}
    assert {"instructions", "model.temperature"} <= touched, touched
    for row in accepted:
        said = (row["train"]["loss"] + row["holdout"]["loss"]) / 2
        assert measured(tuned / row["candidate_path"]) == pytest.approx(said, abs=1e-6), row
    best = tuned / "best.yaml"
    assert best.resolve().name == Path(accepted[-1]["candidate_path"]).name


def test_a_candidate_holds_what_was_set_besides_and_leads_to_files_outside(tuned_apart: Path):
    text = (tuned_apart / "best.yaml").read_text()
    assert read_value("best.yaml", text, "model.name") == SET
    assert read_value("best.yaml", text, "execution.llm_timeout") == 33
    assert "# with a file, a tool and a grader" in text and "${KEY}" in text
    candidates = (tuned_apart / "best.yaml").resolve().parent
    tool = read_value("best.yaml", text, "tools[0].file")
    assert (candidates / str(tool)).read_text().startswith("def add")


def test_changed_instructions_lie_beside_the_candidates_with_their_head(tuned: Path):
    texts = sorted((tuned / "instructions").iterdir())
    changed = next(path for path in texts if GOOD in path.read_text())
    assert changed.read_text().startswith(HEAD)
    candidate = (tuned / "best.yaml").read_text()
    named = read_value("best.yaml", candidate, "instructions.file")
    assert named == f"../instructions/{changed.name}"
    assert "# with a file, a tool and a grader" in candidate
    assert (tuned / "best-instructions.md").read_text() == changed.read_text()


def test_the_agent_itself_is_untouched_until_it_is_adopted(tuned: Path, here: Path):
    assert (here / "prompts" / "system.md").read_text() == f"{HEAD}{OLD}\n"
    called = kept("adopt", "last", "--yes")
    assert called.code == 0, called.stderr
    assert GOOD in (here / "prompts" / "system.md").read_text()
    assert "${KEY}" in (here / "agent.yaml").read_text()


def test_a_tuned_run_can_be_looked_at_like_any_other_and_holds_no_secret(tuned: Path, here: Path):
    for command in ("show", "report", "diff", "runs"):
        called = kept(command)
        assert called.code == 0, called.stderr
        assert "loss" in called.stdout or command == "diff"
    for path in here.rglob("*"):
        if path.is_file() and not path.is_symlink():
            assert b"sk-very-secret-key" not in path.read_bytes(), path


def test_candidates_link_only_what_the_agent_names(tuned: Path, here: Path):
    links = {path.name for path in (tuned / "candidates").iterdir() if path.is_symlink()}
    assert links == {"prompts", "tools", "graders.py", "cases.yaml"}
    beside = {path.name for path in here.iterdir()}
    assert {"notes.txt", "helper.py", "rates.csv"} <= beside
    # the grader imports and reads what is not linked, and finds it beside its own file
    checked = kept("check", str(tuned / "best.yaml"))
    assert checked.code == 0, checked.stderr


def test_doctor_finds_damage_to_each_file_that_a_person_reads(tuned: Path, here: Path):
    def wrong() -> set[str]:
        rows = kept("doctor", "last", "--json").json["files"]
        return {Path(row["file"]).name for row in rows if row["state"] != "ok"}

    assert wrong() == set()
    helpers = here / ".kept" / "optimizer" / "agents"
    paths = [*helpers.iterdir(), *tuned.rglob("*")]
    files = [path for path in paths if path.is_file() and not path.is_symlink()]
    names = {path.name for path in files}
    assert names >= {"critic.yaml", "trials.jsonl", "trajectory.csv", "run.json", "exit.json"}
    assert names >= {"iter-00.yaml", "report.md"}
    for path in files:
        right = path.read_bytes()
        at = len(right) // 2
        path.write_bytes(right[:at] + bytes([right[at] ^ 1]) + right[at + 1 :])
        assert wrong() == {path.name}, path
        path.write_bytes(right)
    assert wrong() == set()
