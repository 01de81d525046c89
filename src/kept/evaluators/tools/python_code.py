"""Code tool: runs Python on the files that workers share, in the sandbox.

The program runs in a copy of the files, always at the same path, without the network. Its changes
there are copied back when it has ended; all others are lost. A program that loops, crashes or
floods its output is an answer for the model. One that fills its folder changes nothing.
"""

import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from hashlib import sha256
from pathlib import Path
from shlex import join, quote

from kept.core.artifact import Candidate
from kept.core.case import IMPLICIT_CASE
from kept.core.llm import ToolAnswer, ToolOffer
from kept.core.ports import Scope
from kept.core.rollout import FREE, Failure, Usage
from kept.core.text import count, shortened
from kept.evaluators.tools.files import OUTPUT, SharedFiles, applied, changes_between
from kept.evaluators.tools.journalled_call import journalled
from kept.models.structured_output import problem_with
from kept.sandbox.command import Command, Exit, Limits, View
from kept.sandbox.workspace import MAX_OUTPUT, Output, Scratch
from kept.settings import without_secrets
from kept.store.home import Home

SECONDS = 60.0
"""Time limit for one program."""

MOST_SHOWN = 20_000
"""Maximum number of characters of a program's output for the model: both ends."""

_MIB = 1024 * 1024
_PROGRAM = ".kept-code.py"
_NOBODY = Candidate({})
_ABOUT = (
    "Run a Python program in the workspace and see what it prints. It begins in the workspace, has "
    "no network, and writes nowhere else. What is to be delivered goes below output/."
)
_SCHEMA: Mapping[str, object] = {
    "type": "object",
    "properties": {"code": {"type": "string", "description": "the whole program"}},
    "required": ["code"],
    "additionalProperties": False,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Bench:
    """Sandbox and limits for programs that run on shared files."""

    scratch: Scratch
    hidden: tuple[Path, ...] = ()
    """Paths that no program may read."""
    walls: bool = True
    seconds: float = SECONDS
    limits: Limits = field(
        default_factory=lambda: Limits(
            memory=None, file_size=64 * _MIB, tree=128 * _MIB, processes=128
        )
    )

    async def run(
        self,
        words: str,
        files: Mapping[str, bytes],
        most: int,
        seconds: float | None = None,
        folders: tuple[str, ...] = (),
    ) -> tuple[Exit | Failure, Output | Failure]:
        """Run a shell line in a copy of some files; return its exit and the files afterwards."""
        view = View(Path("/"), hidden=self.hidden, bare=True, walls=self.walls)
        line = f'cd "$KEPT_OUTPUT" && unset KEPT_CANDIDATE && {words}'
        limit = self.seconds if seconds is None else seconds
        command = Command(line, Path("/"), limit, limits=self.limits, view=view, most_text=_MIB)
        try:
            with self.scratch.workspace(_NOBODY, IMPLICIT_CASE, files, folders) as workspace:
                return await workspace.run(command), workspace.read_output(most)
        except OSError as error:
            message = f"cannot use the scratch folder: {error.strerror}"
            failure = Failure("limit", "infrastructure", message)
            return failure, failure


@dataclass(frozen=True, slots=True)
class CodeTool:
    """Tool that runs Python code of a model."""

    files: SharedFiles
    bench: Bench
    about: str = ""
    """Description for the model; empty for the default."""

    @property
    def offer(self) -> ToolOffer:
        """Offer of the tool to a model."""
        return ToolOffer("code_execute", self.about or _ABOUT, _SCHEMA)

    async def use(self, arguments: Mapping[str, object], scope: Scope) -> ToolAnswer | Failure:
        """Run the code once; a resume applies the journalled answer."""
        request = {"tool": self.offer.name, "arguments": dict(arguments)}
        answer = await journalled(scope, request, lambda: self._run(arguments))
        return applied(self.files, answer)

    async def _run(self, arguments: Mapping[str, object]) -> ToolAnswer | Failure:
        if wrong := problem_with(dict(arguments), _SCHEMA):
            return ToolAnswer(f"the arguments are wrong, {wrong}", wrong=True)
        before = self.files.all()
        code = str(arguments["code"]).encode("utf-8", "replace")
        words = f"exec {join([sys.executable, '-B', '-s'])} {quote(_PROGRAM)}"
        most = self.files.most_bytes
        given = {**before, _PROGRAM: code}
        ended, output = await self.bench.run(words, given, most, folders=(OUTPUT,))
        for failure in (ended, output):
            if isinstance(failure, Failure) and failure.blame == "infrastructure":
                return failure
            if isinstance(failure, Failure):
                return ToolAnswer(f"{failure.message}; no file was changed", wrong=True)
        assert isinstance(ended, Exit) and isinstance(output, Output)
        return self._answer(ended, output, before)

    def _answer(self, ended: Exit, output: Output, before: Mapping[str, bytes]) -> ToolAnswer:
        found = {
            path: data
            for path, data in output.files.items()
            if path != _PROGRAM and "__pycache__" not in path.split("/")
        }
        changes = changes_between(before, without_secrets(found))
        refused = self.files.refusal(changes)
        text = exit_text(ended, self.bench.seconds)
        text += "".join(f"\nleft alone: {what}" for what in output.skipped[:10])
        if refused:
            return ToolAnswer(f"{text}\nno file was changed: {refused}", wrong=True)
        if not changes:
            return ToolAnswer(text, wrong=not ended.ok)
        text += f"\nchanged: {', '.join(sorted(changes)[:20])}"
        return ToolAnswer(text, wrong=not ended.ok, changes=changes, stamp=self.files.stamp())


@dataclass(frozen=True, slots=True)
class Ran:
    """Journalled run of a program."""

    code: int
    """Its exit status."""
    text: str
    """Text for the model: the exit and the output."""
    files: Mapping[str, bytes] = field(default_factory=dict[str, bytes])
    """Files that it made or changed."""
    timed_out: bool = False
    stderr: str = ""
    """Last part of its stderr."""
    usage: Usage = FREE

    @property
    def ok(self) -> bool:
        """True if it ended in time with exit status 0."""
        return self.code == 0 and not self.timed_out


async def run_program(
    bench: Bench,
    scope: Scope,
    program: str,
    files: Mapping[str, bytes],
    most: int = MAX_OUTPUT,
) -> Ran | Failure:
    """Run Python that a model wrote on some files, in the sandbox; journalled, so run once.

    It starts in a folder with only those files. A program that leaves more than `most` bytes is
    the candidate's failure.
    """

    async def do() -> Ran | Failure:
        words = f"exec {join([sys.executable, '-B', '-s'])} {quote(_PROGRAM)}"
        code = program.encode("utf-8", "replace")
        ended, output = await bench.run(words, {**files, _PROGRAM: code}, most)
        for failure in (ended, output):
            if isinstance(failure, Failure):
                return failure
        assert isinstance(ended, Exit) and isinstance(output, Output)
        made = {p: d for p, d in output.files.items() if p != _PROGRAM and files.get(p) != d}
        text = exit_text(ended, bench.seconds)
        return Ran(ended.code, text, made, ended.timed_out, ended.detail())

    known_by = {path: sha256(data).hexdigest() for path, data in sorted(files.items())}
    return await scope.call({"program": program, "files": known_by}, Ran, do, 0.0)


def data_bench(scratch: Scratch, data: Sequence[Path], seconds: float = SECONDS) -> Bench:
    """A bench whose programs see neither the data of an environment nor the folder of the run."""
    here = Path.cwd()
    hidden = [part for one in (*data, here) for part in all_but_python(one.resolve())]
    home = Home.find(here).path.resolve()
    return Bench(scratch=scratch, hidden=(*dict.fromkeys([*hidden, home]),), seconds=seconds)


def all_but_python(folder: Path) -> Iterator[Path]:
    """Paths that hide a folder except for the Python that runs the programs."""
    needed = [Path(one).resolve() for one in (sys.prefix, sys.base_prefix)]
    if any(folder == one for one in needed):
        return
    if not any(one.is_relative_to(folder) for one in needed) or not folder.is_dir():
        yield folder
        return
    for one in sorted(folder.iterdir()):
        yield from all_but_python(one)


def exit_text(ended: Exit, seconds: float) -> str:
    """Text for the model about the exit of a command and its output."""
    how = f"did not end within {count(seconds, 'second')}" if ended.timed_out else str(ended)
    parts = [how if not ended.ok else "exit 0"]
    if ended.stdout:
        cut = "[only the end of it was kept]\n" if ended.cut else ""
        parts.append(f"stdout:\n{cut}{shortened(ended.stdout, MOST_SHOWN)}")
    if ended.stderr.strip():
        parts.append(f"stderr:\n{shortened(ended.stderr, MOST_SHOWN)}")
    return "\n".join(parts).encode("utf-8", "replace").decode()
