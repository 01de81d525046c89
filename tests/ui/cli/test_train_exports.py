"""`exports: full` with codex as the student: a file a minibatch, and a folder a rollout.

A program stands in for codex. All else is real: `kept train` as a process, its kill, its resume.
"""

import json
import os
import signal
import stat
import subprocess
import time
from pathlib import Path
from typing import Any

import pytest

from kept.recipes.skill.config_keys import flags_of
from kept.store.reader import Run
from kept.testing.server import ModelServer
from tests.recipes import killing
from tests.recipes.skill import world
from tests.recipes.skill.skill_configs import sound_skill
from tests.ui.cli.tasks import kept

pytestmark = pytest.mark.slow

SESSION = (
    '{"type":"thread.started","thread_id":"00000000-0000-7000-8000-000000000000"}',
    '{"type":"turn.started"}',
    '{"type":"item.completed","item":{"type":"command_execution","command":"cat task.md",'
    r'"aggregated_output":"number $n\n","exit_code":0,"status":"completed"}}',
    '{"type":"item.completed","item":{"type":"agent_message","text":"<answer>$said</answer>"}}',
    '{"type":"turn.completed","usage":{"input_tokens":20,"output_tokens":5}}',
)
CODEX = f"""#!/bin/sh
n=$(sed -n 's/.*What is number \\([0-9]*\\)?.*/\\1/p' | head -n 1)
said="no idea"
[ $((n % 2)) = 0 ] && said="word$((n * 17))"
cat <<END
{chr(10).join(SESSION)}
END
"""
"""Knows the even numbers; its prompt comes by stdin."""

FILES = {
    "conversation.json",
    "target_user_prompt.txt",
    "codex_raw.txt",
    "codex_trace_summary.txt",
}


def words(here: Path, server: ModelServer, *more: str) -> list[str]:
    """A training of 16 cases by codex."""
    programs = here / "programs"
    programs.mkdir(parents=True)
    (programs / "codex").write_text(CODEX)
    (programs / "codex").chmod(0o755)
    given = world.write_searchqa(here, server.v1)
    rows = json.loads((here / "data.json").read_text())[:16]
    (here / "data.json").write_text(json.dumps(rows))
    given = [word for word in given if not word.startswith("model.target=")]
    return [
        *given,
        "model.target={provider: openai, model: m, base_url: 'http://127.0.0.1:1/v1'}",
        *("model.student_backend=codex_exec", "model.codex_exec_sandbox=danger-full-access"),
        *("train.num_epochs=1", "train.batch_size=4", "gradient.minibatch_size=1"),
        *("evaluation.gate=selection", "optimizer.use_slow_update=false"),
        *("optimizer.use_meta_skill=false", *more),
    ]


def environment(here: Path) -> dict[str, str]:
    path = f"{here / 'programs'}{os.pathsep}{os.defpath}"
    return {"PATH": path, "OPENAI_API_KEY": "sk-none", "OPENAI_COMPATIBLE_API_KEY": "none"}


def read(path: Path) -> Any:
    return json.loads(path.read_text())


def exported(out: Path) -> dict[str, bytes]:
    """What `full` adds, by name."""
    found = [*out.rglob("predictions/**/*"), *out.rglob("patches/minibatch_*_*.json")]
    return {str(path.relative_to(out)): path.read_bytes() for path in found if path.is_file()}


def killed_behind_a_step(process: "subprocess.Popen[str]", out: Path) -> None:
    deadline = time.monotonic() + killing.TIMEOUT_SECONDS
    history = out / "history.json"  # written last, and whole
    while not history.exists() or not read(history):
        assert process.poll() is None and time.monotonic() < deadline
        time.sleep(0.002)
    process.send_signal(signal.SIGKILL)
    _, told = process.communicate(timeout=killing.TIMEOUT_SECONDS)
    assert process.returncode == -signal.SIGKILL, told


def test_a_training_by_codex_leaves_the_files_of_every_minibatch_and_rollout(
    here: Path, monkeypatch: pytest.MonkeyPatch
):
    with ModelServer(world.searchqa_answer) as server:
        given = words(here, server, "env.exports=full")
        for name, value in environment(here).items():
            monkeypatch.setenv(name, value)
        called = kept(*given)
    assert called.code == 0, called.stderr
    out = here / "out"
    (run,) = (here / ".kept/runs").iterdir()
    with Run(run) as opened:
        jobs = [job for _, job, _ in opened.rollouts()]
    assert len([*out.rglob("conversation.json")]) == len(jobs), "each has a folder of its own"
    steps = sorted((out / "steps").iterdir())
    assert len(steps) == 2
    for step in steps:
        folders = [*(step / "rollout/predictions").iterdir()]
        failed = {path.name for path in folders if int(path.name[1:]) % 2}
        assert len(folders) == 4 and all(names(path) == FILES for path in folders)
        for kind, cases in (("fail", failed), ("succ", {p.name for p in folders} - failed)):
            patches = [step / f"patches/minibatch_{kind}_{n:03}.json" for n in range(len(cases))]
            assert {one for path in patches for one in read(path)["cases"]} == cases
            assert all("patch" in read(path) for path in patches)
            assert [*map(read, patches)] == (
                read(step / f"patches/minibatch_{kind}.json") if cases else []
            )
    looked_at(steps[0] / "rollout/predictions")
    assert {path.name for path in (out / "selection_eval_baseline/predictions").iterdir()}
    assert [*out.glob("steps/*/selection_eval/predictions/*/codex_raw.txt")]


def names(folder: Path) -> set[str]:
    return {path.name for path in folder.iterdir()}


def looked_at(predictions: Path) -> None:
    """Every file of one rollout holds what codex was asked, did and said."""
    folder = next(path for path in predictions.iterdir() if int(path.name[1:]) % 2)
    n = folder.name[1:]
    assert f"What is number {n}?" in (folder / "target_user_prompt.txt").read_text()
    raw = (folder / "codex_raw.txt").read_text().splitlines()
    assert [json.loads(line)["type"] for line in raw[:2]] == ["thread.started", "turn.started"]
    assert len(raw) == 5 and f"number {n}" in raw[2]
    assert "[1] tool: $ cat task.md" in (folder / "codex_trace_summary.txt").read_text()
    used, said, *judged = read(folder / "conversation.json")
    wanted = {"type": "tool_call", "step": 1, "cmd": "cat task.md", "obs": f"number {n}"}
    assert used == wanted
    assert (said["type"], said["turn"], said["content"]) == (
        "message",
        1,
        "<answer>no idea</answer>",
    )
    assert [one["role"] for one in judged] == ["system"]
    assert "`no idea` is not the answer" in judged[0]["content"]


def test_a_killed_training_writes_the_same_files_when_it_is_resumed(tmp_path: Path):
    with ModelServer(world.searchqa_answer) as server:
        whole, cut = tmp_path / "whole", tmp_path / "cut"
        given = words(whole, server, "env.exports=full", "env.out_root=.kept/out")
        process = killing.kept(whole, *given, **environment(whole))
        told = process.communicate(timeout=killing.TIMEOUT_SECONDS)
        assert process.returncode == 0, told
        given = words(cut, server, "env.exports=full")
        out = cut / "out"
        killed_behind_a_step(killing.kept(cut, *given, **environment(cut)), out)
        half = exported(out)
        victim, spoiled = sorted(half)[:2]
        (out / victim).unlink()
        (out / spoiled).write_bytes(b"{")
        process = killing.kept(cut, "resume", "-q", **environment(cut))
        told = process.communicate(timeout=killing.TIMEOUT_SECONDS)
        assert process.returncode == 0, told
    wanted = exported(whole / ".kept/out")
    assert exported(out) == wanted and half.items() < wanted.items()
    assert not [*out.rglob(".*.new")], "each file is written whole"
    assert {modes(path) for path in (whole / ".kept/out").rglob("*")} == {"600", "drwx"}
    assert not {modes(path) for path in out.rglob("*")} & {"600", "drwx"}


def modes(path: Path) -> str:
    mode = path.lstat().st_mode
    return stat.filemode(mode)[:4] if path.is_dir() and not mode & 0o077 else f"{mode & 0o777:o}"


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("exports: everything\n", "exports: the text `everything`, where `brief` or `full`"),
        ("env: {exports: yes}\n", "exports: the text `yes`, where `brief` or `full`"),
        ("train: {exports: full}\n", "train.exports: unknown key"),
        ("train: {exports: full}\n", "did you mean `env.exports`?"),
    ],
)
def test_exports_that_cannot_be_meant_are_refused_with_their_line(here: Path, text: str, told: str):
    (here / "skill.yaml").write_text(text)
    called = kept("train", "--config", "skill.yaml", "--dry-run")
    assert called.code == 2 and told in called.stderr, called.stderr
    assert "skill.yaml:1" in called.stderr


def test_exports_are_a_key_of_env_a_key_alone_and_a_flag(tmp_path: Path):
    (tmp_path / "alone.yaml").write_text("exports: full\nenv: {name: searchqa}\n")
    (tmp_path / "env.yaml").write_text("env: {name: searchqa, exports: full}\n")
    (tmp_path / "none.yaml").write_text("env: {name: searchqa}\n")
    flags = flags_of(["--exports", "full"])
    assert not flags.problems
    for name, given in (("alone", ()), ("env", ()), ("none", flags.found)):
        assert sound_skill(tmp_path / f"{name}.yaml", given).env.exports == "full"
    assert sound_skill(tmp_path / "none.yaml").env.exports == "brief"
