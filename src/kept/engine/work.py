"""What is to be rolled out, and who waits for it."""

import asyncio
import heapq

from kept.core.rollout import FREE, Job, Pair, Rollout, TraceItem, Usage
from kept.core.score import Outcome
from kept.engine.scope import JournalScope


class Order:
    """Someone waiting for a number of pairs."""

    __slots__ = ("candidates", "future", "left", "step")

    def __init__(self, left: int, step: int, candidates: set[str]) -> None:
        self.left = left
        self.step = step
        self.candidates = candidates
        self.future: asyncio.Future[None] = asyncio.get_running_loop().create_future()


class Work:
    """One pair to be rolled out."""

    # what is the same for all of them at first stands here, not in every one: there are so many
    task: asyncio.Task[None] | None = None
    started = 0.0
    tried = 0.0
    """When the last try began, where it was not the first."""
    ended = 0.0
    tries = 1
    scope: JournalScope | None = None
    """Of the try that is under way."""
    called = False
    """Whether calls were made through its scopes."""
    rollout: Rollout | None = None
    details: tuple[TraceItem, ...] = ()
    """How its score came about."""
    usage: Usage = FREE
    scope_usage: Usage = FREE
    ran: Usage = FREE
    """Of the runner's calls, once it has returned: a scorer that tries again replays none."""
    yielded: bool | None = None
    """Whether others had a turn while it was rolled out; None where nobody watched."""
    outcome: Outcome | None = None
    """Set when it is done, a moment before it is written and told."""
    swept = False
    """True if it was cancelled because its caller had gone."""
    away = False
    """Whether it is nobody's any more: told, failed or cancelled."""

    def __init__(self, job: Job, pair: Pair, step: int, order: Order) -> None:
        self.job = job
        self.pair = pair
        self.step = self.payer = step
        """Who asked first, and who pays for it: they, or one that joined and is left."""
        self.orders = [order]

    def let_others(self) -> None:
        """Others have a turn."""
        self.yielded = True

    def join(self, order: Order) -> None:
        """Someone else waits for it, too."""
        self.orders.append(order)
        self._find_payer()

    def leave(self, order: Order) -> None:
        """Someone waits for it no more, if ever they did."""
        if order in self.orders:
            self.orders.remove(order)
            self._find_payer()

    def _find_payer(self) -> None:
        steps = [order.step for order in self.orders]
        self.payer = self.step if not steps or self.step in steps else steps[0]


class Queue:
    """Work that waits for a worker: that of elder steps first, then in the order it came."""

    def __init__(self) -> None:
        self._batches: list[tuple[int, int, list[Work]]] = []
        self._count = 0
        self.first: list[Work] = []
        """The batch whose turn it is, the next one last."""

    def put(self, step: int, works: list[Work]) -> None:
        """Add what one Order brought."""
        works.reverse()  # taken from the end
        heapq.heappush(self._batches, (step, self._count, works))
        self._count += 1
        self.first = self._batches[0][2]

    def take(self) -> Work | None:
        """The next one."""
        while not self.first and self._batches:
            heapq.heappop(self._batches)
            self.first = self._batches[0][2] if self._batches else []
        return self.first.pop() if self.first else None

    def clear(self) -> None:
        """Drop all of it."""
        self._batches.clear()
        self.first = []

    def __len__(self) -> int:
        return sum(len(works) for _, _, works in self._batches)

    def __bool__(self) -> bool:
        return bool(self.first) or any(works for _, _, works in self._batches)
