"""Commands that are killed with SIGKILL and resumed, beside a server that counts their requests."""

import json
import os
import random
import re
import signal
import sqlite3
import subprocess
import sys
import time
from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from difflib import unified_diff
from itertools import zip_longest
from math import inf
from pathlib import Path

from kept.core.llm import ModelReply
from kept.core.state import State
from kept.store import codec
from kept.store.reader import Run
from kept.testing.server import Fault, ModelServer, Seen
from tests import warm
from tests.engine.cutting import calls, rows
from tests.store.test_private import opened_up

Answer = Callable[[Seen], str | ModelReply | Fault]

READ_SECONDS = 0.2
"""A reply sent this long before a kill counts as read. At a load of 12, 21 ms were enough."""

TIMEOUT_SECONDS = 120

MOST_KILLS = 3
"""Of one run, before it may end."""

STORE = (
    "journal.jsonl",
    "rollouts.jsonl",
    "blobs.pack",
    "blobs.idx",
    "steps.idx",
    "exports.jsonl",
    "lock",
)
"""Files of a run that hold times; what they say is compared as a `State`."""

VARYING = (
    (r"\d{8}-\d{6}-[0-9a-f]{8}", "RUN"),
    (r"\d{4}-\d\d-\d\d_\d\d-\d\d-\d\d_[0-9a-f]{8}", "RUN"),
    (r"refine_\d{8}T\d{6}Z(_\d+)?", "SESSION"),
    (r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d(:\d\d(\.\d+)?)?(\+00:00|Z)?", "TIME"),
    (r"""(["'](\w*seconds|elapsed_s|duration_sec)["']): [\d.e-]+""", r"\1: 0"),
    (r"\b[\d.,]+ (ms|s|min)\b", "0 s"),
    (r"\b\d+ m 0 s\b", "0 s"),  # over a minute
    (r"(?m)^(\d+,TIME,.*),[\d.]+$", r"\1,0"),  # trajectory.csv
    (r"""("row_digests" VALUES\('.*'),'[0-9a-f]{64}'""", r"\1,'DIGEST'"),  # of rows with times
    (r" \d+ of them moot,", ""),
    (r"\* Paid for and not used, because an earlier step was kept meanwhile: .*\n", ""),
)
"""Times, names made of times, and rollouts that no verdict used, in what a run writes."""

NOTHING_TO_RESUME = "there is no run in|the run ended before it began"

MOST_LINES = 60
"""Of a difference."""


def kept(folder: Path, *words: str, **more: str) -> "subprocess.Popen[str]":
    """Start a command in a folder that is also its home, with an environment of its own."""
    env = {"PATH": os.defpath, "HOME": str(folder), "KEY": "none", **more}
    command = [sys.executable, "-m", "kept", *words]
    pipe = subprocess.PIPE
    return warm.Popen(command, cwd=folder, env=env, stdout=pipe, stderr=pipe, text=True)


def killed_at(process: "subprocess.Popen[str]", server: ModelServer, answers: int) -> None:
    """Kill it as soon as the server has given so many answers; it must not have ended before."""
    while process.poll() is None and len(server.answered) < answers:
        time.sleep(0.005)
    process.send_signal(signal.SIGKILL)
    _, told = process.communicate(timeout=TIMEOUT_SECONDS)
    assert process.returncode == -signal.SIGKILL, told


@dataclass(frozen=True)
class Killable:
    """A command to kill: its files, its words, and the models that answer it."""

    write: Callable[[Path, str], Sequence[str]]
    """Writes the inputs to a folder, given the address of the server; returns the words."""
    answers: Callable[[], Answer]
    """A fresh script for the models of one run."""
    resume: Sequence[str] = ("resume", "-q")
    more: Mapping[str, str] = field(default_factory=dict[str, str])
    """Further environment variables of its processes."""


@dataclass(frozen=True)
class End:
    """What a run comes to: its state, its files without times, its exit code."""

    code: int
    state: State
    files: Mapping[str, str]


@dataclass(frozen=True)
class Reference:
    """The run that nothing disturbs."""

    end: End
    replied: Sequence[float]
    """Seconds from its start to each reply."""
    seconds: float
    requests: Counter[str]

    def moment(self, share: float) -> float:
        """Seconds from the start: a quarter before the first reply, a quarter after the last."""
        first, last = self.replied[0], self.replied[-1]
        shares, seconds = (0.0, 0.25, 0.75, 1.0), (0.0, first, last, self.seconds)
        at = bisect_right(shares, share) - 1
        part = (share - shares[at]) / (shares[at + 1] - shares[at])
        return seconds[at] + part * (seconds[at + 1] - seconds[at])


@dataclass
class Session:
    """One process working on a run."""

    requests: list[Seen] = field(default_factory=list[Seen])
    sent: dict[int, float] = field(default_factory=dict[int, float])
    """When each reply was sent, by the number of its request."""
    killed: float = inf

    def unread(self) -> Iterator[str]:
        """Requests whose reply the process may not have read before it was killed."""
        for seen in self.requests:
            if self.sent[seen.number] > self.killed - READ_SECONDS:
                yield body(seen)


class Kills:
    """Runs of one command beside one server."""

    def __init__(self, command: Killable, folder: Path) -> None:
        self.command = command
        self.folder = folder
        self.kills = 0
        self.repeated = 0
        """Requests that were made again because their reply had not been read."""
        self.server = ModelServer(self._answer, latency=0.01)
        self._sessions: list[Session] = []
        self._script = command.answers()
        self._runs = 0

    def whole_run(self) -> Path:
        """The folder of one run that nothing disturbs."""
        folder, words = self._new_run()
        _, told = self._start(folder, words).communicate(timeout=TIMEOUT_SECONDS)
        assert has_begun(folder), told
        return folder

    def reference(self) -> Reference:
        """One run without a kill."""
        folder, words = self._new_run()
        for _ in range(2):  # the first two wait for their imports (`tests/warm.py`)
            kept(folder, "--version").communicate(timeout=TIMEOUT_SECONDS)
        began = time.monotonic()
        process = self._start(folder, words)
        _, err = process.communicate(timeout=TIMEOUT_SECONDS)
        seconds = time.monotonic() - began
        (session,) = self._sessions
        replied = sorted(sent - began for sent in session.sent.values())
        requests = Counter(map(body, session.requests))
        assert replied and "Traceback" not in err, err
        return Reference(self._end(folder, process.returncode), replied, seconds, requests)

    def check(
        self, reference: Reference, kills: int, chance: random.Random, low: float = 0.0
    ) -> None:
        """Kill runs until there were so many kills; each must come to the same end.

        Moments are drawn from the share `low` of a run on.
        """
        parts = list(range(kills))
        chance.shuffle(parts)
        while self.kills < kills:
            # every part of a run gets its kill, at a random place inside it
            shares = [
                ((parts.pop() if parts else chance.randrange(kills)) + chance.random()) / kills
                for _ in range(min(MOST_KILLS, kills - self.kills))
            ]
            moments = [reference.moment(low + (1 - low) * share) for share in shares]
            self._check_run(reference, moments)

    def _check_run(self, reference: Reference, moments: Sequence[float]) -> None:
        folder, start = self._new_run()
        words, code, told = start, -signal.SIGKILL, ""
        for moment in (*moments, None):
            process = self._start(folder, words)
            if moment is not None:
                self._kill(process, reference, moment)
            _, told = process.communicate(timeout=TIMEOUT_SECONDS)
            assert "Traceback" not in told, f"after {moments}: {told}"
            code = process.returncode
            if code != -signal.SIGKILL:
                break
            self.kills += 1
            words = self.command.resume
            if not has_begun(folder):
                assert not self._requests(), "something was asked before the run was written down"
                self._refuses_to_resume(folder)
                words, self._script = start, self.command.answers()
        assert code == reference.end.code, f"after {moments}: {told}"
        self._check_requests(reference)
        found = differences(reference.end, self._end(folder, code))
        assert not found, "\n".join([f"after kills at {moments}:", *found[:MOST_LINES]])

    def _check_requests(self, reference: Reference) -> None:
        unread = Counter(one for session in self._sessions for one in session.unread())
        for asked, times in Counter(map(body, self._requests())).items():
            extra = times - max(1, reference.requests[asked])
            assert extra <= unread[asked], (
                f"a reply had been read, and was asked for again: {asked}"
            )
            self.repeated += max(0, extra)

    def _refuses_to_resume(self, folder: Path) -> None:
        process = self._start(folder, self.command.resume)
        _, told = process.communicate(timeout=TIMEOUT_SECONDS)
        assert process.returncode in (1, 2) and re.search(NOTHING_TO_RESUME, told), told

    def _kill(self, process: "subprocess.Popen[str]", reference: Reference, moment: float) -> None:
        """Kill at a moment of the reference, by its replies rather than by its clock.

        A busy machine makes a run slower, and would move its end out of reach of a plain delay.
        """
        replies = bisect_left(reference.replied, moment)
        delay = moment - (reference.replied[replies - 1] if replies else 0.0)
        while process.poll() is None and self._replies() < replies:
            time.sleep(0.001)
        time.sleep(delay)
        self._sessions[-1].killed = time.monotonic()
        process.send_signal(signal.SIGKILL)

    def _new_run(self) -> tuple[Path, Sequence[str]]:
        self._runs += 1
        self._sessions = []
        self._script = self.command.answers()
        folder = self.folder / f"run-{self._runs}"
        return folder, self.command.write(folder, self.server.v1)

    def _start(self, folder: Path, words: Sequence[str]) -> "subprocess.Popen[str]":
        self._sessions.append(Session())
        key = f"{self._runs}-{len(self._sessions)}"
        at = {"OPENAI_COMPATIBLE_BASE_URL": self.server.v1, "OPENAI_COMPATIBLE_API_KEY": key}
        return kept(folder, *words, **at, **self.command.more, KEY=key)

    def _answer(self, seen: Seen) -> str | ModelReply | Fault:
        run, _, number = seen.headers["authorization"].removeprefix("Bearer ").partition("-")
        said = self._script(seen)
        # what a killed process had sent may arrive while the next run is at work
        if int(run) == self._runs:
            session = self._sessions[int(number) - 1]
            session.requests.append(seen)
            session.sent[seen.number] = time.monotonic()
        return said

    def _requests(self) -> list[Seen]:
        return [seen for session in self._sessions for seen in session.requests]

    def _replies(self) -> int:
        return sum(len(session.sent) for session in self._sessions)

    def _end(self, folder: Path, code: int) -> End:
        assert opened_up(folder / ".kept") == [], "others may read files of a run"
        run = the_run(folder)
        lines = rows(run)
        pairs = Counter(row.entry()[0] for row in lines if isinstance(row, codec.RolloutLine))
        assert max(pairs.values()) == 1, "a rollout is in the journal twice"
        assert max(calls(lines).values()) == 1, "a reply is in the journal twice"
        with Run(run) as past:
            state = past.state.settled()
        return End(code, state, dict(written(folder)))


def differences(one: End, other: End) -> list[str]:
    """List what differs between two ends."""
    found = [] if one.code == other.code else [f"exit code {one.code}, then {other.code}"]
    for name in State._fields:
        if getattr(one.state, name) == getattr(other.state, name):
            continue
        first, second = (renamed(repr(getattr(end.state, name))) for end in (one, other))
        if first != second:
            same = next(n for n, pair in enumerate(zip_longest(first, second)) if len({*pair}) > 1)
            found += [f"state.{name}", f"- …{first[same:][:200]}", f"+ …{second[same:][:200]}"]
    for name in sorted(one.files.keys() | other.files.keys()):
        texts = (one.files.get(name, ""), other.files.get(name, ""))
        if texts[0] != texts[1]:
            first, second = (text.splitlines() for text in texts)
            found += unified_diff(first, second, name, name, n=0, lineterm="")
    return found


def body(seen: Seen) -> str:
    return json.dumps(seen.body, sort_keys=True)


def has_begun(folder: Path) -> bool:
    """True once a run has written its first event."""
    return any(path.stat().st_size for path in folder.glob(".kept/runs/*/journal.jsonl"))


def the_run(folder: Path) -> Path:
    (path,) = (one for one in folder.glob(".kept/runs/*/journal.jsonl") if one.stat().st_size)
    return path.parent


def written(folder: Path) -> Iterator[tuple[str, str]]:
    """Every file that a run leaves, without times and the names made of them."""
    for path in sorted(folder.rglob("*")):
        name = path.relative_to(folder).as_posix()
        if not path.is_file() or name.startswith(".cache/") or path.name in STORE:
            continue
        if path.suffix == ".torn":
            continue  # what a kill in the middle of a write left behind
        if ".git" in path.relative_to(folder).parts:
            continue  # given to a run, with the times of its files
        if path.suffix == ".db":
            with closing(sqlite3.connect(path)) as database:
                text = "\n".join(database.iterdump())
        elif path.suffix.startswith(".db"):
            continue
        else:
            text = path.read_text(encoding="utf-8", errors="surrogateescape")
        yield renamed(name), renamed(text.replace(str(folder), "FOLDER"))


def renamed(text: str) -> str:
    """Number candidates in their order: the files of a refinement's candidates hold times."""
    names: dict[str, str] = {}
    return re.sub(
        r"\b[0-9a-f]{16}\b",
        lambda found: names.setdefault(found[0], f"candidate {len(names)}"),
        timeless(text),
    )


def timeless(text: str) -> str:
    for pattern, stands in VARYING:
        text = re.sub(pattern, stands, text)
    return text
