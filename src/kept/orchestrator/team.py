"""Workers of one turn: sent side by side, each in a branch and with a share of its own."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, replace

from kept.core.ports import Scope
from kept.core.rollout import FREE, Failure, Usage
from kept.engine.raised import ungrouped
from kept.evaluators.tools.shared_files import SharedFiles
from kept.orchestrator.budget import Account, Ledger, Metered
from kept.orchestrator.catching_up import CatchingUp, CatchUp, Following, turn_of
from kept.orchestrator.critic import criticise
from kept.orchestrator.kit import Errand, Kit, Texts, Worked
from kept.orchestrator.record import Delegation
from kept.orchestrator.state import Course
from kept.orchestrator.telling import worker_lines

Manages = Callable[[Errand, Scope, Account], Awaitable[Worked | Failure]]
"""Has a subtask done by a manager of its own."""


@dataclass(frozen=True, slots=True)
class Merged:
    """When the work of a manager in the place of a worker joined that of the others."""

    stamp: int
    refused: str = ""
    """Why it could not; empty where it did."""
    usage: Usage = FREE


@dataclass(frozen=True, slots=True, kw_only=True)
class Team:
    """Who workers are, and what they share."""

    kit: Kit
    texts: Texts
    files: SharedFiles
    ledger: Ledger
    manages: Manages

    async def send(
        self, wanted: Sequence[Delegation], course: Course, scope: Scope, managed: frozenset[str]
    ) -> tuple[Delegation, ...] | Failure:
        """What came of each; a `Failure` is one of infrastructure, and none of theirs."""
        held = {path: len(data) for path, data in self.files.all().items()}
        errands = [
            Errand(
                delegation=one,
                subtask=(subtask := course.subtask(one.subtask_id)),
                # who manages others works in a copy: what it is told must not depend on neighbours
                files=self.files.copy() if one.worker_id in managed else self.files,
                texts=self.texts,
                before=course.before(subtask),
                held=held,
            )
            for one in wanted
        ]
        # before the rest is shared out among those of them who send others
        self.ledger.workers += len(wanted)
        accounts = self.ledger.open(len(wanted))
        side_by_side = self.kit.limits.parallel_workers
        turn, scope = turn_of(scope, len(wanted), side_by_side)
        started = (
            self._in_turn(turn, errand, scope.branch(errand.delegation.worker_id), account, managed)
            for errand, account in zip(errands, accounts, strict=True)
        )
        with ungrouped():
            async with asyncio.TaskGroup() as group:
                tasks = [group.create_task(one) for one in started]
        found = [task.result() for task in tasks]
        failed = [one for one in found if isinstance(one, Failure)]
        if failed:
            return failed[0]
        self.ledger.settle(accounts, side_by_side)
        return tuple(one for one in found if not isinstance(one, Failure))

    async def _in_turn(
        self,
        turn: CatchingUp,
        errand: Errand,
        scope: Scope,
        account: Account,
        managed: frozenset[str],
    ) -> Delegation | Failure:
        worker = Following(turn)
        try:
            return await self._one(errand, CatchUp(scope, worker), account, managed)
        finally:
            worker.ended()

    async def _merged(self, worked: Worked, scope: Scope) -> Worked:
        """What was changed in a copy, changed in the files that all share."""
        changes = worked.written

        async def do() -> Merged:
            return Merged(self.files.stamp(), self.files.refusal(changes) or "")

        merged = await scope.call({"merged": sorted(changes)}, Merged, do, 0.0)
        assert isinstance(merged, Merged), "to take a number does not fail"
        if merged.refused:
            failure = Failure("limit", "candidate", merged.refused)
            return Worked(failure=failure, story=worked.story)
        self.files.apply(changes, merged.stamp)
        return worked

    async def _one(
        self, errand: Errand, scope: Scope, account: Account, managed: frozenset[str]
    ) -> Delegation | Failure:
        wanted, metered = errand.delegation, Metered(scope, account)
        if wanted.worker_id in managed:
            worked = await self.manages(errand, scope.branch("manages"), account)
            if not isinstance(worked, Failure):
                worked = await self._merged(worked, scope.branch("merged"))
        else:
            worked = await self.kit.works(errand, metered.branch("works"))
        if isinstance(worked, Failure):
            return worked
        done = replace(
            wanted,
            result=worked.result,
            confidence=worked.confidence,
            failure=worked.failure,
            written=tuple(sorted(worked.written)),
            lost=worked.lost,
        )
        if worked.result is not None:
            said = await criticise(self.kit, errand, worked, metered.branch("critic"))
            if isinstance(said, Failure) and said.blame == "infrastructure":
                return said
            if isinstance(said, Failure):
                done = replace(done, critique_failure=said)
            else:
                done = replace(done, critique=said)
        done = replace(
            done,
            tool_calls=account.tools_used,
            usage=account.used,
            seconds=round(account.seconds, 3),
        )
        for line in worker_lines(done):
            self.kit.say(line)
        return done
