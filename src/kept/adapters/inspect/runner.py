"""Runs one sample of a task once, as a candidate has it; Inspect's own scorers score it."""

import asyncio
import hashlib
from functools import partial
from typing import Any

from kept.adapters.inspect.making import Maker, made
from kept.adapters.inspect.reading import Reader
from kept.adapters.inspect.running import Made, Running
from kept.adapters.inspect.samples import Samples
from kept.adapters.inspect.watching import Ask
from kept.adapters.records import findings_in
from kept.core.artifact import Candidate
from kept.core.case import Case
from kept.core.ports import Scope
from kept.core.rollout import Failure, Job, Rollout
from kept.core.score import Score


class TaskRunner:
    """Implements `Runner` and `Scorer`."""

    def __init__(
        self,
        running: Running,
        maker: Maker,
        samples: Samples,
        reader: Reader,
        *,
        seed: int = 0,
        source: str = "",
    ) -> None:
        self._running = running
        self._maker = maker
        self._samples = samples
        self._reader = reader
        self._seed = seed
        self.source = source
        """By which a resume notices another task."""

    async def run(
        self, job: Job, candidate: Candidate, case: Case, scope: Scope
    ) -> Rollout | Failure:
        """Have Inspect run the sample beside all others that are under way."""
        make = partial(self._make, candidate)
        ask = Ask(case.id, self._draw(job), _nobody)
        told = await self._running.run(candidate.id, make, ask)
        return self._reader.read(told, ask, seen=job.purpose in ("feedback", "probe"))

    async def score(
        self, job: Job, rollout: Rollout, candidate: Candidate, case: Case, scope: Scope
    ) -> Score | Failure:
        """What the scorers said."""
        return Score(rollout.metrics, findings_in(rollout.trace))

    async def close(self) -> None:
        """End the eval, and wait until it is gone."""
        await asyncio.get_running_loop().run_in_executor(None, self._running.close)

    def _make(self, candidate: Candidate) -> Made:
        return made(self._maker, self._samples, candidate.texts)

    def _draw(self, job: Job) -> int:
        """The epoch of a rollout: Inspect's cache answers the same draw, never two draws alike."""
        name = f"{self._seed} {job.purpose} {job.repeat}"
        return 1 + int.from_bytes(hashlib.sha256(name.encode()).digest()[:3], "big")


def _nobody(told: Any) -> None:  # noqa: ANN401 # whatever is told
    """Until somebody waits."""
