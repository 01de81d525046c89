"""docs/reference/public.md names what the code makes public: all of it, and nothing else."""

import ast
import json
import re
from importlib import import_module
from pathlib import Path

import pytest

from kept.core.event import SCHEMA
from kept.ui.cli._output import FORMAT, document

ROOT = Path(__file__).parent.parent
PAGE = ROOT / "docs" / "reference" / "public.md"
SOURCE = ROOT / "src" / "kept"


def section(title: str) -> str:
    """The text of one section of the page."""
    return re.split(r"^## .*\n", PAGE.read_text(encoding="utf-8"), flags=re.M)[
        titles().index(title) + 1
    ]


def titles() -> list[str]:
    return re.findall(r"^## (.*)$", PAGE.read_text(encoding="utf-8"), flags=re.M)


def code(text: str) -> list[str]:
    return re.findall(r"`([^`]+)`", text)


def names_in(title: str) -> list[str]:
    """The names of the one paragraph that lists names alone."""
    paragraphs = [one for one in section(title).strip().split("\n\n") if one.startswith("`")]
    return code(paragraphs[0])


@pytest.mark.parametrize("module", ["kept", "kept.extend", "kept.testing"])
def test_the_page_names_what_a_module_exports(module: str):
    exported = import_module(module).__all__
    assert names_in(module) == sorted(exported)
    absent = [name for name in exported if not hasattr(import_module(module), name)]
    assert absent == []


def test_the_page_names_what_the_server_of_models_exports():
    assert code(section("kept.testing"))[-len(server()) - 1 :] == ["kept.testing.server", *server()]


def server() -> list[str]:
    return sorted(import_module("kept.testing.server").__all__)


def functions(path: Path) -> list[str]:
    """The public functions that a module defines."""
    body = ast.parse(path.read_text(encoding="utf-8")).body
    named = [node.name for node in body if isinstance(node, ast.FunctionDef)]
    return sorted(name for name in named if not name.startswith("_"))


def test_the_page_names_every_adapter_and_its_calls():
    rows = [code(line) for line in section("kept.adapters").splitlines() if line.startswith("| `")]
    told = {module: sorted(names) for module, *names in rows}
    packages = sorted(path.parent.name for path in (SOURCE / "adapters").glob("*/__init__.py"))
    assert sorted(told) == sorted(f"kept.adapters.{name}" for name in (*packages, *ALONE))
    for name in packages:
        module = f"kept.adapters.{name}"
        assert told[module] == sorted(import_module(module).__all__)
    for name in ALONE:
        calls = set(told[f"kept.adapters.{name}"])
        assert calls <= {*functions(SOURCE / "adapters" / f"{name}.py")}


ALONE = ("promptfoo", "pytest")
"""Adapters of one module, which has no `__all__`."""


def groups() -> set[str]:
    """The groups of entry points that the source names."""
    found: set[str] = set()
    for path in SOURCE.rglob("*.py"):
        text = path.read_text(encoding="utf-8")
        found.update(re.findall(r"Registry\(\s*\"(kept\.\w+)\"", text))
        found.update(re.findall(r"^GROUP = \"(kept\.\w+)\"", text, flags=re.M))
    return found


def test_the_page_names_every_group_of_entry_points():
    told = {line.split("`")[1] for line in section("Entry points").splitlines() if "| `" in line}
    # how `cli` finds the pages of Kept itself
    assert told == groups() - {"kept.pages"}
    assert len(told) >= 4


def test_every_json_object_says_its_format(capsys: pytest.CaptureFixture[str]):
    document({"run": "a"})
    assert json.loads(capsys.readouterr().out) == {"format": FORMAT, "run": "a"}
    assert f'`"format": {FORMAT}`' in section("JSON")


def test_the_page_names_the_version_of_the_journal():
    assert f"version {SCHEMA}." in section("The journal")


def test_commands_and_keys_have_pages_of_their_own():
    linked = re.findall(r"\]\(([^)#]+)", section("Commands") + section("Specs"))
    assert linked == ["cli.md", "task.md", "agent-yaml.md", "optimizer.md", "skill-config.md"]
    assert all((PAGE.parent / name).is_file() for name in linked)
