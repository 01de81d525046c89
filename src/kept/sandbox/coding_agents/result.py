"""Results of agent CLIs: JSON lines, traces, and classification of failures.

| what happened | kind | blame |
|---|---|---|
| the program is not there, or says nothing that can be read | harness | infrastructure |
| its provider answered 401, 404, … or 429, 5xx | as in `models.protocol` | |
| its provider could not be reached | network | infrastructure |
| no end in time, while its provider failed or before any output | timeout | infrastructure |
| no end in time, though it was at work | timeout | candidate |
| ended by a limit of the sandbox, or one of its own | limit | candidate |
| killed | crash | candidate |
| any other exit code, or an event of a shape that is not known | crash | infrastructure |
| the model would not answer | refused | candidate |
| it said nothing in the end | empty | candidate |

Calls that the CLI retried itself are not retried again. The result is a rollout with its trace
and full output, or a failure.
"""

import gzip
import re
import signal
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, TypeVar, cast

from kept.core.parsing import parse_json
from kept.core.rollout import Failure, Rollout, TraceItem, Usage
from kept.core.text import count, one_line, shortened
from kept.core.untyped import is_dict
from kept.models.prices import rates_of, warn_of_usage
from kept.models.protocol import Taken, is_count, maps, of_status
from kept.models.providers import ModelConfig, key_name
from kept.sandbox.coding_agents.definition import Cli, Event, Session, Told
from kept.sandbox.command import Exit
from kept.sandbox.workspace import Output
from kept.settings import MARK, hide_in

T = TypeVar("T")


class BadEvent(ValueError):
    """Event of a CLI with an unexpected shape; the message says what is wrong."""


def block(event: Event, key: str) -> dict[str, Any]:
    """Return the object under a key; an empty one if it is missing. Raises `BadEvent`."""
    return cast("dict[str, Any]", _of_type(event, key, dict) or {})


def text(event: Event, key: str) -> str:
    """Return the text under a key; an empty one if it is missing. Raises `BadEvent`."""
    return _of_type(event, key, str) or ""


def blocks(event: Event, key: str) -> list[dict[str, Any]]:
    """Return the objects in the list under a key, skipping others. Raises `BadEvent`."""
    return maps(cast("object", _of_type(event, key, list)))


def _of_type(event: Event, key: str, wanted: type[T]) -> T | None:
    value = event.get(key)
    if value is None or isinstance(value, wanted):
        return value
    raise BadEvent(f"`{key}` of `{event.get('type')}` is of type {type(value).__name__}")


def counts(usage: Event, *keys: str) -> tuple[int, ...] | None:
    """Token counts, 0 for a missing one; None if one is impossible."""
    found = [usage.get(key) or 0 for key in keys]
    return tuple(found) if all(map(is_count, found)) else None


_STATUS = re.compile(r"\b([45]\d\d)\b")


def events_of(text: str) -> Iterator[Event]:
    """Yield the JSON objects of a text; other lines are skipped."""
    for line in text.splitlines():
        if (found := _object(line)) is not None:
            yield found


def _object(line: str | bytes) -> dict[str, Any] | None:
    try:
        found: object = parse_json(line)
    except ValueError:
        return None
    return found if is_dict(found) else None


def cut_lines(session: bytes, steps: int, ends_step: Callable[[Event], bool]) -> bytes:
    """Session up to the line that ends so many steps; all of it if it has no more."""
    kept: list[bytes] = []
    for line in session.splitlines(keepends=True):
        kept.append(line)
        found = _object(line)
        if found is not None and ends_step(found):
            steps -= 1
            if steps <= 0:
                break
    return b"".join(kept)


def status_of(value: object) -> int | None:
    """HTTP status from a number; None for any other value."""
    return value if type(value) is int and 100 <= value < 600 else None


def status_in(message: str) -> int | None:
    """HTTP status mentioned in a message; None if there is none."""
    found = _STATUS.search(message)
    return int(found[1]) if found else None


_LIMITS = (signal.SIGXCPU, signal.SIGXFSZ)
_NOT_RUN = (126, 127)
_NETWORK = re.compile(
    r"connect|network|fetch failed|ECONN|ENOTFOUND|EAI_AGAIN|sending request|stream (?:closed|dis)|"
    r"socket|timed? ?out",
    re.IGNORECASE,
)
_OVERFLOW = re.compile(r"context (?:window|length)|prompt is too long|too many tokens", re.I)


def fault(cli: Cli, config: ModelConfig, told: Told, ended: Exit, timeout: float) -> Failure | None:
    """Failure of a CLI by its exit and events; None if it succeeded."""
    detail = ended.detail()
    # exit 126 or 127: the shell could not run the program
    if ended.code in _NOT_RUN and not told.numbered:
        message = f"`{cli.program}` cannot be run ({ended}); {cli.install} installs it"
        return Failure("harness", "infrastructure", message, detail)
    # the CLI's own report is more precise than its exit, so it comes first
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
        # if the CLI did not retry by itself, another run may succeed
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


MOST_DETAIL = 4000
"""Maximum characters of the steps in a failure."""

MOST_LINE = 300
"""Maximum characters of a step in a summary."""


@dataclass(frozen=True, slots=True)
class Result:
    """A CLI run that has ended, in whatever way."""

    cli: Cli
    config: ModelConfig
    prompt: str
    ended: Exit
    timeout: float
    worst_usd: float = 0.0

    def brought(
        self, output: Output | Failure, shown: Mapping[str, bytes], home: str
    ) -> Rollout | Failure:
        """Return a rollout or a failure.

        `shown` are files that we put into the workspace, and `home` is a folder of ours there.
        """
        try:
            told = self.cli.listen(events_of(self.ended.stdout))
        except BadEvent as error:
            message = f"`{self.cli.program}` printed an event that cannot be read: {error}"
            detail = self.ended.stdout[-MOST_DETAIL:]
            return Failure("crash", "infrastructure", message, detail)
        usage = self._usage(told.taken)
        failure = fault(self.cli, self.config, told, self.ended, self.timeout)
        if failure is None and isinstance(output, Failure):
            failure = output
        if failure is not None or isinstance(output, Failure):
            assert failure is not None
            seen = shortened("\n".join((*_lines(told), failure.detail)).strip(), MOST_DETAIL)
            return replace(failure, detail=seen, usage=usage)
        files = {
            path: data
            for path, data in output.files.items()
            if shown.get(path) != data and not path.startswith(f"{home}/")
        }
        summary = self._summary(told, usage)
        files[self.cli.raw] = self._raw()
        files[self.cli.summary] = summary.encode()
        session = self._session(told, output, home)
        if session is not None:
            # compressed: even a minimal session of claude takes a quarter of a megabyte
            files[self.cli.session] = gzip.compress(session, mtime=0)
        trace = (TraceItem("user", self.prompt), *told.steps, *self._info(told, usage, output))
        return Rollout(output=told.final, files=files, trace=trace, usage=usage)

    def _usage(self, taken: Taken | None) -> Usage:
        if taken is None:
            warn_of_usage(self.config.name, self.cli.program)
            return Usage(1, usd=self.worst_usd)
        rates = rates_of(self.config)
        usd = rates.usd(taken) if rates else 0.0
        # one call of ours, however often the CLI called its model
        return Usage(1, taken.tokens_in, taken.tokens_out, taken.cached, usd)

    def _info(self, told: Told, usage: Usage, output: Output) -> list[TraceItem]:
        left = [TraceItem("info", f"left out of the output: {what}") for what in output.skipped]
        return [*left, TraceItem("info", self._head(told, usage), {"session": told.session})]

    def _head(self, told: Told, usage: Usage) -> str:
        steps = count(len(told.numbered), "step")
        tokens = f"{usage.tokens_in:,} tokens in, {usage.tokens_out:,} out"
        return f"{self.cli.program} with {self.config.name}: {steps}, {tokens}"

    def _summary(self, told: Told, usage: Usage) -> str:
        return "\n".join((self._head(told, usage), *_lines(told), ""))

    def _raw(self) -> bytes:
        errors = self.ended.stderr.strip()
        raw = self.ended.stdout + (f"\n===== stderr =====\n{errors}\n" if errors else "")
        return raw.encode("utf-8", "surrogateescape")

    def _session(self, told: Told, output: Output, home: str) -> bytes | None:
        """Session file that the CLI left; None if there is none."""
        rows = output.files.items()
        return next(
            (
                data
                for path, data in rows
                if told.session and told.session in path and path.startswith(f"{home}/")
            ),
            None,
        )


def session_of(cli: Cli, rollout: Rollout, after: int) -> Session | None:
    """Session of an agent as it was after a step; None if it is not available.

    The files of the workspace are no part of it: the agent continues with those that it finds.
    """
    data = rollout.files.get(cli.session)
    named = (item.data.get("session") for item in reversed(rollout.trace))
    id_ = next((str(name) for name in named if name), "")
    if cli.ends_step is None or data is None or not id_:
        return None
    return Session(id_, cut_lines(gzip.decompress(data), after, cli.ends_step))


def _lines(told: Told) -> list[str]:
    """Steps in short, each with its number."""
    return [
        f"[{item.data['step']}] {item.role}: {one_line(item.text, MOST_LINE)}"
        for item in told.numbered
    ]


def hide(secret: str, found: Rollout | Failure) -> Rollout | Failure:
    """Result without the key that the CLI was given."""
    if isinstance(found, Failure):
        message, detail = (text.replace(secret, MARK) for text in (found.message, found.detail))
        return replace(found, message=message, detail=detail)
    trace = tuple(replace(item, text=item.text.replace(secret, MARK)) for item in found.trace)
    files = hide_in(secret, found.files)
    return found._replace(output=found.output.replace(secret, MARK), files=files, trace=trace)
