"""Runs with agents from start to end: kept what is better, seen in `kept show`, no key anywhere."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from kept.core.llm import ModelReply
from kept.store.reader import Run
from kept.testing.server import Fault, ModelServer, Seen
from tests import warm
from tests.processes import is_running
from tests.sandbox.coding_agents.stand_in import KEY, put
from tests.sandbox.coding_agents.worlds import shell

TASK = """\
artifacts: {include: [SKILL.md]}
runner: {agent: AGENT, model: {MODEL, base_url: "${MODEL_URL}"}, skill: SKILL.md, input: question}
scorer: {type: python, function: "score:score"}
objective: {primary_metric: accuracy, direction: maximize, bounds: [0, 1]}
proposers: [{kind: agent, agent: codex_exec, model: {provider: openai, model: gpt-5-mini,
  base_url: "${MODEL_URL}/v1"}}]
cases: {file: cases.jsonl, split: "1:2:0"}
gate: strict
budget: {max_iterations: 1}
workers: 2
"""
CLAUDE = ("claude_code_exec", "provider: anthropic, model: claude-sonnet-4-5")
CODEX = ("codex_exec", "provider: openai, model: gpt-5-mini")
OTHER = "canary-of-somebody-else-42"
NOWHERE = "http://127.0.0.1:1"


def write(folder: Path, agent: tuple[str, str], more: str = "") -> None:
    folder.mkdir()
    text = TASK.replace("AGENT", agent[0]).replace("MODEL,", f"{agent[1]},")
    (folder / "task.yaml").write_text(text + more)
    (folder / "SKILL.md").write_text("Convert units.\n")
    score = "def score(output, case):\n    return float(case['answer'] in output)\n"
    (folder / "score.py").write_text(score)
    rows = ({"id": f"c{n}", "question": f"{n} feet?", "answer": "metres"} for n in range(3))
    (folder / "cases.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))


def spawn(folder: Path, *words: str, url: str = NOWHERE) -> "subprocess.Popen[str]":
    env = {**os.environ, "MODEL_URL": url, "SOME_SECRET_KEY": OTHER, "COLUMNS": "100"}  # noqa: TID251 # for a process
    env |= dict.fromkeys(("OPENAI_API_KEY", "ANTHROPIC_API_KEY"), KEY)
    return warm.Popen(
        [sys.executable, "-m", "kept", *words],
        cwd=folder,
        env=env,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def kept(folder: Path, *words: str, url: str = NOWHERE) -> str:
    out, err = (process := spawn(folder, *words, url=url)).communicate(timeout=120)
    assert process.returncode == 0, err
    assert KEY not in out + err
    return out


def answer(seen: Seen) -> ModelReply | Fault | str:
    """The editor adds a line to the skill; who reads that line knows what to say."""
    given = len(seen.tool_results)
    if seen.wire == "responses":
        edit = "echo 'Say metres.' >> candidate/SKILL.md; env > candidate/../why.txt; env"
        replies = (shell("codex_exec", "cat brief.json", "I will read the brief."),)
        replies += (shell("codex_exec", edit),)
        return replies[given] if given < len(replies) else f"Done with {KEY}."
    if given == 0:
        return shell("claude_code_exec", "cat .claude/skills/*/SKILL.md; env", "I will look.")
    return "in metres" if "Say metres." in seen.tool_results[-1] else f"no idea, {KEY}"


@pytest.mark.agents
@pytest.mark.slow
@pytest.mark.sandbox
@pytest.mark.usefixtures("agent_clis")
def test_real_agents_run_the_cases_and_edit_the_skill_and_no_key_is_in_any_file(tmp_path: Path):
    folder = tmp_path / "task"
    write(folder, CLAUDE)
    with ModelServer(answer) as server:
        told = kept(folder, "optimize", ".", "-q", url=server.url)
        assert len([seen for seen in server.log if KEY in str(seen.headers)]) >= 9
    assert told.startswith("accuracy 0 → 1 on ")
    (run,) = (folder / ".kept" / "runs").iterdir()
    assert (run / "best" / "SKILL.md").read_text() == "Convert units.\nSay metres.\n"
    shown = kept(folder, "show", "last", "--step", "0", "-v")
    for words in (
        "how agent came to it\n  user      You improve files that a program is driven by",
        "\n  assistant I will read the brief.\n  tool      $ cat brief.json\n",
        "\n  tool      $ echo 'Say metres.' >> candidate/SKILL.md",
        "\n  assistant Done with [secret].\n  info      codex with openai/gpt-5-mini: 4 steps, ",
        "\n  user      Use the skill `skill`: read .claude/skills/skill/SKILL.md first.\n\n",
        "\n            1 feet?\n  assistant I will look.\n  tool      $ cat .claude/skills/",
        "\n  assistant in metres\n  info      claude with anthropic/claude-sonnet-4-5: 3 steps",
    ):
        assert words in shown, shown
    kept(folder, "show", "last", "--step", "0", "--save", "left")
    saved = sorted(path.name for path in (folder / "left").iterdir())
    assert saved[-1] == "proposal"
    assert len(saved) == 5
    raw = (folder / "left" / "proposal" / "codex_raw.txt").read_text()
    assert '"type":"thread.started"' in raw
    assert (folder / "left" / saved[0] / "claude_trace_summary.txt").exists()
    files = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert len(files) > 10
    assert [path for path in files if KEY.encode() in path.read_bytes()] == []
    assert [path for path in files if OTHER.encode() in path.read_bytes()] == []


@pytest.fixture
def stopped() -> Iterator[list[int]]:
    """Processes that must be gone, whatever a test finds."""
    pids: list[int] = []
    yield pids
    for pid in pids:
        if is_running(pid):
            os.kill(pid, signal.SIGKILL)


def processes(words: str) -> list[int]:
    found: list[int] = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            if words.encode() in path.read_bytes().replace(b"\0", b" "):
                found.append(int(path.parent.name))
        except OSError:
            continue
    return found


@pytest.mark.agents
@pytest.mark.kill
@pytest.mark.slow
@pytest.mark.sandbox
@pytest.mark.usefixtures("agent_clis")
def test_a_kill_takes_the_cli_and_its_tools_with_it(tmp_path: Path, stopped: list[int]):
    folder = tmp_path / "task"
    write(folder, CODEX)
    sleep = f"sleep 98{os.getpid()}"
    with ModelServer(lambda seen: shell("codex_exec", sleep)) as server:
        process = spawn(folder, "optimize", ".", "-q", url=f"{server.url}/v1")
        deadline = time.monotonic() + 60
        while not (found := processes(sleep)):
            assert process.poll() is None, process.communicate()
            assert time.monotonic() < deadline
            time.sleep(0.1)
        stopped += [*found, process.pid]
        process.kill()
        process.communicate()
        deadline = time.monotonic() + 10
        while left := processes(sleep):
            assert time.monotonic() < deadline, left
            time.sleep(0.05)


@pytest.mark.slow
def test_a_resumed_run_sends_no_agent_again_that_had_come_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    folder = tmp_path / "task"
    write(folder, CODEX, 'sandbox: {walls: "off"}\n')
    log = tmp_path / "log"
    # whoever comes third stops the run: two cases of the seed are done then
    line = (
        f'read -r first; echo "$first" >> {log}; cat > rest\n'
        f'case "$first" in "You improve"*) echo x >> candidate/SKILL.md;; *)\n'
        f"if [ $(grep -c Use {log}) = 3 ] && [ ! -e {tmp_path}/on ]; then sleep 100; fi;; esac"
    )
    put(tmp_path, line, monkeypatch)
    process = spawn(folder, "optimize", ".", "-q", "--set", "workers=1", "--set", "width=1")
    deadline = time.monotonic() + 30
    while not (log.exists() and log.read_text().count("Use") >= 3):
        assert process.poll() is None, process.communicate()
        assert time.monotonic() < deadline
        time.sleep(0.05)
    process.kill()
    process.communicate()
    before = log.read_text().splitlines()
    assert sum(words.startswith("You improve") for words in before) == 1
    (tmp_path / "on").touch()
    kept(folder, "resume", "last", "-q")
    after = log.read_text().splitlines()[len(before) :]
    # four rollouts and one proposal in all; what was cut runs once more
    assert len(before) == 4
    assert len(after) == 2
    assert not [words for words in after if words.startswith("You improve")]
    (run,) = (folder / ".kept" / "runs").iterdir()
    with Run(run) as found:
        assert len(list(found.rollouts())) == 4
