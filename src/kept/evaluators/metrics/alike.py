"""Likeness of texts of any length: long ones are compared in a process apart, and given up in time.

What is compared grows with the product of both lengths, and an answer may be as long as it likes.
"""

from pathlib import Path

from kept.core.rollout import Failure
from kept.evaluators.metrics.config import Likeness
from kept.evaluators.metrics.likeness import likeness, missing_library
from kept.evaluators.metrics.subject import Measured
from kept.evaluators.scorers.function import Function
from kept.evaluators.workers.pool import Processes
from kept.settings import install_command

QUICK = 500_000
"""Product of two lengths that takes a tenth of a second at worst."""

_FAR = Function("kept.evaluators.workers.similarity_main:measure", Path(__file__).parents[3])


class Alike:
    """The processes for long texts, started when needed and used again."""

    def __init__(self) -> None:
        self._far = Processes(_FAR)

    async def measure(
        self, metric: Likeness, response: str, truth: str, seconds: float
    ) -> Measured | Failure:
        """What a likeness comes to."""
        if library := missing_library(metric):
            message = f"`{metric}` needs `{library}`: {install_command('metrics')}"
            return Failure("harness", "infrastructure", message)
        if len(response) * len(truth) <= QUICK:
            return likeness(metric, response, truth)
        asked = {"case": {"metric": metric, "response": response, "truth": truth}}
        reply = await self._far.ask(asked, seconds)
        return reply if isinstance(reply, Failure) else Measured(*reply["result"])

    def close(self) -> None:
        """End the processes."""
        self._far.close()
