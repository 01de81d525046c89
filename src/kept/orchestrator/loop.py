"""Loop of an agent run: the manager decides and its decision is carried out, until the run ends.

All calls go through the scope. No prompt depends on a clock or on the order in which workers
finish. So a resume repeats the same steps up to the first missing reply.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from typing import assert_never

from kept.core.llm import Message
from kept.core.ports import Scope
from kept.core.rollout import FREE, Failure, Usage
from kept.evaluators.tools.files import OUTPUT, Changes, SharedFiles, changes_between
from kept.orchestrator.budget import (
    COMPLETED,
    FAILED,
    GARBAGE,
    HOPELESS,
    REASONS,
    REJECTED,
    STALLED,
    Account,
    Ledger,
    Metered,
    status_of,
)
from kept.orchestrator.checks.files import FIXPOINT
from kept.orchestrator.completion import Completing, note, refused, repair_for, repaired
from kept.orchestrator.decision import Decided, Ground, decide
from kept.orchestrator.events import (
    Iterated,
    Moment,
    Story,
    check_lines,
    decision_lines,
    fixpoint_line,
    garbage_lines,
    no_room_line,
    rejection_line,
    repair_lines,
)
from kept.orchestrator.record import (
    CheckOutcome,
    Decision,
    Delegation,
    Iteration,
    Limits,
    Rejection,
    Repair,
)
from kept.orchestrator.state import Assignment, Course, system, told
from kept.orchestrator.toolkit import Errand, Kit, Texts, Worked, tool_texts
from kept.orchestrator.workers import Team

MOST_IDLE = 5
"""Turns in a row that only plan or diagnose, after which the run ends as stalled."""

_SENDING = ("workers", "tool_calls")
"""Axes that a worker needs: without them none is sent."""

_SHARE = 0.5
"""Share of a worker's budget for the run of a manager in its place."""


@dataclass(frozen=True, slots=True)
class Tick:
    """A journalled reading of the clock, so that a resume sees the same."""

    elapsed: float
    usage: Usage = FREE


@dataclass(slots=True)
class _Turn:
    """Results of the current turn."""

    number: int
    began: float
    decision: Decision | None = None
    garbage: tuple[str, ...] = ()
    delegations: tuple[Delegation, ...] = ()
    checks: tuple[CheckOutcome, ...] = ()
    rejections: list[Rejection] = field(default_factory=list[Rejection])
    repairs: list[Repair] = field(default_factory=list[Repair])


class Loop:
    """One manager and its workers."""

    def __init__(
        self,
        kit: Kit,
        texts: Texts,
        assignment: Assignment,
        files: SharedFiles,
        scope: Scope,
        ledger: Ledger | None = None,
    ) -> None:
        self.course = Course()
        self.ledger = ledger or Ledger(kit.limits)
        self.story: Story | None = None
        """Journal of every turn; None for a manager below another."""
        self._kit = kit
        self._texts = texts
        self._assignment = assignment
        self._files = files
        self._scope = scope
        self._team = Team(
            kit=kit, texts=texts, files=files, ledger=self.ledger, manages=self._manage
        )
        offered = kit.tools(files, tool_texts(texts["tool_description_templates"]))
        self._tools = tuple(tool.offer.name for tool in offered)
        self._forced: tuple[Delegation, Rejection] | None = None
        """Repair that is due, and the rejection that forced it."""
        self._base = self.ledger.elapsed
        self._since = kit.clock.monotonic()

    def raise_to(self, limits: Limits) -> None:
        """Raise the limits from here on; the use so far stays."""
        self._kit = replace(self._kit, limits=limits)
        self._team = replace(self._team, kit=self._kit)
        self.ledger.limits = limits

    async def run(self) -> str | Failure:
        """Run until the run ends, and return the reason; a `Failure` is one of infrastructure."""
        while True:
            # the clock first, so that the limits are checked with the current time
            await self._tick()
            if axis := self.ledger.out("loops", "tokens", "wall_seconds", "usd"):
                return REASONS[axis]
            self.ledger.loops += 1
            self.ledger.turns += 1
            turn = _Turn(self.ledger.turns, self.ledger.elapsed)
            end = await self._take(turn)
            if isinstance(end, Failure):
                return end
            await self._tell(turn)
            if end:
                return end

    async def _take(self, turn: _Turn) -> str | Failure:
        """Take one turn; return the reason if the run ends with it, else an empty text."""
        if self._forced is not None:
            return await self._repair(turn, *self._forced)
        decided = await self._decide(turn)
        if not isinstance(decided, Decided):
            return decided
        turn.decision = decision = decided.decision
        self._say(decision_lines(turn.number, decision))
        course = self.course
        match decision.kind:
            case "plan":
                course.plan = decision.plan
            case "diagnose":
                course.diagnosed = decision.hypotheses
            case "delegate":
                return await self._delegate(turn, decided)
            case "complete":
                return await self._complete(turn, decision)
            case "fail":
                course.end = decision
                return FAILED
            case _:
                assert_never(decision.kind)
        course.idle += 1
        return STALLED if course.idle >= MOST_IDLE else ""

    async def _decide(self, turn: _Turn) -> Decided | str | Failure:
        limits, course = self._kit.limits, self.course
        shown = told(
            course, self._assignment, self._texts, self.ledger, self._files.all(), self._kit.room
        )
        ground = Ground(
            tuple(one.id for one in course.plan),
            self._tools,
            limits.workers_per_iteration,
            self._kit.says_tools,
        )
        messages = (
            Message("system", system(self._texts, ground)),
            Message("user", shown),
        )
        (account,) = self.ledger.open()
        scope = Metered(self._branch(turn, "manager"), account)
        said = await decide(self._kit.manager, messages, ground, scope)
        self.ledger.settle([account])
        if isinstance(said, Failure):
            return said
        turn.garbage = said.garbage
        self._say(garbage_lines(turn.number, said.garbage))
        if said.refused:
            self._say([no_room_line(turn.number)] if not said.garbage else [])
            self._refuse(turn, "budget", f"the manager cannot be asked: {said.refused}")
        if said.decided is not None:
            return said.decided
        return REASONS[account.out] if account.out else GARBAGE

    async def _delegate(self, turn: _Turn, decided: Decided) -> str | Failure:
        ledger, course, wanted = self.ledger, self.course, decided.delegations
        if end := self._nobody_left(turn, wanted):
            return end
        if decided.managed and ledger.depth >= self._kit.limits.depth:
            # the first time the manager may try otherwise; the second time ends the run
            again = any(one.gate == "depth" for one in course.rejections)
            words = f"managers may be {self._kit.limits.depth} deep, and this is the last"
            self._refuse(turn, "depth", words)
            return REASONS["depth"] if again else ""
        left = self._kit.limits.workers - ledger.workers
        if len(wanted) > left:
            self._refuse(turn, "workers", _no_worker_for(wanted[left:]))
            wanted = wanted[:left]
        done = await self._send(turn, wanted, decided.managed)
        if isinstance(done, Failure):
            return done
        # workers were sent, so the count of equal refusals starts again
        course.alike, course.signature = 0, ("", "")
        return ""

    def _nobody_left(self, turn: _Turn, wanted: tuple[Delegation, ...]) -> str:
        """Return the reason if no worker can be sent, which ends the run; else an empty text."""
        axis = self.ledger.out(*_SENDING)
        if axis == "workers":
            self._refuse(turn, axis, _no_worker_for(wanted))
        elif axis:
            self._refuse(turn, axis, "there are no tool calls left for a worker to use")
        return REASONS[axis] if axis else ""

    async def _send(
        self, turn: _Turn, wanted: tuple[Delegation, ...], managed: frozenset[str] = frozenset()
    ) -> tuple[Delegation, ...] | Failure:
        course = self.course
        done = await self._team.send(wanted, course, self._branch(turn, "workers"), managed)
        if isinstance(done, Failure):
            return done
        course.delegations += done
        course.last = turn.delegations = done
        course.idle = 0
        course.diagnosed = ()
        return done

    async def _complete(self, turn: _Turn, decision: Decision) -> str | Failure:
        course, limits = self.course, self._kit.limits
        course.end = decision
        files = self._files.below(OUTPUT)
        completing = Completing(
            kit=self._kit, texts=self._texts, assignment=self._assignment, ledger=self.ledger
        )
        judged = await completing.check(decision, course, files, self._branch(turn, "checks"))
        if isinstance(judged, Failure):
            return judged
        turn.checks = judged.outcomes
        self._say(check_lines(judged.outcomes))
        course.evaluation = judged.evaluation or course.evaluation
        why = refused(judged, turn.number)
        if why is None:
            return COMPLETED
        self._note(turn, why.rejection)
        if why.hopeless:
            return HOPELESS
        note(course, why.rejection)
        # after enough equal refusals a repair is forced
        if course.alike < limits.rejected_completions:
            return ""
        repair = repair_for(course, why.rejection, limits.repairs)
        if repair is None:
            return REJECTED
        self._forced = (repair, why.rejection)
        return ""

    async def _repair(self, turn: _Turn, wanted: Delegation, why: Rejection) -> str | Failure:
        """Send a worker to repair a refused completion, without asking the manager."""
        self._forced = None
        if self.ledger.out(*_SENDING):
            self._say([no_room_line(turn.number)])
            return self._nobody_left(turn, (wanted,))
        self._say(repair_lines(turn.number, wanted, f"{why.gate}: {why.reason}"))
        done = await self._send(turn, (wanted,))
        if isinstance(done, Failure):
            return done
        repair = repaired(self.course, done[0], self._files.all(), why, turn.number)
        self.course.repairs.append(repair)
        turn.repairs.append(repair)
        self._say([fixpoint_line(repair)] if repair.fixpoint else [])
        return FIXPOINT if repair.fixpoint else ""

    async def _manage(self, errand: Errand, scope: Scope, account: Account) -> Worked | Failure:
        """Run a manager in place of a worker, with its own workers and a share of the budget."""
        limits = self._kit.limits
        left = Limits(
            loops=int(account.loops * _SHARE),
            workers=int(account.workers * _SHARE),
            tokens=int(account.tokens * _SHARE),
            tool_calls=int(account.tool_calls * _SHARE),
            wall_seconds=account.wall,
            depth=limits.depth,
            usd=None if account.usd is None else account.usd * _SHARE,
            parallel_workers=limits.parallel_workers,
            workers_per_iteration=limits.workers_per_iteration,
        )
        ledger = Ledger(left, elapsed=account.elapsed, depth=self.ledger.depth + 1)
        wanted, before = errand.delegation, errand.files.all()
        task = (
            f"{errand.subtask.description}\n\n{wanted.instructions}"
            if errand.subtask
            else wanted.instructions
        )
        below = Loop(
            replace(self._kit, limits=left),
            self._texts,
            replace(self._assignment, task=task, brief="", inputs=self._assignment.inputs),
            errand.files,
            scope,
            ledger,
        )
        reason = await below.run()
        if isinstance(reason, Failure):
            return reason
        # charge the worker's account with everything used below it
        account.used += ledger.usage
        account.tools_used += ledger.tool_calls
        account.loops_used += ledger.loops
        account.workers_used += ledger.workers
        account.elapsed = ledger.elapsed
        return _worked(reason, below.course, changes_between(before, errand.files.all()))

    def _refuse(self, turn: _Turn, gate: str, reason: str) -> None:
        rejection = Rejection(iteration=turn.number, gate=gate, reason=reason, completion=False)
        self._say([rejection_line(rejection)])
        self._note(turn, rejection)

    def _note(self, turn: _Turn, rejection: Rejection) -> None:
        turn.rejections.append(rejection)
        self.course.rejections.append(rejection)

    def _say(self, lines: Iterable[str]) -> None:
        for line in lines:
            self._kit.say(f"{'  ' * (self.ledger.depth - 1)}{line}")

    def _branch(self, turn: _Turn, name: str) -> Scope:
        return self._scope.branch(f"turn-{turn.number}").branch(name)

    async def _tick(self) -> None:
        """Journal the clock once a turn; time of earlier sessions is in their journalled ticks."""
        clock = self._kit.clock

        async def do() -> Tick:
            passed = self._base + clock.monotonic() - self._since
            return Tick(round(max(self.ledger.elapsed, passed), 3))

        name = f"turn-{self.ledger.turns + 1}"
        tick = await self._scope.branch(name).call({"tick": name}, Tick, do, 0.0)
        assert isinstance(tick, Tick), "a clock does not fail"
        # on a resume `tick` is the journalled time, so later ticks count from there
        self._base, self._since = tick.elapsed, clock.monotonic()
        self.ledger.elapsed = max(self.ledger.elapsed, tick.elapsed)

    async def _tell(self, turn: _Turn) -> None:
        if self.story is None:
            return
        iteration = Iteration(
            number=turn.number,
            decision=turn.decision,
            garbage=turn.garbage,
            delegations=turn.delegations,
            checks=turn.checks,
            budget=self.ledger.snapshot(),
            began=round(turn.began, 3),
            ended=round(self.ledger.elapsed, 3),
        )
        news = Iterated(
            iteration=iteration,
            plan=self.course.plan,
            rejections=tuple(turn.rejections),
            repairs=tuple(turn.repairs),
            evaluation=self.course.evaluation,
        )
        await self.story.tell(lambda: Moment(iterated=news))


def _no_worker_for(wanted: tuple[Delegation, ...]) -> str:
    return f"there is no worker left for {', '.join(one.worker_id for one in wanted)}"


def _worked(reason: str, course: Course, written: Changes) -> Worked:
    """Return the result of a manager below another."""
    status = status_of(reason, delivered=bool(written))
    if course.end is None or status == "failed":
        failure = Failure("limit", "candidate", f"the manager below ended {status}: {reason}")
        return Worked(failure=failure, written=written)
    confidence = course.end.confidence
    told = {} if confidence is None else {"confidence": confidence}
    result: dict[str, object] = {**course.end.final_result, "status": status, **told}
    return Worked(result=result, confidence=confidence, written=written)
