"""`kept doctor`: what works here, said without doing anything."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from kept.sandbox import abilities
from kept.sandbox.cgroup import Parents
from tests.cli.tasks import kept
from tests.harness.stand_in import put


def states(*names: str) -> dict[str, Any]:
    rows = kept("doctor", "--json").json["findings"]
    return {row["name"]: row for row in rows if not names or row["name"] in names}


def test_it_says_what_is_there_and_makes_nothing(here: Path):
    called = kept("doctor")
    assert called.code == 0
    names = ("kept", "python", "platform", "bwrap", "git", "runs", "disk")
    assert [name for name in names if not f"\n{called.stdout}".count(f"\n{name} ")] == []
    assert list(here.iterdir()) == []


def test_its_document_says_what_is_enforced():
    enforced = kept("doctor", "--json").json["enforced"]
    assert enforced["cpu, memory and file size"] is True
    assert enforced["network"] is abilities().walls


def test_without_bwrap_it_warns_names_what_is_not_enforced_and_still_exits_with_0(
    monkeypatch: pytest.MonkeyPatch,
):
    why_not = "no `bwrap` here"
    able = replace(abilities(), walls=False, overlay=False, groups=Parents(), why_not=why_not)
    monkeypatch.setattr("kept.sandbox.abilities", lambda: able)
    called = kept("doctor")
    assert called.code == 0
    assert "warning: does not work (no `bwrap` here); on Debian: apt-get install" in called.stdout
    assert "NOT enforced" in called.stdout


def test_a_home_that_cannot_be_is_a_problem(here: Path, monkeypatch: pytest.MonkeyPatch):
    (here / "file").touch()
    monkeypatch.setenv("KEPT_HOME", str(here / "file" / "inner"))
    called = kept("doctor")
    assert called.code == 2
    assert "problem: KEPT_HOME is" in called.stdout


def test_a_home_elsewhere_is_named(here: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("KEPT_HOME", str(here / "elsewhere"))
    assert states("runs")["runs"]["text"] == f"KEPT_HOME is {here / 'elsewhere'}, not yet made"


def test_what_a_model_on_this_machine_lacks_is_told_as_what_to_type(
    here: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("KEPT_CACHE", str(here / "none"))
    found = states("local/smollm2")["local/smollm2"]
    assert found["state"] == "ok"
    assert "`kept models pull smollm2`" in found["text"]


def test_it_names_the_agents_that_are_here_and_how_to_have_the_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("PATH", "/usr/bin:/bin")
    put(tmp_path, ":", monkeypatch, "codex_exec")
    found = states("codex_exec", "opencode_exec")
    assert found["codex_exec"]["text"] == str(tmp_path.resolve() / "programs" / "codex")
    assert found["opencode_exec"]["text"] == "not here: `npm install -g opencode-ai`"
