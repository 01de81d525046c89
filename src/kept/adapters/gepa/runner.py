"""Runner and scorer that call a `GEPAAdapter`.

An adapter is called as gepa's engine calls it: in batches of one candidate, one call at a time. If
a batch fails, each of its cases is tried alone, so that the failure is attributed to its case.
"""

import asyncio
import copy
import threading
from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple, cast

from kept.adapters.arguments import source_of_kind
from kept.adapters.reflection import NOTE, findings_in, trace_of
from kept.core.artifact import Candidate
from kept.core.case import Case
from kept.core.containers import owned
from kept.core.ports import Scope
from kept.core.rollout import Failure, Job, Rollout, TraceItem
from kept.core.score import Score
from kept.engine.user_code import Threads
from kept.evaluators.runners.function import failure_of, number_of

MOMENT = 0.001
"""Seconds that a batch waits for further cases to join."""


class Wanted(NamedTuple):
    """A request to evaluate one case with one candidate."""

    candidate: Candidate
    item: Any
    """The adapter's own data instance of the case."""
    traced: bool
    """True if traces are requested, and not only the score."""
    future: "asyncio.Future[Rollout | Failure]"

    @property
    def kind(self) -> tuple[str, bool]:
        """Batch key: only requests that share it go into one batch."""
        return self.candidate.id, self.traced


class Strange(Exception):
    """The adapter broke its own contract."""


class AdapterRunner:
    """Implements `Runner` and `Scorer`."""

    def __init__(
        self,
        adapter: Any,  # noqa: ANN401 # whatever has the methods of a GEPAAdapter
        items: Mapping[str, Any] | None = None,
        *,
        metric: str = "score",
        batch: int = 64,
        calls: int = 1,
    ) -> None:
        self._adapter = adapter
        self._items: Mapping[str, Any] = items or {}
        self._metric = metric
        self._batch = batch
        self._calls = calls
        self._threads = Threads(calls)
        self._waiting: deque[Wanted] = deque()
        self._tasks: dict[asyncio.Task[None], Sequence[Wanted]] = {}
        """Tasks that call the adapter, each with the batch it is working on."""
        # a cancelled call still runs in its thread, so limit concurrent calls here too
        self._alone = threading.BoundedSemaphore(calls)
        self.source = source_of_kind(adapter)
        """Fingerprint of the adapter, so that resume detects another one."""

    async def run(
        self, job: Job, candidate: Candidate, case: Case, scope: Scope
    ) -> Rollout | Failure:
        """Queue the case; it is evaluated in a batch with others of the same candidate."""
        future: asyncio.Future[Rollout | Failure] = asyncio.get_running_loop().create_future()
        traced = job.purpose in ("feedback", "probe")
        item = self._items.get(case.id, case.data)
        self._waiting.append(Wanted(candidate, item, traced, future))
        self._start()
        try:
            return await future
        except asyncio.CancelledError:
            self._leave()
            raise

    async def score(
        self, job: Job, rollout: Rollout, candidate: Candidate, case: Case, scope: Scope
    ) -> Score | Failure:
        """The adapter's scores, with the feedback found in its records."""
        return Score(rollout.metrics, findings_in(rollout.trace))

    async def close(self) -> None:
        """Close the thread pool.

        A thread still inside the adapter cannot be stopped and is abandoned.
        """
        self._waiting.clear()
        for task in self._tasks:
            task.cancel()
        self._threads.close()

    def _start(self) -> None:
        if self._waiting and len(self._tasks) < self._calls:
            task = asyncio.get_running_loop().create_task(self._work())
            self._tasks[task] = ()

    def _leave(self) -> None:
        """Cancel tasks whose batches have no waiting caller left."""
        for task, group in self._tasks.items():
            if group and all(wanted.future.done() for wanted in group):
                task.cancel()

    async def _work(self) -> None:
        """Call the adapter until the queue is empty."""
        me = asyncio.current_task()
        assert me is not None
        try:
            while self._waiting:
                if self._batch > 1:
                    await asyncio.sleep(MOMENT)
                self._tasks[me] = group = self._take()
                if group:
                    await self._answer(group)
        except asyncio.CancelledError:
            del self._tasks[me]
            self._start()
            raise
        del self._tasks[me]

    async def _answer(self, group: Sequence[Wanted]) -> None:
        try:
            answers = await self._threads.call(self._apart, group)
        except Exception as error:  # noqa: BLE001 # handed on to everyone who waits
            for wanted in group:
                if not wanted.future.done():
                    wanted.future.set_exception(error)
            return
        for wanted, answer in zip(group, answers, strict=True):
            if not wanted.future.done():
                wanted.future.set_result(answer)

    def _take(self) -> list[Wanted]:
        """Next batch: waiting requests that share a batch key, up to the batch size."""
        group: list[Wanted] = []
        rest: deque[Wanted] = deque()
        for wanted in self._waiting:
            if wanted.future.done():
                continue  # cancelled while it waited
            if len(group) < self._batch and (not group or wanted.kind == group[0].kind):
                group.append(wanted)
            else:
                rest.append(wanted)
        self._waiting = rest
        return group

    # runs in a worker thread
    def _apart(self, group: Sequence[Wanted]) -> list[Rollout | Failure]:
        with self._alone:
            return self._evaluate(group)

    def _evaluate(self, group: Sequence[Wanted]) -> list[Rollout | Failure]:
        try:
            return [*self._rollouts(group)]
        except Strange as error:
            failure = Failure("harness", "infrastructure", str(error))
        except (Exception, SystemExit) as error:  # noqa: BLE001 # the port wrapper: theirs is a value
            tame = error if isinstance(error, Exception) else RuntimeError(f"SystemExit: {error}")
            failure = failure_of(tame)
            if failure.blame == "infrastructure":
                return [failure for _ in group]
        if len(group) == 1:
            return [failure]
        # find the culprit: evaluate each case of the failed batch alone
        return [answer for wanted in group for answer in self._evaluate([wanted])]

    def _rollouts(self, group: Sequence[Wanted]) -> Iterable[Rollout]:
        texts, traced = group[0].candidate.texts, group[0].traced
        items = [owned(wanted.item) for wanted in group]
        told = self._adapter.evaluate(items, dict(texts), capture_traces=traced)
        scores = _rows(told, "scores", len(group))
        if scores is None:
            raise Strange(f"evaluate returned {told!r:.200}, which has no `scores`")
        others = _rows(told, "objective_scores", len(group)) or [{} for _ in group]
        seen = _rows(told, "trajectories", len(group)) if traced else None
        for at, score in enumerate(scores):
            # the adapter's further objectives become metrics of the case
            metrics = {str(k): number_of(v) for k, v in dict(others[at] or {}).items()}
            metrics[self._metric] = number_of(score)
            bad = [f"{name} is {score!r:.100}" for name, v in metrics.items() if v is None]
            if bad:
                raise Strange(f"evaluate returned scores that are no numbers: {', '.join(bad)}")
            measured = {name: v for name, v in metrics.items() if v is not None}
            trace = tuple(self._trace(texts, told, at)) if seen is not None else ()
            yield Rollout(metrics=measured, trace=trace)

    def _trace(self, texts: Mapping[str, str], told: Any, at: int) -> Iterable[TraceItem]:  # noqa: ANN401 # an EvaluationBatch
        """Records of the adapter for one case, component by component.

        Some adapters refuse to build records for two components at once.
        """
        # a batch of one case: the same object with every list cut down to the entry `at`
        one = copy.copy(told)
        for name in ("outputs", "scores", "trajectories", "objective_scores"):
            rows = getattr(told, name, None)
            setattr(one, name, None if rows is None else [rows[at]])
        for name in texts:
            try:
                made = self._adapter.make_reflective_dataset(dict(texts), one, [name])
                yield from trace_of({name: made.get(name, ())})
            except Exception as error:  # noqa: BLE001 # the case has its score; only this is missing
                words = f"make_reflective_dataset failed for `{name}`: {failure_of(error).message}"
                yield TraceItem(NOTE, words)


def _rows(told: Any, name: str, count: int) -> Sequence[Any] | None:  # noqa: ANN401 # an EvaluationBatch
    """List with one entry per case; None if the adapter returned none."""
    rows = getattr(told, name, None)
    if rows is None:
        return None
    found = list(cast("Iterable[Any]", rows))
    if len(found) != count:
        raise Strange(f"evaluate returned {len(found)} {name} for {count} cases")
    return found
