"""Golden files: how they are made, read, written and compared."""

import difflib
import json
import re
from collections.abc import Iterator
from pathlib import Path

from kept import __version__
from kept.testing.server import ModelServer
from tests.golden.normal import dumped, golden_of
from tests.golden.scenarios import SCENARIOS
from tests.golden.stage import FrozenKept, Stage, stage

FOLDER = Path(__file__).parent
SHOWN = 120
"""Lines of a difference that are shown."""
BYTE_IDENTICAL = "fixed"
"""The scenario whose journal is compared byte by byte."""
SUFFIXES = {"values": "values.json", "words": "words.txt"}
JOURNALS = ("journal.jsonl", "rollouts.jsonl")


def make(kept: FrozenKept, name: str) -> dict[str, str]:
    """Run a scenario; the texts of its golden files by their names."""
    scenario = SCENARIOS[name]
    with ModelServer(scenario.replies) as server, stage(kept, server) as played:
        scenario.play(played)
        golden = golden_of(played)
        made = {
            f"{name}.{SUFFIXES['values']}": dumped(golden.values) + "\n",
            f"{name}.{SUFFIXES['words']}": "\n".join(golden.words) + "\n",
        }
        if name == BYTE_IDENTICAL:
            (run,) = played.runs()
            made |= {f"{name}.{file}": raw(run / file, played) for file in JOURNALS}
    return made


def raw(path: Path, played: Stage) -> str:
    """A file of a run byte for byte, but for the name of the folder and the version of Kept.

    Lines that name these have another checksum in every run. Paths have the same length in all
    runs, so offsets are the same.
    """
    lines = path.read_text(encoding="utf-8").splitlines(keepends=True)
    return "".join(_without_folder(line, str(played.folder)) for line in lines)


def _without_folder(line: str, folder: str) -> str:
    named = line.replace(folder, "<folder>").replace(f'"{__version__}"', '"<version>"')
    return line if named == line else re.sub(r'"crc":"\w+"', '"crc":"<crc>"', named, count=1)


def differences(name: str, made: str) -> list[str]:
    """How a text differs from the golden file of that name, as lines of a diff."""
    path = FOLDER / name
    golden = path.read_text(encoding="utf-8") if path.exists() else ""
    if golden == made:
        return []
    lines = difflib.unified_diff(
        [*_readable(name, golden)], [*_readable(name, made)], f"golden {name}", "now", lineterm=""
    )
    found = [*lines] or ["they differ in white space alone"]
    more = [f"... and {len(found) - SHOWN} more lines"] if len(found) > SHOWN else []
    return [*found[:SHOWN], *more]


def _readable(name: str, text: str) -> Iterator[str]:
    """Lines of a text; those of a journal one key a line."""
    for line in text.splitlines():
        if name.endswith(".jsonl"):
            yield from json.dumps(json.loads(line), ensure_ascii=False, indent=1).splitlines()
        else:
            yield line
