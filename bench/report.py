"""Tables and the two files of results: one to read, one to compute with."""

import json
import os
import platform
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from bench import peer
from bench.harness import ROOT
from kept import __version__

RESULTS = ROOT / "bench" / "results"


@dataclass(frozen=True, slots=True)
class Table:
    """One comparison."""

    title: str
    head: Sequence[str]
    rows: Sequence[Sequence[str]]
    note: str = ""

    def __str__(self) -> str:
        widths = [
            max(len(row[at]) for row in (self.head, *self.rows)) for at in range(len(self.head))
        ]
        lines = [
            "| "
            + " | ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True))
            + " |"
            for row in (self.head, ["-" * width for width in widths], *self.rows)
        ]
        note = f"\n\n{self.note}" if self.note else ""
        return f"## {self.title}\n\n" + "\n".join(lines) + note


@dataclass(frozen=True, slots=True)
class Goal:
    """What was meant to be reached, and whether it was."""

    what: str
    measured: str
    met: bool | None
    """None when it was not measured."""

    def row(self) -> tuple[str, str, str]:
        met = "not measured" if self.met is None else "yes" if self.met else "NO"
        return self.what, self.measured, met


def goals_table(goals: Sequence[Goal]) -> Table:
    return Table("Goals", ("goal", "measured", "met"), [goal.row() for goal in goals])


@dataclass(frozen=True, slots=True)
class Report:
    """What a bench found."""

    name: str
    head: str
    tables: Sequence[Table]
    raw: Mapping[str, object]


def show(report: Report, folder: Path | None, **more: str) -> None:
    """The tables on the screen and, where a folder is given, both files in it."""
    facts = conditions() | more
    made = "\n".join(f"* {key}: {value}" for key, value in facts.items())
    text = "\n\n".join([f"# {report.head}", made, *map(str, report.tables)]) + "\n"
    print(text)
    if folder is not None:
        folder.mkdir(parents=True, exist_ok=True)
        (folder / f"{report.name}.md").write_text(text, encoding="utf-8")
        whole = json.dumps({"conditions": facts, **report.raw}, indent=1)
        (folder / f"{report.name}.json").write_text(whole + "\n", encoding="utf-8")


def conditions() -> dict[str, str]:
    """Under which the figures were taken."""
    started = Path(sys.argv[0]).absolute().with_suffix("")
    inside = started.relative_to(ROOT).parts if started.is_relative_to(ROOT) else (started.stem,)
    module = ".".join(part for part in inside if part != "__main__")
    arguments = " ".join(sys.argv[1:])
    load = ", ".join(f"{figure:.1f}" for figure in os.getloadavg())
    return {
        "command": f".venv/bin/python -m {module} {arguments}".rstrip(),
        "date": time.strftime("%Y-%m-%d %H:%M %z"),
        "machine": f"{_processor()}, {os.cpu_count()} cores, {platform.platform(terse=True)}",
        "load average at the end": load,
        "versions": f"kept {__version__}, Python {platform.python_version()}, gepa {peer.VERSION}",
    }


def _processor() -> str:
    information = Path("/proc/cpuinfo")
    if information.exists():
        for line in information.read_text().splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()
