"""What came of an agent CLI: a rollout with its trace and all it said, or a failure."""

import gzip
from collections.abc import Mapping
from dataclasses import dataclass, replace

from kept.core.rollout import Failure, Rollout, TraceItem, Usage
from kept.core.words import count, one_line, shortened
from kept.models.config import ModelConfig
from kept.models.prices import rates_of
from kept.models.pricing import warn_of_usage
from kept.models.speech import Taken
from kept.sandbox.coding_agents.cli import Cli, Told
from kept.sandbox.coding_agents.errand import Session
from kept.sandbox.coding_agents.lines import BadEvent, cut_lines, events_of
from kept.sandbox.coding_agents.trouble import fault
from kept.sandbox.command import Exit
from kept.sandbox.workspace import Output
from kept.settings import MARK, hide_in

MOST_DETAIL = 4000
"""Characters of the steps that a failure tells."""

MOST_LINE = 300
"""Characters of a step in a summary."""


@dataclass(frozen=True, slots=True)
class Result:
    """A CLI that has ended, one way or another."""

    cli: Cli
    config: ModelConfig
    prompt: str
    ended: Exit
    timeout: float
    worst_usd: float = 0.0

    def brought(
        self, output: Output | Failure, shown: Mapping[str, bytes], home: str
    ) -> Rollout | Failure:
        """A rollout or a failure; `shown` are files of ours, and `home` is a folder of ours."""
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
            # a quarter of a megabyte for a claude that did next to nothing
            files[self.cli.session] = gzip.compress(session, mtime=0)
        trace = (TraceItem("user", self.prompt), *told.steps, *self._info(told, usage, output))
        return Rollout(output=told.final, files=files, trace=trace, usage=usage)

    def _usage(self, taken: Taken | None) -> Usage:
        if taken is None:
            warn_of_usage(self.config.name, self.cli.program)
            return Usage(1, usd=self.worst_usd)
        rates = rates_of(self.config)
        usd = rates.usd(taken) if rates else 0.0
        # however often it asked its model: it is one call of ours
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
        """What it needs to go on, where it has left that."""
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
    """What an agent is to go on from, as it was after a step; None where that cannot be had.

    The files of the workspace are no part of it: they are what they are when it goes on.
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
    """A result without the key that the CLI was given."""
    if isinstance(found, Failure):
        message, detail = (text.replace(secret, MARK) for text in (found.message, found.detail))
        return replace(found, message=message, detail=detail)
    trace = tuple(replace(item, text=item.text.replace(secret, MARK)) for item in found.trace)
    files = hide_in(secret, found.files)
    return found._replace(output=found.output.replace(secret, MARK), files=files, trace=trace)
