"""Pools of processes that run user functions; errors become failures."""

from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from kept.core.rollout import Failure, FailureKind
from kept.core.text import count
from kept.sandbox.worker import Child, ChildEnded, explained
from kept.sandbox.worker_pool import CallRaised, WorkerPool


class FunctionPool(WorkerPool):
    """Process pool for one or several user functions; no `Failure` blames the candidate."""

    def __init__(
        self,
        start: Callable[[], Child],
        start_seconds: float,
        most: int | None = None,
        *,
        name: str = "",
        confined: bool = False,
    ) -> None:
        """Take the function's name if there is one; `confined` is True in a sandbox."""
        super().__init__(start, start_seconds, most)
        self._what = f"`{name}`" if name else "it"
        self._process = f"the process of `{name}`" if name else "its process"
        self._confined = confined

    async def tell(self) -> dict[str, Any] | Failure:
        """Return the first message of the handler."""
        return await self._safe(self.about(), self._start_seconds, "harness")

    async def result(
        self, given: Mapping[str, object], seconds: float, late: FailureKind = "harness"
    ) -> Any | Failure:  # noqa: ANN401 # any JSON
        """Call the function and return its result; `late` is the failure kind of a timeout."""
        return await self._safe(self.ask(given, seconds), seconds, late)

    async def _safe(
        self, doing: Awaitable[Any], seconds: float, late: FailureKind
    ) -> Any | Failure:  # noqa: ANN401 # any JSON
        kind: FailureKind = "harness"
        detail = ""
        try:
            return await doing
        except ChildEnded as error:
            message, detail = f"{self._process} {error}", error.detail
        except TimeoutError:
            kind, message = late, f"{self._what} did not answer within {count(seconds, 'second')}"
        except OSError as error:
            kind, message = "limit", f"cannot start a process for {self._what}: {error.strerror}"
        except CallRaised as error:
            words = str(error).partition("\n")[0]
            words = explained(words) if self._confined else words
            message, detail = f"{self._what} raised {words}", error.detail
        except ValueError as error:
            message = f"{self._what} returned what cannot be used: {error}"
        return Failure(kind, "infrastructure", message, detail)
