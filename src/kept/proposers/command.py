"""Any program as proposer: it reads a brief, edits a copy of the files, and the diff is proposed.

    KEPT_BRIEF        JSON file: step, seed, objective, incumbent, train cases, past verdicts …
    KEPT_CANDIDATE    folder with a copy of the incumbent's files, to be edited
    KEPT_OUTPUT       folder for `why.txt`; without it, the last line of stdout is the reason

Exit 0 without a change, and exit 75, mean that there is nothing to propose. The execution is one
journalled call, so a resumed run does not repeat it.
"""

import json
from collections.abc import Iterator, Mapping
from dataclasses import replace

from kept.core.artifact import Candidate
from kept.core.case import IMPLICIT_CASE
from kept.core.edit import Edit, Write, apply_edits
from kept.core.ports import Scope
from kept.core.proposal import Brief, Proposal, ProposerReply, Skip
from kept.core.rollout import Failure, Rollout
from kept.core.words import count
from kept.proposers.briefing import plain_brief
from kept.proposers.splices import edits_between
from kept.sandbox import Command, Exit
from kept.workspace import Scratch

NOTHING = 75
"""EX_TEMPFAIL of sysexits.h: nothing now, perhaps later."""

WHY = "why.txt"
MAX_WHY = 2000
_COPY = "candidate/"
_BRIEF = "brief.json"

# in the output folder, which is the one that a walled command may write to
_PLACES = f"""\
KEPT_CANDIDATE="$KEPT_OUTPUT/candidate" KEPT_BRIEF="$KEPT_OUTPUT/{_BRIEF}"
export KEPT_CANDIDATE KEPT_BRIEF
"""


class CommandProposer:
    """Runs a command for every brief."""

    serial = False

    def __init__(self, command: Command, scratch: Scratch, name: str = "command") -> None:
        self._command = command
        self._scratch = scratch
        self.name = name

    async def propose(self, brief: Brief, scope: Scope) -> ProposerReply:
        """What the command made of the files."""
        told = json.dumps(plain_brief(brief), ensure_ascii=False, sort_keys=True, default=str)
        request = {"command": self._command.line, "brief": told}
        ran = await scope.call(request, Rollout, lambda: self._execute(brief, told))
        if isinstance(ran, Failure):
            return ran
        if ran.metrics.get("exit") == NOTHING:
            return Skip(_last_line(ran.output) or f"the command says so (exit {NOTHING})")
        changed = _changed(brief.incumbent, ran.files)
        if isinstance(changed, Failure):
            return changed
        edits = tuple(_edits(brief, changed))
        if not edits:
            return Skip(_last_line(ran.output) or "the command changed nothing")
        why = ran.files.get(WHY, b"").decode("utf-8", "replace").strip()
        return Proposal(edits, why=(why or _last_line(ran.output))[:MAX_WHY])

    async def _execute(self, brief: Brief, told: str) -> Rollout | Failure:
        texts = brief.incumbent.texts
        files = {_COPY + p: t.encode("utf-8", "surrogateescape") for p, t in texts.items()}
        files[_BRIEF] = told.encode("utf-8", "surrogatepass")
        command = replace(self._command, line=_PLACES + self._command.line)
        try:
            with self._scratch.workspace(brief.incumbent, IMPLICIT_CASE, files) as workspace:
                ended = await workspace.run(command)
                failure = ended if isinstance(ended, Failure) else self._fault(ended)
                if failure is not None:
                    return replace(failure, blame="infrastructure")
                output = workspace.read_output()
        except OSError as error:
            message = f"cannot use the scratch folder: {error.strerror}"
            return Failure("limit", "infrastructure", message)
        assert isinstance(ended, Exit)
        if isinstance(output, Failure):
            return replace(output, blame="infrastructure")
        gone = [path for path in texts if _COPY + path not in output.files]
        if gone:
            message = f"the command removed `{gone[0]}`, and a proposal cannot remove a file"
            return Failure("refused", "infrastructure", message)
        # what did not change is known, and the journal need not hold it once more
        news = {p: d for p, d in output.files.items() if files.get(p) != d and p != _BRIEF}
        return Rollout(output=ended.stdout, files=news, metrics={"exit": float(ended.code)})

    def _fault(self, ended: Exit) -> Failure | None:
        """What is wrong with how it ended; no candidate is to blame for its proposer."""
        if ended.ok or (ended.code == NOTHING and not ended.timed_out):
            return None
        if ended.timed_out:
            message = f"no end after {count(self._command.timeout, 'second')}"
            return Failure("timeout", "infrastructure", message, ended.detail())
        return Failure("crash", "infrastructure", str(ended), ended.detail())


def _changed(incumbent: Candidate, files: Mapping[str, bytes]) -> Mapping[str, str] | Failure:
    """Texts by path, of the files that a command changed or made."""
    texts: dict[str, str] = {}
    for path, data in files.items():
        if not path.startswith(_COPY):
            continue
        name = path.removeprefix(_COPY)
        try:
            texts[name] = data.decode()
        except UnicodeDecodeError:
            if name in incumbent.texts:
                message = f"the command left `{name}` as something that is not UTF-8 text"
                return Failure("parse", "infrastructure", message)
    return texts


def _edits(brief: Brief, changed: Mapping[str, str]) -> Iterator[Edit]:
    for path, text in sorted(changed.items()):
        before = brief.incumbent.texts.get(path)
        if before == text:
            continue
        parts = edits_between(path, before, text) if before is not None else ()
        # half of what a program did is not what it meant: where one of its parts would be refused
        # by itself, all of it stands or falls together
        if parts and apply_edits(brief.incumbent, parts, brief.rules).complete:
            yield from parts
        else:
            yield Write(path, text)


def _last_line(text: str) -> str:
    lines = text.strip().splitlines()
    return lines[-1].strip() if lines else ""
