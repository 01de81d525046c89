"""What a golden run left, as plain data and as words, without what differs from run to run."""

import hashlib
import json
import re
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any, cast

from kept import __version__
from tests.golden.stage import Called, Stage

POSITIONS = {"crc", "at", "rollouts_at"}
"""Keys of lines of a journal that say where they lie and what they hash to. The fixture of the
fixed run has them; the values do not, so that a renamed key changes nothing but its name."""
RANGES = {"rollouts"}
"""Keys whose value is a range of bytes where it is a list."""
MACHINE = {"not_enforced"}
"""Keys whose value depends on the machine: limits that its kernel cannot set."""
FINGERPRINTS = {"inputs"}
"""Keys of an object with hashes of what a run depends on, paths of this machine among it. Its names
are compared here, its hashes in the fixture of the fixed run."""
REPLIES = {"call"}
"""Kinds of lines of rollouts.jsonl that hold replies. Requests are compared at the server."""
RUN_ID = re.compile(
    r"\d{8}-\d{6}-[0-9a-f]{8}(?:-\d+)?"  # of a run
    r"|\d{4}-\d\d-\d\d_\d\d-\d\d-\d\d_[0-9a-f]{8}"  # of an agent run
)
MOST_LINES = 400
"""Lines of a file above which only its hash is kept."""
MOST_ROWS = 120
"""Rollouts of a run that are shown; of the others there is a hash."""
DIGITS = 9
"""Significant digits of a number; the last ones differ between processors."""
REPORTS = (
    *("report.md", "report.xml", "results/optimizer/*/report.md"),
    *(".kept/runs/<run ?>/report.md", ".kept/optimizer/agents/*.yaml"),
)
"""Files that people and models read. Others of these names are what an agent delivers."""
APART = ("*/journal.jsonl", "*/rollouts.jsonl", "*/best/*", "*/.best/*")
"""Files of a run that are compared as part of the run."""
NOT_FILES = (
    *APART,
    *(".home/*", ".kept/.gitignore", ".kept/index.db*", "*.idx", "*.pack", "*/lock"),
)
"""Also caches, and what others hold as well, by offsets or in pages of SQLite."""
PROSE = "<words>"
"""Stands in the values for a text that a person or a model reads."""


@dataclass
class Normal:
    """Replaces in texts what differs from run to run; remembers the ids of runs in order."""

    folder: str
    port: int
    ids: dict[str, str] = field(default_factory=dict[str, str])

    def text(self, text: str) -> str:
        """A text with names in place of paths, ports, run ids and the version."""
        text = text.replace(self.folder, "<folder>").replace(f":{self.port}", ":<port>")
        text = re.sub(r"/[^\s\"']*/src/kept/[\w/]*?configs/", "<kept>/configs/", text)
        text = re.sub(rf"(?<![\d.]){re.escape(__version__)}(?![\d.])", "<version>", text)
        return RUN_ID.sub(self._name_of_run, text)

    def _field(self, key: str, value: Any, prose: Callable[[str, str], None], path: str) -> Any:
        if key in FINGERPRINTS and isinstance(value, dict):
            return sorted(map(self.text, cast("dict[str, Any]", value)))
        return self.data(value, prose, f"{path}/{key}")

    def _name_of_run(self, found: re.Match[str]) -> str:
        return self.ids.setdefault(found[0], f"<run {len(self.ids) + 1}>")

    def data(self, value: Any, prose: Callable[[str, str], None], path: str = "") -> Any:
        """Plain data with texts normalised, numbers rounded and prose handed over."""
        if isinstance(value, dict):
            found = cast("dict[str, Any]", value)
            return {
                self.text(key): self._field(key, inner, prose, path)
                for key, inner in found.items()
                if not _is_left_out(key, inner)
            }
        if isinstance(value, list):
            rows = cast("list[Any]", value)
            return [self.data(inner, prose, f"{path}/{n}") for n, inner in enumerate(rows)]
        if isinstance(value, float):
            return float(f"{value:.{DIGITS}g}")
        if not isinstance(value, str):
            return value
        text = self.text(value)
        if not re.search(r"\s", text.replace("<run ", "<run")):
            return text
        prose(self.text(path), text)
        return PROSE


def _is_left_out(key: str, value: Any) -> bool:
    return key in POSITIONS | MACHINE or (key in RANGES and isinstance(value, list))


@dataclass
class Golden:
    """The two texts of one golden run."""

    values: dict[str, Any]
    words: list[str]


def golden_of(stage: Stage) -> Golden:
    """All that is compared of a run."""
    normal = Normal(str(stage.folder), stage.server.port)
    golden = Golden({}, [])
    golden.values["commands"] = [_command(called, normal, golden.words) for called in stage.calls]
    golden.values["files"] = {
        name: _file(path, name, normal, golden.words)
        for path in stage.made()
        if not _is_any(name := normal.text(str(path.relative_to(stage.folder))), NOT_FILES)
    }
    golden.values["runs"] = [_run(folder, normal, golden.words) for folder in stage.runs()]
    golden.values["requests"] = _requests(stage, normal, golden.words)
    return golden


def _command(called: Called, normal: Normal, words: list[str]) -> dict[str, Any]:
    """Exit code and JSON of a command; its output goes to the words."""
    line = normal.text(" ".join(("kept", *called.words)))
    words += [f"$ {line}"]
    told: dict[str, Any] = {"command": line, "exit": called.code}
    try:
        told["json"] = normal.data(
            json.loads(called.out), lambda at, text: words.append(f"{at}: {text}")
        )
    except ValueError:
        words += normal.text(called.out).splitlines()
    if called.err:
        words += ["--- stderr", *normal.text(called.err).splitlines()]
    words.append("")
    return told


def _run(folder: Path, normal: Normal, words: list[str]) -> dict[str, Any]:
    """Journal, rollouts and best files of a run."""
    rollouts = [row for row in _rows(folder / "rollouts.jsonl") if row.get("kind") not in REPLIES]
    best = sorted(path for path in (folder / "best").rglob("*") if path.is_file())
    return {
        "id": normal.text(folder.name),
        "journal": _data(_rows(folder / "journal.jsonl"), "journal.jsonl", normal, words),
        "rollouts": _shortened(_data(rollouts, "rollouts.jsonl", normal, words)),
        "best": {str(path.relative_to(folder)): _lines(path, normal) for path in best},
    }


def _rows(path: Path) -> list[dict[str, Any]]:
    lines = path.read_text(encoding="utf-8").splitlines() if path.exists() else []
    return [json.loads(line) for line in lines]


def _data(value: Any, name: str, normal: Normal, words: list[str]) -> Any:
    """Plain data of a file; of its prose the words have a hash, since it is long."""
    found: list[str] = []
    data = normal.data(value, lambda at, text: found.append(text))
    if found:
        words.append(f"{len(found)} texts in {name}: sha256 {_hash(found)}")
    return data


def _is_any(name: str, patterns: Iterable[str]) -> bool:
    return any(fnmatchcase(name, pattern) for pattern in patterns)


def _file(path: Path, name: str, normal: Normal, words: list[str]) -> Any:
    """A file that was made or changed: data, lines or a hash."""
    if path.suffix == ".json":
        return _data(json.loads(path.read_text(encoding="utf-8")), name, normal, words)
    if path.name == "exports.jsonl":
        # the files themselves are compared; their digests hold paths and ids of runs
        return [normal.text(row.get("path", "")) for row in _rows(path)]
    if path.suffix == ".jsonl":
        return [*map(Row, _data(_rows(path), name, normal, words))]
    if _is_any(name, REPORTS):
        words += [f"=== {name}", *normal.text(path.read_text(encoding="utf-8")).splitlines(), ""]
        return PROSE
    return _lines(path, normal)


def _lines(path: Path, normal: Normal) -> Any:
    content = path.read_bytes()
    try:
        lines = normal.text(content.decode()).splitlines()
    except UnicodeDecodeError:
        return {"sha256": hashlib.sha256(content).hexdigest()}
    return lines if len(lines) <= MOST_LINES else {"lines": len(lines), "sha256": _hash(lines)}


class Row(dict[str, Any]):
    """An object that is written in one line, however long: there are many of its kind."""


def _shortened(rows: list[dict[str, Any]]) -> list[Row]:
    """The first rows, and a hash of all others."""
    rest = rows[MOST_ROWS:]
    # of the values alone: a renamed key does not change it
    last = [Row(rows=len(rest), sha256=_hash(_leaves(rest)))] if rest else []
    return [*map(Row, rows[:MOST_ROWS]), *last]


def _leaves(value: Any) -> Iterator[str]:
    """The values of an object or list, at any depth, without keys."""
    if isinstance(value, dict):
        value = [*cast("dict[str, Any]", value).values()]
    if isinstance(value, list):
        for inner in cast("list[Any]", value):
            yield from _leaves(inner)
    else:
        yield json.dumps(value)


def _requests(stage: Stage, normal: Normal, words: list[str]) -> dict[str, int]:
    """How often each model was asked; what it was asked has a hash among the words."""
    texts: defaultdict[str, list[str]] = defaultdict(list)
    for seen in stage.server.log:
        texts[seen.model].append(normal.text(json.dumps(seen.body, sort_keys=True)))
    for model, bodies in sorted(texts.items()):
        words.append(f"{len(bodies)} requests to {model}: sha256 {_hash(sorted(bodies))}")
    return dict(sorted(Counter({model: len(bodies) for model, bodies in texts.items()}).items()))


def _hash(lines: Iterable[str]) -> str:
    return hashlib.sha256("\n".join(lines).encode()).hexdigest()


def dumped(value: Any, indent: int = 0, width: int = 100) -> str:
    """JSON with a line for each short object or list, so that a diff is easy to read."""
    short = json.dumps(value, ensure_ascii=False)
    is_short = isinstance(value, Row) or len(short) + indent <= width
    if not isinstance(value, dict | list) or not value or is_short:
        return short
    inner = " " * (indent + 1)
    if isinstance(value, dict):
        items = [
            f"{inner}{json.dumps(key, ensure_ascii=False)}: {dumped(item, indent + 1, width)}"
            for key, item in cast("dict[str, Any]", value).items()
        ]
        return "{\n" + ",\n".join(items) + "\n" + " " * indent + "}"
    rows = [f"{inner}{dumped(item, indent + 1, width)}" for item in cast("list[Any]", value)]
    return "[\n" + ",\n".join(rows) + "\n" + " " * indent + "]"
