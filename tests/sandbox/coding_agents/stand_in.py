"""A program that says what a real CLI once said, for tests of all that is round a CLI.

It stands where the CLI would be found, does what a test has it do in its workspace, and then tells
the recorded events.
"""

import os
from pathlib import Path

import pytest

from kept.models.providers import ModelConfig
from kept.sandbox.coding_agents.run import CLIS, Harness
from kept.sandbox.command import Command, View
from kept.sandbox.workspace import Scratch

RECORDED = Path(__file__).parent / "recorded"
KEY = "sk-canary-0123456789abcdef"


def put(folder: Path, line: str, monkeypatch: pytest.MonkeyPatch, name: str = "codex_exec") -> None:
    """Have a program found by a CLI's name; it has its prompt on stdin."""
    cli = CLIS[name]
    programs = folder / "programs"
    programs.mkdir(parents=True, exist_ok=True)
    recorded = RECORDED / f"{cli.short}.jsonl"
    path = programs / cli.program
    path.write_text(f"#!/bin/sh\n{line}\ncat {recorded}\n")
    path.chmod(0o755)
    if str(programs) not in os.environ["PATH"]:  # noqa: TID251 # a test of commands
        monkeypatch.setenv("PATH", f"{programs}{os.pathsep}{os.environ['PATH']}")  # noqa: TID251 # likewise
    monkeypatch.setenv("OPENAI_API_KEY", KEY)


def harness(folder: Path, seconds: float = 20) -> Harness:
    """One that finds the program of codex; without walls, which would hide it."""
    config = ModelConfig(provider="openai", model="m", base_url="http://127.0.0.1:1/v1")
    command = Command("", folder, seconds, view=View(folder, bare=True, walls=False))
    return Harness(CLIS["codex_exec"], config, command, Scratch())
