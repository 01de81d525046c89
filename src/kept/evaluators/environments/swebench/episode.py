"""One instance being worked on: a copy of its repository, a shell in it, the tests at the end."""

import asyncio
import hashlib
import json
import re
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field

from kept.core.model import ToolOffer
from kept.core.ports import Scope, Tool
from kept.core.rollout import NO_FILES, Failure
from kept.core.tool import ToolAnswer
from kept.core.words import count
from kept.errors import SetupError
from kept.evaluators.environments.contract import Episode, Posed, Turn
from kept.evaluators.environments.swebench.evaluation import Evaluation, evaluate
from kept.evaluators.environments.swebench.instances import Instance
from kept.evaluators.environments.swebench.testbed import LIMITS, Testbed
from kept.evaluators.tools.shell import EpisodeWorkspace, ShellSettings, ShellTool
from kept.evaluators.tools.using import journalled
from kept.sandbox.workspace import Scratch

EVALUATION = "evaluation.json"
"""The file of a rollout that says what its patch came to."""

COMMAND_SECONDS = 180.0
"""For one command of a student."""

_DIFF_SECONDS = 120.0
_VARYING = re.compile(r"\b\d+\.\d+ ?s(?:econds)?\b|\b0x[0-9a-f]+\b")
"""Times and addresses: what a rollout came to is the same when it is repeated."""
_ABOUT = (
    "Run a bash command in the repository. Every call starts in its root folder, in a new shell: "
    "files stay, variables and folders that were changed into do not. `python` is the one that the "
    "repository is installed in. There is no network."
)


@dataclass(slots=True, kw_only=True)
class RepositoryEpisode(Episode):
    """An instance from its report to the verdict of the tests."""

    instance: Instance
    posed: Posed
    scope: Scope
    scratch: Scratch
    testbed: Callable[[Instance], Awaitable[Testbed | Failure]]
    turns: asyncio.Semaphore
    """For running tests."""
    seconds: float
    """For all commands of the student together."""
    test_seconds: float
    _bed: Testbed | None = field(default=None, init=False)
    _workspace: EpisodeWorkspace | None = field(default=None, init=False)

    async def pose(self) -> Posed | Failure:
        """Copy the repository and ask for the fix."""
        bed = await self.testbed(self.instance)
        if isinstance(bed, Failure):
            return bed
        settings = ShellSettings(
            hidden=bed.hidden,
            seen=bed.seen(),
            env=bed.variables,
            limits=LIMITS,
            seconds=min(self.seconds, COMMAND_SECONDS),
        )
        workspace = bed.workspace(self.scratch, settings)
        try:
            await workspace.open(bed.repo)
        except (SetupError, OSError) as error:
            return Failure("harness", "infrastructure", str(error), tried=True)
        self._bed, self._workspace = bed, workspace
        return self.posed

    def tools(self) -> Sequence[Tool]:
        """The shell."""
        assert self._workspace is not None, "it is posed"
        return (RepositoryShell(ShellTool(self._workspace, _ABOUT), self.seconds),)

    async def answer(self, said: str, files: Mapping[str, bytes] = NO_FILES) -> Turn | Failure:
        """Take what was changed as the patch, and run the tests on it; journalled, so run once."""
        assert self._bed is not None and self._workspace is not None, "it is posed"
        ended = await self._workspace.run(self._bed.diff_line(), _DIFF_SECONDS)
        if isinstance(ended, Failure):
            return ended
        if not ended.ok:
            return Failure("harness", "candidate", f"git cannot compare the repository: {ended}")
        bed, patch = self._bed, ended.stdout
        # the end of a longer one is all that was kept, which no rule accepts as a patch
        known_by = hashlib.sha256(patch.encode("utf-8", "surrogatepass")).hexdigest()
        request = {"evaluate": self.instance.id, "patch": known_by}

        async def run() -> ToolAnswer | Failure:
            async with self.turns:
                found = await evaluate(self.instance, bed, patch, self.test_seconds)
            return found if isinstance(found, Failure) else ToolAnswer(_told(found))

        answer = await journalled(self.scope, request, run)
        if isinstance(answer, Failure):
            return answer
        told = json.loads(answer.text)
        return Turn(output=patch, metrics=told["metrics"], files={EVALUATION: answer.text.encode()})

    async def close(self) -> None:
        """Remove the copy."""
        if self._workspace is not None:
            self._workspace.close()


@dataclass(slots=True)
class RepositoryShell:
    """The shell of an instance: one command at a time, and all of them within a limit."""

    shell: ShellTool
    seconds: float
    keeps_state: bool = True
    _spent: float = field(default=0.0, init=False)
    _turn: asyncio.Lock = field(default_factory=asyncio.Lock, init=False)

    @property
    def offer(self) -> ToolOffer:
        """The offer of the shell."""
        return self.shell.offer

    async def use(self, arguments: Mapping[str, object], scope: Scope) -> ToolAnswer | Failure:
        """Run a command, unless those before it took all the time."""
        # in the order that they are asked for: each may build on the one before
        async with self._turn:
            if self._spent >= self.seconds:
                words = f"the commands took more than {count(self.seconds, 'second')}"
                return Failure("timeout", "candidate", words)
            answer = await self.shell.use(arguments, scope)
            if isinstance(answer, ToolAnswer):
                # as the journal has it, so that a resume counts the same
                self._spent += answer.seconds
            return answer


def _told(found: Evaluation) -> str:
    report = found.report
    fix = len(report.fixed) + len(report.not_fixed)
    keep = len(report.maintained) + len(report.broken)
    metrics = {
        "resolved": float(found.resolved),
        "fail_to_pass": len(report.fixed) / fix,
        "pass_to_pass": len(report.maintained) / keep if keep else 1.0,
    }
    told = {
        "resolution": report.resolution,
        "counts": str(report),
        "why": found.why,
        "metrics": metrics,
        "log": _VARYING.sub("", found.log),
    }
    return json.dumps(told, sort_keys=True)
