"""One task of a running `eval`: samples are handed to it as they are wanted."""

import asyncio
from collections.abc import Callable, Sequence
from contextvars import Context, copy_context
from importlib import import_module
from typing import Any, cast

from kept.adapters.inspect.watching import Ask, watched

NAME = "kept"
"""The entry of a task's metadata by which its log is known."""


class Feed:
    """Belongs to the thread of the `eval`, as all that it calls."""

    def __init__(self, samples: Callable[[str], Any], number: int) -> None:
        self.number = number
        self._samples = samples
        """A sample of the candidate's by its id; made anew, for a solver may change it."""
        self._asks: dict[tuple[str, int], Ask] = {}
        self._used: set[tuple[str, int]] = set()
        self._early: list[Ask] = []
        self._context: Context | None = None
        self._wake: asyncio.Event | None = None
        self._ending = False

    @property
    def begun(self) -> bool:
        """Whether Inspect has started the task."""
        return self._context is not None

    @property
    def idle(self) -> bool:
        """Whether it has nothing to do."""
        return not self._asks and self._wake is not None

    def source(self) -> Any:  # noqa: ANN401 # a SampleSource
        """What stands in the task for its dataset."""
        made = import_module("inspect_ai").SampleSource
        return made.from_samples(
            [],
            next_samples=self._next,
            sample_complete=self._ended,
            sample_abandoned=self._abandoned,
        )

    def add(self, ask: Ask) -> None:
        """Have a sample run, beside what runs already."""
        while ask.key in self._used:
            ask.epoch += 1  # it is tried again
        self._used.add(ask.key)
        self._asks[ask.key] = ask
        if self._context is None or self._wake is not None:
            self._early.append(ask)
            if self._wake is not None:
                self._wake.set()
        else:
            self._context.run(self._enqueue, ask)

    def end(self) -> None:
        """Have the task end, when what it has is done."""
        self._ending = True
        if self._wake is not None:
            self._wake.set()

    def fail(self, why: Any) -> None:  # noqa: ANN401 # told as it is
        """Tell all who wait that nothing will come."""
        asks, self._asks = list(self._asks.values()), {}
        self._early.clear()
        self._ending = True
        for ask in asks:
            ask.tell(why)

    def leave(self) -> None:
        """Stop whatever is under way."""
        for ask in self._asks.values():
            ask.leave()

    def adapted(self, task: Any) -> Any:  # noqa: ANN401 # a Task
        """A task that runs what it is fed, and is watched."""
        setup = task.setup
        steps = list(cast("Sequence[Any]", setup)) if isinstance(setup, Sequence) else [setup]
        return import_module("inspect_ai").task_with(
            task,
            dataset=self.source(),
            setup=[watched(step, self._of, "solving", "solving") for step in steps if step] or None,
            solver=watched(task.solver, self._of, "solving", "solved"),
            scorer=[watched(one, self._of, "scoring", "scoring") for one in task.scorer],
            epochs=None,
            fail_on_error=None,
            continue_on_fail=None,
            early_stopping=None,
            metadata={**(task.metadata or {}), NAME: self.number},
        )

    def _of(self, state: Any) -> Ask:  # noqa: ANN401 # a TaskState
        return self._asks[str(state.sample_id), state.epoch]

    def _enqueue(self, ask: Ask) -> None:
        try:
            sample = self._samples(ask.sample)
        except Exception as error:  # noqa: BLE001 # handed on to whoever waits
            del self._asks[ask.key]
            ask.tell(error)
            return
        import_module("inspect_ai").enqueue_sample(sample, epoch=ask.epoch)

    async def _next(self) -> list[Any] | None:
        """Called where nothing is under way; what is enqueued in here is run."""
        self._context = copy_context()
        if not self._early and not self._ending:
            self._wake = asyncio.Event()
            await self._wake.wait()
            self._wake = None
        early, self._early = self._early, []
        for ask in early:
            self._enqueue(ask)
        return None if self._ending and not early else []

    async def _ended(self, sample: Any) -> None:  # noqa: ANN401 # an EvalSample
        ask = self._asks.pop((str(sample.id), sample.epoch), None)
        if ask is not None:
            ask.tell(sample)

    async def _abandoned(self, sample: Any, epoch: int) -> None:  # noqa: ANN401 # a Sample
        ask = self._asks.pop((str(sample.id), epoch), None)
        if ask is not None:
            ask.tell(RuntimeError("Inspect gave the sample up before it ran"))
