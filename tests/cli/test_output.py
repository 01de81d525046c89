"""Colours, control characters and tables: made for a terminal, plain elsewhere."""

import io
import sys

import pytest

from kept.cli import output


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def watch(monkeypatch: pytest.MonkeyPatch):
    """Have stdout be a terminal, until the test ends."""
    monkeypatch.setattr(sys, "stdout", Terminal())
    monkeypatch.setenv("COLUMNS", "40")


def test_a_terminal_gets_colours_unless_they_are_forbidden(monkeypatch: pytest.MonkeyPatch):
    watch(monkeypatch)
    assert output.style("x", fg="red") == "\x1b[31mx\x1b[0m"
    assert output.coloured_diff("+a\n") == "\x1b[32m+a\n\x1b[0m"
    monkeypatch.setenv("NO_COLOR", "1")
    assert output.style("x", fg="red") == "x"
    assert output.coloured_diff("+a\n") == "+a\n"


def test_a_file_gets_no_colours(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(sys, "stdout", io.StringIO())
    assert output.style("x", fg="red") == "x"
    assert output.coloured_diff("+\x1b[0m\n") == "+\x1b[0m\n"


def test_text_of_unknown_origin_plays_no_tricks_on_a_terminal(monkeypatch: pytest.MonkeyPatch):
    watch(monkeypatch)
    assert output.visible("a\x1b]0;title\x07\n\tb\r") == "a�]0;title�\n\tb�"


def test_a_table_fits_the_terminal(monkeypatch: pytest.MonkeyPatch):
    watch(monkeypatch)
    monkeypatch.setenv("NO_COLOR", "1")
    lines = output.table(("n", "text"), [("1", "x" * 100), ("10", "y")], right=("n",)).splitlines()
    assert lines == [" n  text", f" 1  {'x' * 35}…", "10  y"]
