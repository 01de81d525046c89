"""Reads the code blocks of a Markdown page and runs them, in order, in one scratch folder.

A comment on the line above a fence changes what happens to the block:
`<!-- file: NAME -->` writes it to that file, `<!-- exit: N -->` says how its last command ends,
`<!-- not run: REASON -->` leaves it out.
"""

import json
import os
import re
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from ruamel.yaml import YAML, YAMLError

COMMAND_SECONDS = 600
"""Far more than any takes, on a machine that has other things to do."""
# Shown, never run. A block in a language that no table here names is a problem, so none slips by.
PROSE = frozenset({"text", "markdown", "diff", "mermaid", "html", "jinja", "jsonl", "csv"})


class Note(NamedTuple):
    kind: str
    value: str


@dataclass(frozen=True, kw_only=True)
class Block:
    place: str
    """`page:line` of the opening fence."""
    language: str
    text: str
    note: Note | None


class DocsError(AssertionError):
    """A block that does not do what the page says."""


FENCE = re.compile(r"^(?P<indent>\s*)(?P<ticks>`{3,})\s*(?P<language>[\w+-]*)[^`]*$")
NOTE = re.compile(r"^\s*<!--\s*(?P<kind>file|exit|not run)\b\s*:?\s*(?P<value>.*?)\s*-->\s*$")


def read_blocks(page: str, text: str) -> list[Block]:
    blocks: list[Block] = []
    lines = text.splitlines()
    number = 0
    while number < len(lines):
        fence = FENCE.match(lines[number])
        number += 1
        if fence is None:
            continue
        start = number
        while number < len(lines) and not closes(lines[number], fence["ticks"]):
            number += 1
        if number == len(lines):
            raise DocsError(f"{page}:{start}: the block never ends")
        indent = len(fence["indent"])
        inside = [
            line[indent:] if not line[:indent].strip() else line for line in lines[start:number]
        ]
        note = NOTE.match(lines[start - 2]) if start > 1 else None
        blocks.append(
            Block(
                place=f"{page}:{start}",
                language=fence["language"].lower(),
                text="".join(f"{line}\n" for line in inside),
                note=Note(note["kind"], note["value"]) if note else None,
            )
        )
        number += 1
    return blocks


def closes(line: str, ticks: str) -> bool:
    bare = line.strip()
    return bare.startswith(ticks) and not bare.strip("`")


class Command(NamedTuple):
    line: str
    expected: str | None
    """The output shown below it; None when none is shown."""


def read_commands(text: str) -> list[Command]:
    """The `$ ` lines with the output below each; a block without any is one script."""
    lines = text.splitlines()
    if not any(line.startswith("$ ") for line in lines):
        return [Command(text, None)]
    if not lines[0].startswith("$ "):
        raise DocsError("the output at the top has no `$ ` line above it")
    commands: list[Command] = []
    pending = list(reversed(lines))
    while pending:
        line = pending.pop().removeprefix("$ ")
        while line.endswith("\\") and pending:
            line += "\n" + pending.pop().removeprefix("> ")
        shown: list[str] = []
        while pending and not pending[-1].startswith("$ "):
            shown.append(pending.pop())
        output = "\n".join(shown)
        commands.append(Command(line, output if output.strip() else None))
    return commands


# What differs from one run to the next, and what stands for it on both sides of the comparison.
VARYING = (
    (re.compile(r"(?:/tmp|/var/folders|/home/\w+|/Users/\w+|/root|~)(?:/[\w.@+-]+)+/?"), "<path>"),
    (re.compile(r"\b\d{8}[T-]?\d{4,6}Z?-[0-9a-f]{8}\b"), "<run>"),
    (re.compile(r"\b\d{4}-\d\d-\d\d(?:[T ]\d\d:\d\d(?::\d\d(?:\.\d+)?)?Z?)?"), "<time>"),
    (re.compile(r"\b\d?\d:\d\d(?::\d\d(?:\.\d+)?)?\b"), "<time>"),
    (re.compile(r"\b\d+(?:\.\d+)?\s?(?:ms|min|m|h|s)\b(?:\s?\d+\s?s\b)?"), "<time>"),
    (re.compile(r"[─━═-]{3,}"), "---"),
    # A narrower time widens the gap before the next column.
    (re.compile(r"[ \t]{2,}"), " "),
)


def normalise(text: str) -> str:
    for pattern, stand_in in VARYING:
        text = pattern.sub(stand_in, text)
    return "\n".join(line.strip() for line in text.strip().splitlines())


def matches(expected: str, actual: str) -> bool:
    """Whether the output is as shown; `...` is anything in its line, or any lines when alone."""
    pattern = ""
    for line in normalise(expected).splitlines():
        if line == "...":
            pattern += r"(?:.*\n)*"
        else:
            pattern += r".*".join(map(re.escape, line.split("..."))) + r"\n"
    return re.fullmatch(pattern, normalise(actual) + "\n") is not None


class Scratch:
    """A folder where a page's blocks run one after another, each finding what the earlier left."""

    def __init__(
        self,
        folder: Path,
        examples: Path | None = None,
        packages: Path | None = None,
        weights: Path | None = None,
    ) -> None:
        self.packages = packages
        self.cwd = folder / "work"
        self.cwd.mkdir(parents=True)
        self.home = folder / "home"
        self.home.mkdir()
        self.bin = folder / "bin"
        self.bin.mkdir()
        if weights is not None:
            models = self.home / ".cache" / "kept" / "models"
            models.mkdir(parents=True)
            (models / weights.name).symlink_to(weights)
        if examples is not None and examples.is_dir():
            shutil.copytree(examples, self.cwd / "examples")

    def run_page(self, page: str, text: str) -> None:
        for block in read_blocks(page, text):
            try:
                self.run_block(block)
            except DocsError as error:
                raise DocsError(f"{block.place}: {error}") from None

    def run_block(self, block: Block) -> None:
        exit_code = 0
        match block.note:
            case Note("file", name):
                self.write(name, block.text)
                return
            case Note("not run", reason):
                if not reason:
                    raise DocsError("`not run` without a reason")
                return
            case Note("exit", code):
                exit_code = int(code)
            case None:
                pass
            case _:
                raise DocsError(f"`{block.note.kind}` means nothing")
        if block.language in PARSERS:
            PARSERS[block.language](block.text)
        elif block.language == "python":
            self.run_python(block.text, exit_code)
        elif block.language in {"bash", "console", "sh"}:
            self.run_commands(read_commands(block.text), exit_code)
        elif block.language not in PROSE:
            raise DocsError(f"no one knows what to do with the language `{block.language}`")

    def write(self, name: str, text: str) -> None:
        path = (self.cwd / name).resolve()
        if not path.is_relative_to(self.cwd.resolve()):
            raise DocsError(f"`{name}` is outside the scratch folder")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")

    def run_python(self, text: str, exit_code: int) -> None:
        # Beside the page's files, as a reader would save it, so that it imports what they define.
        script = self.cwd / "_docs_block.py"
        script.write_text(text, encoding="utf-8")
        try:
            self.run([sys.executable, script.name], exit_code)
        finally:
            script.unlink()

    def run_commands(self, commands: list[Command], exit_code: int) -> None:
        for number, command in enumerate(commands, start=1):
            expected_exit = exit_code if number == len(commands) else 0
            where = self.home / ".docs-cwd"
            # Its own line at the end, so that a `cd` is seen by the next command as in a terminal.
            script = f"trap 'pwd >{where}' EXIT\n{command.line}\n"
            output = self.run(["bash", "-euo", "pipefail", "-c", script], expected_exit)
            self.cwd = Path(where.read_text(encoding="utf-8").rstrip("\n"))
            if command.expected is not None and not matches(command.expected, output):
                shown = f"the page shows:\n{command.expected.strip()}\n\nit printed:\n{output}"
                raise DocsError(f"`{command.line}` printed something else\n{shown}")

    def run(self, argv: list[str], exit_code: int) -> str:
        try:
            done = subprocess.run(
                argv,
                cwd=self.cwd,
                env=self.environment(),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
                timeout=COMMAND_SECONDS,
                check=False,
            )
        except subprocess.TimeoutExpired as error:
            raise DocsError(f"still running after {error.timeout:.0f} s") from None
        if done.returncode != exit_code:
            raise DocsError(f"exit {done.returncode}, not {exit_code}\n{done.stdout}")
        return done.stdout

    def environment(self) -> dict[str, str]:
        """A reader's terminal without their keys: `kept` on the path, an empty home, no colour."""
        path = [str(self.bin), str(Path(sys.executable).parent), *os.get_exec_path()]
        more = {"PYTHONPATH": str(self.packages)} if self.packages else {}
        return {
            **more,
            "PATH": os.pathsep.join(path),
            "HOME": str(self.home),
            "LANG": "C.UTF-8",
            "TERM": "dumb",
            "NO_COLOR": "1",
            "COLUMNS": "100",
        }


def parsed(parse: Callable[[str], object], *errors: type[Exception]) -> Callable[[str], None]:
    """A parser that tells a malformed block as a problem of the page."""

    def run(text: str) -> None:
        try:
            parse(text)
        except errors as error:
            raise DocsError(str(error)) from None

    return run


def load_yaml(text: str) -> list[object]:
    documents: Iterable[object] = YAML(typ="safe", pure=True).load_all(text)  # pyright: ignore[reportUnknownMemberType] ruamel has no types here
    return list(documents)


PARSERS = {
    "yaml": parsed(load_yaml, YAMLError),
    "json": parsed(json.loads, ValueError),
    "toml": parsed(tomllib.loads, tomllib.TOMLDecodeError),
}


NAMED_TEST = re.compile(r"^\| (\d+) \|.*`(tests/[\w/]+\.py)::(test_\w+)` \|$", re.MULTILINE)


def check_named_tests(page: Path, root: Path) -> set[int]:
    """The numbers of a table whose rows end with a test; each test must be there."""
    rows = NAMED_TEST.findall(page.read_text(encoding="utf-8"))
    for _, file, name in rows:
        assert f"def {name}(" in (root / file).read_text(encoding="utf-8"), (file, name)
    return {int(number) for number, *_ in rows}
