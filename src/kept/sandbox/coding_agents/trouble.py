"""Why an agent CLI came to nothing: what kind of failure it is, and whose.

| what happened | kind | blame |
|---|---|---|
| the program is not there, or says nothing that can be read | harness | infrastructure |
| its provider answered 401, 404, … or 429, 5xx | as `models.trouble` has it | |
| its provider could not be reached | network | infrastructure |
| no end in time, while its provider failed or before it said anything | timeout | infrastructure |
| no end in time, though it was at work | timeout | candidate |
| ended by a limit of the sandbox, or one of its own | limit | candidate |
| killed | crash | candidate |
| any other exit code, or an event of a shape that is not known | crash | infrastructure |
| the model would not answer | refused | candidate |
| it said nothing in the end | empty | candidate |

What it has asked again by itself, nobody else need ask again.
"""

import re
import signal
from dataclasses import replace

from kept.core.rollout import Failure
from kept.core.words import count
from kept.models.config import ModelConfig
from kept.models.providers import key_name
from kept.models.trouble import of_status
from kept.sandbox.coding_agents.cli import Cli, Told
from kept.sandbox.command import Exit

_LIMITS = (signal.SIGXCPU, signal.SIGXFSZ)
_NOT_RUN = (126, 127)
_NETWORK = re.compile(
    r"connect|network|fetch failed|ECONN|ENOTFOUND|EAI_AGAIN|sending request|stream (?:closed|dis)|"
    r"socket|timed? ?out",
    re.IGNORECASE,
)
_OVERFLOW = re.compile(r"context (?:window|length)|prompt is too long|too many tokens", re.I)


def fault(cli: Cli, config: ModelConfig, told: Told, ended: Exit, timeout: float) -> Failure | None:
    """What is wrong with how a CLI ended; None when nothing is."""
    detail = ended.detail()
    if ended.code in _NOT_RUN and not told.numbered:
        message = f"`{cli.program}` cannot be run ({ended}); {cli.install} installs it"
        return Failure("harness", "infrastructure", message, detail)
    if told.error:
        return _of_error(cli, config, told)
    if ended.timed_out:
        return _late(cli, config, told, timeout, detail)
    if told.stop == "refusal":
        return Failure("refused", "candidate", f"`{config.name}` would not answer", told.final)
    if told.stop:
        return Failure("limit", "candidate", f"`{cli.program}` stopped at {told.stop}", detail)
    if ended.signal in _LIMITS:
        return Failure("limit", "candidate", f"`{cli.program}` was {ended}", detail)
    if ended.signal is not None:
        return Failure("crash", "candidate", f"`{cli.program}` was {ended}", detail)
    if not ended.ok:
        if told.waiting:
            return _of_error(cli, config, told)
        message = f"`{cli.program}` failed ({ended})"
        return Failure("crash", "infrastructure", message, detail)
    return _empty(cli, told, ended)


def _empty(cli: Cli, told: Told, ended: Exit) -> Failure | None:
    if not told.numbered and not told.final:
        message = f"`{cli.program}` said nothing that can be read"
        return Failure("harness", "infrastructure", message, ended.stdout[-4000:])
    if not told.final:
        return Failure("empty", "candidate", f"`{cli.program}` ended without a message")
    return None


def _of_error(cli: Cli, config: ModelConfig, told: Told) -> Failure:
    said = told.error or told.waiting
    if told.status is not None:
        trouble = of_status(config.name, told.status, {}, said.encode(), key_name(config))
        # what it did not ask again by itself may be worth another errand
        return replace(trouble.failure, tried=told.retried)
    if _OVERFLOW.search(said):
        return Failure("context", "candidate", f"`{cli.program}`: {said}")
    kind = "network" if _NETWORK.search(said) else "server"
    message = f"`{cli.program}` gave up on `{config.name}`: {said}"
    return Failure(kind, "infrastructure", message, tried=told.retried)


def _late(cli: Cli, config: ModelConfig, told: Told, timeout: float, detail: str) -> Failure:
    late = f"`{cli.program}` did not end within {count(timeout, 'second')}"
    if told.waiting:
        message = f"{late}, and `{config.name}` failed it: {told.waiting}"
        return Failure("timeout", "infrastructure", message, detail, tried=True)
    if not told.numbered:
        return Failure("timeout", "infrastructure", f"{late} and said nothing", detail, tried=True)
    return Failure("timeout", "candidate", late, detail)
