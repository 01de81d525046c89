"""Any program as proposer: it reads a brief, edits a copy of the files, and the diff is proposed.

    KEPT_BRIEF        JSON file: step, seed, objective, incumbent, named fields of train cases …
    KEPT_CANDIDATE    folder with a copy of the incumbent's files, to be edited
    KEPT_OUTPUT       folder for `why.txt`; without it, the last line of stdout is the reason

Exit 0 without a change, and exit 75, mean that there is nothing to propose.
"""

from collections.abc import Mapping
from dataclasses import replace

from kept.core.artifact import Candidate
from kept.core.case import IMPLICIT_CASE
from kept.core.ports import Scope
from kept.core.proposal import Brief, ProposerReply, Skip
from kept.core.rollout import Failure, Rollout
from kept.core.words import count
from kept.proposers.program import BRIEF, COPY, edited, last_line, proposed, told
from kept.sandbox.command import Command, Exit
from kept.sandbox.workspace import Scratch

NOTHING = 75
"""EX_TEMPFAIL of sysexits.h: nothing now, perhaps later."""

# in the output folder, which is the one that a walled command may write to
_PLACES = f"""\
KEPT_CANDIDATE="$KEPT_OUTPUT/{COPY}" KEPT_BRIEF="$KEPT_OUTPUT/{BRIEF}"
export KEPT_CANDIDATE KEPT_BRIEF
"""


class CommandProposer:
    """Runs a command for every brief."""

    serial = False
    builds = True

    def __init__(
        self,
        command: Command,
        scratch: Scratch,
        name: str = "command",
        fields: tuple[str, ...] = (),
    ) -> None:
        self._command = command
        self._scratch = scratch
        self.name = name
        self._fields = fields
        """Of train cases: the others may hold the answer."""

    async def propose(self, brief: Brief, scope: Scope) -> ProposerReply:
        """What the command made of the files."""

        async def execute(files: Mapping[str, bytes]) -> Rollout | Failure:
            return await self._execute(brief.incumbent, files)

        request = {"command": self._command.line, "brief": told(brief, self._fields)}
        ran = await scope.call(
            request, Rollout, lambda: edited(brief, execute, "command", self._fields)
        )
        if isinstance(ran, Failure):
            return ran
        if ran.metrics.get("exit") == NOTHING:
            return Skip(last_line(ran.output) or f"the command says so (exit {NOTHING})")
        return proposed(brief, ran, "command")

    async def _execute(self, incumbent: Candidate, files: Mapping[str, bytes]) -> Rollout | Failure:
        command = replace(self._command, line=_PLACES + self._command.line)
        try:
            with self._scratch.workspace(incumbent, IMPLICIT_CASE, files) as workspace:
                ended = await workspace.run(command)
                failure = ended if isinstance(ended, Failure) else self._fault(ended)
                if failure is not None:
                    return failure
                output = workspace.read_output()
        except OSError as error:
            message = f"cannot use the scratch folder: {error.strerror}"
            return Failure("limit", "infrastructure", message)
        assert isinstance(ended, Exit)
        if isinstance(output, Failure):
            return output
        return Rollout(output=ended.stdout, files=output.files, metrics={"exit": float(ended.code)})

    def _fault(self, ended: Exit) -> Failure | None:
        """What is wrong with how it ended."""
        if ended.ok or (ended.code == NOTHING and not ended.timed_out):
            return None
        if ended.timed_out:
            message = f"no end after {count(self._command.timeout, 'second')}"
            return Failure("timeout", "infrastructure", message, ended.detail())
        return Failure("crash", "infrastructure", str(ended), ended.detail())
