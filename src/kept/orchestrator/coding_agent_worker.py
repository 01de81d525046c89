"""An agent CLI as worker: it works in a copy of the workspace, and its changes are merged back.

One errand is one journalled call, whatever the CLI does in it. A killed errand runs again.
"""

import time
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from kept.core.rollout import FREE, Failure, Rollout, Usage
from kept.core.text import one_line
from kept.evaluators.tools.files import OUTPUT, SharedFiles, changes_between
from kept.orchestrator.budget import Account, Metered
from kept.orchestrator.toolkit import Errand, Worked, joined, place
from kept.orchestrator.workers import Broken, confidence_of, result_of, told
from kept.sandbox.coding_agents.definition import Errand as CliErrand
from kept.sandbox.coding_agents.run import Harness
from kept.settings import without_secrets

STEP = 200
"""Maximum characters of a reported step."""

_LEAST = 1.0
"""Minimum time limit of a CLI, in seconds."""


@dataclass(frozen=True, slots=True)
class Sent:
    """Result of one errand of a CLI."""

    text: str
    changes: Mapping[str, bytes | None] = field(default_factory=dict[str, bytes | None])
    stamp: int = 0
    story: str = ""
    usage: Usage = FREE
    seconds: float = 0.0
    lost: bool = False
    """True if an earlier session had begun it and was cut off."""


@dataclass(frozen=True, slots=True)
class Begun:
    """Mark that a CLI was started; without a reply in the journal, its cost is unknown."""

    usage: Usage = FREE


@dataclass(frozen=True, slots=True)
class CliWorker:
    """Implements `Works` with an agent CLI."""

    harness: Harness
    worst_usd: float | None = None
    """Maximum cost of one errand in USD; None if unknown."""

    async def __call__(self, errand: Errand, scope: Metered) -> Worked | Failure:
        """Run the errand, and once more if the answer breaks the output contract."""
        texts, wanted = errand.texts, errand.delegation
        name = wanted.worker_id
        prompt = joined(
            place(texts["worker"], {"name": name}), texts["worker_pitfalls"], told(errand)
        )
        written: dict[str, bytes | None] = {}
        broken, lost = "", 0
        for n in range(2):
            if axis := _used_up(scope.account):
                return Worked(failure=scope.account.refused(axis), written=written)
            sent = await self._send(prompt, errand.files, scope.branch(f"errand-{n}"))
            if isinstance(sent, Failure) and sent.blame == "infrastructure":
                return sent
            if isinstance(sent, Failure):
                return Worked(failure=sent, written=written)
            errand.files.apply(sent.changes, sent.stamp)
            lost += sent.lost
            written.update(sent.changes)
            try:
                result = result_of(sent.text, name, wanted.required_fields)
            except Broken as error:
                broken = str(error)
                prompt = joined(prompt, f"You did this before, and {broken}. Answer again.")
                continue
            confidence = confidence_of(result)
            return Worked(
                result=result,
                confidence=confidence,
                written=written,
                story=sent.story,
                lost=lost,
            )
        failure = Failure("parse", "candidate", f"the output contract was broken twice: {broken}")
        return Worked(failure=failure, written=written, lost=lost)

    async def _send(self, prompt: str, files: SharedFiles, scope: Metered) -> Sent | Failure:
        harness, account = self.harness, scope.account
        request = {"agent": harness.cli.name, "model": harness.config.name, "prompt": prompt}
        now = False

        async def begin() -> Begun:
            nonlocal now
            now = True
            return Begun()

        # on a resume the journal answers this call, so `now` stays False
        await scope.branch("begun").call({"begun": request}, Begun, begin, 0.0)

        async def go() -> Sent | Failure:
            left = max(_LEAST, account.wall - account.elapsed)
            command = replace(harness.command, timeout=min(harness.command.timeout, left))
            before, began = files.all(), time.monotonic()
            errand = CliErrand(prompt=prompt, files=before, folders=(OUTPUT,))
            ran = await replace(harness, command=command).run(errand)
            if isinstance(ran, Failure):
                return ran
            sent = self._sent(ran, before, files)
            if isinstance(sent, Failure):
                return sent
            return replace(sent, seconds=round(time.monotonic() - began, 4), lost=not now)

        return await scope.call(request, Sent, go, self.worst_usd)

    def _sent(
        self, ran: Rollout, before: Mapping[str, bytes], files: SharedFiles
    ) -> Sent | Failure:
        cli = self.harness.cli
        own = (cli.raw, cli.summary, cli.session)
        found = {path: data for path, data in ran.files.items() if path not in own}
        changes = changes_between(before, without_secrets(found))
        if why := files.refusal(changes):
            return Failure("limit", "candidate", why, usage=ran.usage)
        steps = [
            f"{item.role}: {one_line(item.text, STEP)}" for item in ran.trace if "step" in item.data
        ]
        return Sent(ran.output, changes, files.stamp(), "\n".join(steps), ran.usage)


def _used_up(account: Account) -> str:
    """Return the axis without room for an errand, which counts as one tool call; else empty.

    The tokens of an errand are unknown in advance, so it is sent while any are left.
    """
    if account.used.tokens_in + account.used.tokens_out >= account.tokens:
        return "tokens"
    return "" if account.use_tool() else "tool_calls"
