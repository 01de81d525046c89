"""A tool that runs Python beside the files that workers share, in the sandbox.

The program runs in a copy of them, mounted where every copy is, without the network. What it
changed there comes back when it has ended; what it did elsewhere is gone. A program that loops,
dies or floods its output is an answer; one that fills its folder changes nothing at all.
"""

import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from shlex import join, quote

from kept.core.artifact import Candidate
from kept.core.case import IMPLICIT_CASE
from kept.core.model import ToolOffer
from kept.core.ports import Scope
from kept.core.rollout import Failure
from kept.core.tool import ToolAnswer
from kept.core.words import count, shortened
from kept.models.structured import problem_with
from kept.sandbox import Command, Exit, Limits, View
from kept.settings import without_secrets
from kept.shared_files import OUTPUT, SharedFiles, changes_between
from kept.tools.files import applied
from kept.tools.using import journalled
from kept.workspace import Output, Scratch

SECONDS = 60.0
"""For one program."""

MOST_SHOWN = 20_000
"""Characters of what a program prints that a model is told: the beginning and the end."""

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
    """Where programs run beside shared files, and within which limits."""

    scratch: Scratch
    hidden: tuple[Path, ...] = ()
    """What no program may read."""
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
        """Run a line of the shell in a copy of some files: how it ended, and what they are then."""
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
    """Runs what a model wrote."""

    files: SharedFiles
    bench: Bench
    about: str = ""
    """What a model is told of it; empty for the usual."""

    @property
    def offer(self) -> ToolOffer:
        """What a model is told of it."""
        return ToolOffer("code_execute", self.about or _ABOUT, _SCHEMA)

    async def use(self, arguments: Mapping[str, object], scope: Scope) -> ToolAnswer | Failure:
        """Run it once, or what came of it when it was run."""
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
        text = _told(ended, self.bench.seconds)
        text += "".join(f"\nleft alone: {what}" for what in output.skipped[:10])
        if refused:
            return ToolAnswer(f"{text}\nno file was changed: {refused}", wrong=True)
        if not changes:
            return ToolAnswer(text, wrong=not ended.ok)
        text += f"\nchanged: {', '.join(sorted(changes)[:20])}"
        return ToolAnswer(text, wrong=not ended.ok, changes=changes, stamp=self.files.stamp())


def _told(ended: Exit, seconds: float) -> str:
    how = f"did not end within {count(seconds, 'second')}" if ended.timed_out else str(ended)
    parts = [how if not ended.ok else "exit 0"]
    if ended.stdout:
        cut = "[only the end of it was kept]\n" if ended.cut else ""
        parts.append(f"stdout:\n{cut}{shortened(ended.stdout, MOST_SHOWN)}")
    if ended.stderr.strip():
        parts.append(f"stderr:\n{shortened(ended.stderr, MOST_SHOWN)}")
    return "\n".join(parts).encode("utf-8", "replace").decode()
