"""Colours, control characters and tables: made for a terminal, plain elsewhere."""

import io
import sys
from pathlib import Path

import pytest

from kept.models.prompts import PLACEHOLDERS
from kept.ui.cli import _output
from kept.ui.cli.main import cli
from tests.ui.cli.tasks import kept, write_task


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def watch(monkeypatch: pytest.MonkeyPatch, columns: int = 40) -> Terminal:
    """Have stdout be a terminal, until the test ends."""
    terminal = Terminal()
    monkeypatch.setattr(sys, "stdout", terminal)
    monkeypatch.setenv("COLUMNS", str(columns))
    return terminal


def test_a_terminal_gets_colours_unless_they_are_forbidden(monkeypatch: pytest.MonkeyPatch):
    watch(monkeypatch)
    assert _output.style("x", fg="red") == "\x1b[31mx\x1b[0m"
    assert _output.coloured_diff("+a\n") == "\x1b[32m+a\n\x1b[0m"
    monkeypatch.setenv("NO_COLOR", "1")
    assert _output.style("x", fg="red") == "x"
    assert _output.coloured_diff("+a\n") == "+a\n"


def test_a_file_gets_no_colours(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(sys, "stdout", io.StringIO())
    assert _output.style("x", fg="red") == "x"
    assert _output.coloured_diff("+\x1b[0m\n") == "+\x1b[0m\n"


def test_text_of_unknown_origin_plays_no_tricks_on_a_terminal(monkeypatch: pytest.MonkeyPatch):
    watch(monkeypatch)
    assert _output.visible("a\x1b]0;title\x07\n\tb\r") == "a�]0;title�\n\tb�"


def test_a_table_fits_the_terminal(monkeypatch: pytest.MonkeyPatch):
    watch(monkeypatch)
    monkeypatch.setenv("NO_COLOR", "1")
    lines = _output.table(("n", "text"), [("1", "x" * 100), ("10", "y")], right=("n",)).splitlines()
    assert lines == [" n  text", f" 1  {'x' * 35}…", "10  y"]


def test_the_widest_columns_are_cut_and_an_id_never(monkeypatch: pytest.MonkeyPatch):
    watch(monkeypatch)
    monkeypatch.setenv("NO_COLOR", "1")
    row = ("20261115-233912", "w" * 30, "deep/in/the/tree/task.yaml", "ok")
    lines = _output.table(
        ("id", "words", "path", "is"), [row], whole=("id",), middle=("path",)
    ).splitlines()
    assert lines == [
        "id               words     path       is",
        "20261115-233912  wwwwwww…  dee….yaml  ok",
    ]


def test_a_file_gets_whole_cells(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(sys, "stdout", io.StringIO())
    monkeypatch.setenv("COLUMNS", "40")
    assert "x" * 100 in _output.table(("n", "text"), [("1", "x" * 100)])


LONG = "a_measure_with_a_very_long_name_indeed"


@pytest.mark.parametrize("columns", [60, 80, 100])
@pytest.mark.parametrize("args", [("runs",), ("show",), ("show", "--step", "3")])
def test_no_row_is_wider_than_the_terminal(
    args: tuple[str, ...], columns: int, here: Path, monkeypatch: pytest.MonkeyPatch
):
    spec = write_task(here / "in" / "a" / "folder" / "far" / "below" / "where" / "we" / "stand")
    spec.write_text(spec.read_text().replace("primary_metric: score", f"primary_metric: {LONG}"))
    score = spec.parent / "score.sh"
    score.write_text(score.read_text().replace('"score"', f'"{LONG}"'))
    monkeypatch.setenv("KEPT_HOME", str(here / ".kept"))
    assert kept("optimize", str(spec)).code == 0
    score.write_text("echo no JSON\n")
    assert kept("optimize", str(spec)).code == 3
    run = kept("runs", "--json").json[1]["id"]
    terminal = watch(monkeypatch, columns)
    monkeypatch.setenv("NO_COLOR", "1")
    with pytest.raises(SystemExit):
        cli.main([*args[:1], *([run] if args[0] == "show" else []), *args[1:]])
    lines = terminal.getvalue().splitlines()
    # what stands in pairs is prose, and wraps
    rows = lines if args == ("runs",) else lines[lines.index("") + 1 :]
    table = rows if args == ("runs",) else rows[rows.index("") + 1 :]
    assert len(table) > 2
    assert max(map(len, table)) <= columns


def test_placeholders_of_prompts_are_whole_on_a_narrow_terminal(monkeypatch: pytest.MonkeyPatch):
    terminal = watch(monkeypatch, 80)
    with pytest.raises(SystemExit):
        cli(["prompts", "list"])
    for name in ("edit", "judge"):
        assert all(f"{{{{kept.{one}}}}}" in terminal.getvalue() for one in PLACEHOLDERS[name])


def test_names_and_what_they_stand_for_never_run_together():
    told = _output.pairs([("attempt 10", "a"), ("iteration 12", "b"), ("best", "c")])
    assert told.splitlines() == ["attempt 10    a", "iteration 12  b", "best          c"]
    assert _output.pairs([("run", "x"), ("proposals", "y")]) == "run        x\nproposals  y"
