"""Workers of one turn: sent side by side, each in a branch and with a share of its own."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, replace

from kept.agents.budget import Account, Ledger, Metered
from kept.agents.catching_up import CatchingUp, CatchUp, Following
from kept.agents.course import Course
from kept.agents.critic import criticise
from kept.agents.kit import Errand, Kit, Texts, Worked
from kept.agents.record import Delegation
from kept.agents.telling import worker_lines
from kept.core.ports import Scope
from kept.core.rollout import Failure
from kept.shared_files import SharedFiles

Manages = Callable[[Errand, Scope, Account], Awaitable[Worked | Failure]]
"""Has a subtask done by a manager of its own."""


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
                files=self.files,
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
        turn = CatchingUp(len(wanted), side_by_side)
        async with asyncio.TaskGroup() as group:
            tasks = [
                group.create_task(
                    self._in_turn(
                        turn, errand, scope.branch(errand.delegation.worker_id), account, managed
                    )
                )
                for errand, account in zip(errands, accounts, strict=True)
            ]
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
        if managed:
            # a manager below has workers of its own, who would wait for those that wait for it
            async with turn.places:
                return await self._one(errand, scope, account, managed)
        worker = Following(turn)
        try:
            return await self._one(errand, CatchUp(scope, worker), account, managed)
        finally:
            worker.ended()

    async def _one(
        self, errand: Errand, scope: Scope, account: Account, managed: frozenset[str]
    ) -> Delegation | Failure:
        wanted, metered = errand.delegation, Metered(scope, account)
        if wanted.worker_id in managed:
            worked = await self.manages(errand, scope.branch("manages"), account)
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
