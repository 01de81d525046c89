"""One long-lived Inspect `eval` in a thread, fed with tasks and samples during a run.

A process may have only one `eval` at a time, and starting it takes longer than a sample. So all
rollouts of a run are concurrent samples of one `eval`. Its logs stay in memory, and its terminal
display and log files are switched off. Hooks record the progress of each rollout and the
exceptions raised in it.
"""

import asyncio
import logging
import threading
import uuid
from collections.abc import Awaitable, Callable, Generator, Mapping, Sequence
from contextlib import contextmanager, suppress
from contextvars import Context, copy_context
from dataclasses import dataclass, field
from functools import partial, wraps
from importlib import import_module
from typing import Any, Literal, TypeVar, cast

from kept.errors import RunError, SetupError

Phase = Literal["waiting", "solving", "solved", "scoring"]


@dataclass(slots=True, eq=False)
class Ask:
    """Request to run one sample once for a candidate."""

    sample: str
    """Id of the sample."""
    epoch: int
    """Epoch of the rollout; keeps repeats apart in Inspect and in its cache."""
    tell: Callable[[Any], None]
    """Callback for Inspect's finished sample, or for the exception that came instead."""
    phase: Phase = "waiting"
    error: BaseException | None = None
    """Exception raised in a solver or a scorer."""
    left: bool = False
    """True once the caller has stopped waiting."""
    scopes: list[Any] = field(default_factory=list[Any])

    @property
    def key(self) -> tuple[str, int]:
        """Key of the request within the running task."""
        return self.sample, self.epoch

    def leave(self) -> None:
        """Cancel the sample, whether it is running or still waiting."""
        self.left = True
        for scope in self.scopes:
            scope.cancel()


class Left(Exception):
    """Raised inside a sample whose caller has stopped waiting."""


def watched(
    inner: Any,  # noqa: ANN401 # a solver or a scorer
    ask_of: Callable[[Any], Ask],
    during: Phase,
    after: Phase,
) -> Callable[[Any, Any], Awaitable[Any]]:
    """Wrap a solver or scorer: record exceptions and allow cancellation.

    Its name in Inspect stays.
    """
    anyio: Any = import_module("anyio")

    @wraps(inner)
    async def call(state: Any, more: Any) -> Any:  # noqa: ANN401 # theirs
        ask = ask_of(state)
        ask.phase = during
        with anyio.CancelScope() as scope:
            ask.scopes.append(scope)
            try:
                if ask.left:
                    raise Left
                told = await inner(state, more)
            except Exception as error:
                ask.error = error
                raise
            finally:
                ask.scopes.remove(scope)
            ask.phase = after
            return told
        raise Left

    return call


NAME = "kept"
"""Metadata entry of a task that identifies its log."""


class Feed:
    """Source of samples for one task. Used only in the thread of the `eval`."""

    def __init__(self, samples: Callable[[str], Any], number: int) -> None:
        self.number = number
        self._samples = samples
        """Factory of a sample by id; a fresh copy each time, as a solver may change it."""
        self._asks: dict[tuple[str, int], Ask] = {}
        self._used: set[tuple[str, int]] = set()
        self._early: list[Ask] = []
        self._context: Context | None = None
        self._wake: asyncio.Event | None = None
        self._ending = False

    @property
    def begun(self) -> bool:
        """True once Inspect has started the task."""
        return self._context is not None

    @property
    def idle(self) -> bool:
        """True if no sample is running or waiting."""
        return not self._asks and self._wake is not None

    def source(self) -> Any:  # noqa: ANN401 # a SampleSource
        """Dataset of the task: a `SampleSource` that is fed during the run."""
        made = import_module("inspect_ai").SampleSource
        return made.from_samples(
            [],
            next_samples=self._next,
            sample_complete=self._ended,
            sample_abandoned=self._abandoned,
        )

    def add(self, ask: Ask) -> None:
        """Queue a sample to run beside those already running."""
        while ask.key in self._used:
            ask.epoch += 1  # a retry needs a key of its own
        self._used.add(ask.key)
        self._asks[ask.key] = ask
        # before Inspect's first call of `_next`, or while `_next` sleeps, only `_next` may enqueue
        if self._context is None or self._wake is not None:
            self._early.append(ask)
            if self._wake is not None:
                self._wake.set()
        else:
            self._context.run(self._enqueue, ask)

    def end(self) -> None:
        """End the task after its current samples."""
        self._ending = True
        if self._wake is not None:
            self._wake.set()

    def fail(self, why: Any) -> None:  # noqa: ANN401 # told as it is
        """Answer all waiting requests with `why`, and end the task."""
        asks, self._asks = list(self._asks.values()), {}
        self._early.clear()
        self._ending = True
        for ask in asks:
            ask.tell(why)

    def leave(self) -> None:
        """Cancel all samples of the task."""
        for ask in self._asks.values():
            ask.leave()

    def adapted(self, task: Any) -> Any:  # noqa: ANN401 # a Task
        """The task with the feed as its dataset, and with its solver and scorers watched."""
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
        """Inspect calls this when no sample is running; returns after new ones are enqueued."""
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


@contextmanager
def unseen() -> Generator[Callable[[], None]]:
    """Silence Inspect, and restore its display and the logging settings afterwards.

    A display that was made for an eval before would be used for this one too, and take the
    terminal. Inspect sets up the logging of the whole process when an eval begins; what is yielded
    is to be called after that, and gives it back.
    """
    shown: Any = import_module("inspect_ai._display.core.active")
    kind: Any = import_module("inspect_ai.util._display")
    display, chosen = shown._active_display, kind._display_type
    shown._active_display = None
    root, theirs = logging.getLogger(), logging.getLogger("inspect_ai")
    level, handlers = root.level, list(root.handlers)
    added: list[logging.Handler] = []
    loud = theirs.level

    def hush() -> None:
        nonlocal loud
        root.setLevel(level)
        added.extend(handler for handler in root.handlers if handler not in handlers)
        for handler in added:
            root.removeHandler(handler)
        loud = theirs.level
        theirs.setLevel(logging.ERROR)

    try:
        yield hush
    finally:
        root.setLevel(level)
        theirs.setLevel(loud)
        for handler in added:
            root.addHandler(handler)
        shown._active_display, kind._display_type = display, chosen


T = TypeVar("T")

OPEN = 64
"""Candidates whose tasks stay open; of more, an idle one is closed."""

START = 30.0
"""Seconds that Inspect gets to start a task; usually it takes milliseconds."""

PATIENCE = 20.0
"""Seconds that Inspect gets to end after `close`."""


class Made:
    """Task of a candidate, with its samples."""

    def __init__(
        self,
        task: Any,  # noqa: ANN401 # a Task
        samples: Callable[[str], Any],
        close: Callable[[], None] = lambda: None,
    ) -> None:
        self.task = task
        self.samples = samples
        """Copy of a sample by its id."""
        self.close = close


class Running:
    """The long-lived `eval`, from `start` to `close`; requests outside this time are refused."""

    def __init__(self, options: Mapping[str, Any], workers: int) -> None:
        self._options = options
        self._workers = workers
        self._feeds: dict[str, Feed] = {}
        """Feeds by candidate id, least recently used first."""
        self._made: dict[int, Made] = {}
        self._unmade: dict[str, BaseException] = {}
        """Exceptions of candidates whose task could not be built."""
        self._number = 0
        self._loop: asyncio.AbstractEventLoop | None = None
        self._context: Context | None = None
        self._stop: asyncio.Event | None = None
        self._hush: Callable[[], None] | None = None
        self._ready = threading.Event()
        self._why: BaseException | None = None
        """Exception that ended the eval."""
        self._thread = threading.Thread(target=self._work, name="kept-inspect", daemon=True)

    def start(self) -> None:
        """Start the eval and wait until it runs; raises a `SetupError` if it cannot."""
        self._thread.start()
        self._ready.wait()
        if self._context is None:
            hint = None
            if isinstance(self._why, ModuleNotFoundError) and self._why.name == "inspect_ai":
                hint = "pip install inspect_ai"
            elif "concurrent calls" in str(self._why):
                hint = "wait for the other eval of this process to end"
            raise SetupError(f"Inspect cannot run: {said(self._why)}", hint=hint)

    def call(self, function: Callable[[], T]) -> T:
        """Call a function in the thread and context that build tasks; wait for its result."""
        done = threading.Event()
        found: list[Any] = []

        def do() -> None:
            assert self._context is not None
            try:
                found.append((True, self._context.copy().run(function)))
            except BaseException as error:  # noqa: BLE001 # carried over to the caller's thread
                found.append((False, error))
            done.set()

        if not self._soon(do):
            raise RunError(f"Inspect's eval has ended: {said(self._why)}")
        while not done.wait(1.0):
            if not self._thread.is_alive():
                raise RunError(f"Inspect's eval has ended: {said(self._why)}")
        well, told = found[0]
        if not well:
            raise told
        return cast("T", told)

    async def run(self, candidate: str, make: Callable[[], Made], ask: Ask) -> Any:  # noqa: ANN401 # an EvalSample
        """Inspect's finished sample, or the exception that came instead."""
        here = asyncio.get_running_loop()
        future: asyncio.Future[Any] = here.create_future()

        def settle(told: object) -> None:
            if not future.done():
                future.set_result(told)

        def tell(told: object) -> None:
            # the loop is closed: the caller has stopped waiting
            with suppress(RuntimeError):
                here.call_soon_threadsafe(settle, told)

        ask.tell = tell
        if not self._soon(self._begin, candidate, make, ask):
            return RuntimeError(f"Inspect's eval has ended: {said(self._why)}")
        try:
            return await future
        except asyncio.CancelledError:
            self._soon(ask.leave)
            raise

    def close(self) -> None:
        """Cancel running samples, and wait until the eval has ended."""
        if self._thread.is_alive():
            self._soon(self._finish)
            self._thread.join(PATIENCE)

    def _soon(self, function: Callable[..., None], *args: object) -> bool:
        """Schedule a function in the eval's thread; False if the thread has ended."""
        if self._loop is None or not self._thread.is_alive():
            return False
        try:
            self._loop.call_soon_threadsafe(function, *args)
        except RuntimeError:
            return False  # the loop was closed a moment ago
        return True

    def _begin(self, candidate: str, make: Callable[[], Made], ask: Ask) -> None:
        assert self._stop is not None
        if self._stop.is_set():
            ask.tell(RuntimeError("Inspect's eval is ending"))
            return
        feed = self._feeds.pop(candidate, None)
        if feed is None:
            try:
                if candidate in self._unmade:
                    raise self._unmade[candidate]
                feed = self._opened(make)
            except (Exception, SystemExit) as error:  # noqa: BLE001 # handed on to whoever waits
                if not isinstance(error, OSError):
                    # no outage: it would end like this every time
                    self._unmade[candidate] = error
                ask.error = error
                ask.tell(error)
                return
        self._feeds[candidate] = feed
        feed.add(ask)
        self._trim()

    def _opened(self, make: Callable[[], Made]) -> Feed:
        assert self._context is not None
        made = self._context.copy().run(make)
        self._number += 1
        feed = Feed(made.samples, self._number)
        self._made[feed.number] = made
        self._context.run(import_module("inspect_ai").enqueue_task, feed.adapted(made.task))
        assert self._loop is not None
        # Inspect reports nothing about a task that it cannot even start
        self._loop.call_later(START / 2, self._started, feed)
        return feed

    def _started(self, feed: Feed, *, last: bool = False) -> None:
        if feed.begun:
            return
        if last:
            self._drop(feed.number, "it did not start, and its log says why")
        else:
            # Inspect may not have had a chance to run yet: a solver can block the thread
            assert self._loop is not None
            self._loop.call_later(START / 2, partial(self._started, feed, last=True))

    def _trim(self) -> None:
        idle = [name for name, feed in self._feeds.items() if feed.idle]
        for name in idle[: max(0, len(self._feeds) - OPEN)]:
            self._feeds.pop(name).end()

    def _finish(self) -> None:
        for feed in self._feeds.values():
            feed.leave()
            feed.end()
        if self._stop is not None:
            self._stop.set()

    def _work(self) -> None:
        try:
            self._eval()
        except BaseException as error:  # noqa: BLE001 # told to whoever asks next
            self._why = error
        for feed in self._feeds.values():
            feed.fail(RuntimeError(f"Inspect's eval has ended: {said(self._why)}"))
        for made in self._made.values():
            made.close()
        self._ready.set()

    def _eval(self) -> None:
        theirs: Any = import_module("inspect_ai")
        # this task stays open from beginning to end, so that tasks can be added at any time
        anchor = theirs.Task(dataset=theirs.SampleSource.from_samples([], next_samples=self._began))
        source = theirs.TaskSource.from_tasks([anchor], task_complete=self._completed)
        with unseen() as self._hush:
            theirs.eval(
                source,
                **self._options,
                display="log",
                log_dir=f"memory://kept-{uuid.uuid4().hex}",
                log_samples=False,
                log_realtime=False,
                log_model_api=False,
                log_header_only=True,
                score_display=False,
                ctl_server=False,
                fail_on_error=False,
                max_samples=self._workers,
                max_tasks=1 << 20,
            )

    async def _began(self) -> None:
        if self._hush is not None and "log_level" not in self._options:
            self._hush()
        self._loop = asyncio.get_running_loop()
        self._context = copy_context()
        self._stop = asyncio.Event()
        self._ready.set()
        await self._stop.wait()

    async def _completed(self, log: Any) -> None:  # noqa: ANN401 # an EvalLog
        metadata: dict[str, Any] = log.eval.metadata or {}
        number = int(metadata.get(NAME, 0))
        made = self._made.pop(number, None)
        if made is not None:
            made.close()
        # a feed that is still listed was not closed by us: its task ended with an error
        self._drop(number, log.error.message if log.error else f"its status is {log.status}")

    def _drop(self, number: int, why: str) -> None:
        for name, feed in list(self._feeds.items()):
            if feed.number == number:
                del self._feeds[name]
                feed.fail(RuntimeError(f"Inspect ended the task: {why}"))


def said(error: BaseException | None) -> str:
    """Text of an exception, without the console markup that Inspect puts into some of its own."""
    if error is None:
        return "nobody knows why"
    text = str(getattr(error, "message", "") or error) or type(error).__name__
    for mark in ("[bold]", "[/bold]", "[blue]", "[/blue]"):
        text = text.replace(mark, "")
    return " ".join(text.split())
