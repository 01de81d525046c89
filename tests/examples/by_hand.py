"""An example run by Kept, and its candidates scored again by calling its two commands by hand."""

import json
import os
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kept.store.reader import Run
from kept.ui.report.json import as_json
from tests.ui.cli.tasks import kept

EXAMPLES = Path(__file__).parent.parent.parent / "examples"


@dataclass(frozen=True)
class Ran:
    """An example that was run."""

    folder: Path
    told: dict[str, Any]
    """Its report as a document."""
    run: Run

    @property
    def closed(self) -> list[dict[str, Any]]:
        """The steps that proposed something."""
        return [step for step in self.told["closed"] if step["candidate"]]

    def verdicts(self) -> list[tuple[str, str]]:
        return [(step["why"].rpartition("/")[2], step["verdict"]) for step in self.closed]

    def by_hand(self, candidate: str, scratch: Path) -> dict[str, float]:
        """The measures of a candidate, by nothing but the example's files and a shell."""
        tree = scratch / candidate
        shutil.copytree(self.folder, tree, ignore=shutil.ignore_patterns(".kept", "work"))
        for path, text in self.run.candidate(candidate).texts.items():
            (tree / path).write_text(text, encoding="utf-8")
        output = scratch / f"{candidate}-output"
        output.mkdir()
        path = os.pathsep.join((str(Path(sys.executable).parent), os.defpath))
        env = {"PATH": path, "KEPT_OUTPUT": str(output)}
        said = ""
        spec = self.run.settings.spec
        for part in (spec.runner, spec.scorer):
            said = subprocess.run(
                str(part["command"]), shell=True, cwd=tree, env=env, check=True, capture_output=True
            ).stdout.decode()
        printed = json.loads(said)
        return {**printed.get("metrics", {}), **printed}


def run_example(name: str, here: Path) -> Ran:
    """Copy an example to a folder of its own and run it there."""
    folder = here / name
    shutil.copytree(EXAMPLES / name, folder)
    before = {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}
    headline = kept("optimize", str(folder), "--json", "--set", "width=1").json
    assert {path: path.read_bytes() for path in before} == before, "sources are never edited"
    run = Run(Path(headline["folder"]))
    return Ran(folder, as_json(run), run)


def assert_report_agrees(ran: Ran, scratch: Path) -> None:
    """Seed and best, scored again by hand, are what the report says they are."""
    metric = ran.told["metric"]
    for side in ("seed", "best"):
        again = ran.by_hand(ran.told[side]["candidate"], scratch)
        assert abs(again[metric] - ran.told[side]["value"]) < 1e-12
