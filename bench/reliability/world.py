"""The task of all arms, and how an arm is called. Standard library only: peers import it.

A text grows by a line a step. Each score is one call to a server on loopback, which counts it.
"""

import hashlib
import json
import os
import resource
import signal
import sys
import traceback
import urllib.request
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

CASES, STEPS, WORKERS = 20, 10, 8
SEED = "seed\n"

MEMORY_BYTES = 4 << 30
SECONDS = 60
"""Limits of a process that opens a damaged run."""

PROGRESS = "progress.jsonl"
"""What a process reported as finished, beside the folder of its run."""

Run = Callable[[Path, int], dict[str, Any]]
"""Starts a run in a folder, or resumes the one that is there; returns its figures."""

Check = Callable[[Path], bool]
"""Tells whether the system's own check of a run reports damage."""


def share(*what: object) -> float:
    """Return a number in [0, 1) that depends on the arguments alone."""
    digest = hashlib.sha256(repr(what).encode()).digest()
    return int.from_bytes(digest[:6], "big") / 2**48


def call(port: int, candidate: str, case: int) -> float:
    """Make one paid call: the noise of a score."""
    name = hashlib.sha256(candidate.encode()).hexdigest()[:16]
    url = f"http://127.0.0.1:{port}/{name}/{case}"
    with urllib.request.urlopen(url, timeout=SECONDS) as reply:
        return float(reply.read())


def score(port: int, text: str, case: int) -> float:
    """Score a text on one case: good lines count, and there is noise."""
    return round(0.2 * call(port, text, case) + 0.05 * text.count("good"), 6)


def scores(port: int, text: str, cases: Iterable[int]) -> list[float]:
    """Score a text on several cases at once."""
    with ThreadPoolExecutor(WORKERS) as pool:
        return list(pool.map(partial(score, port, text), cases))


def propose(text: str, *about: object) -> str:
    """Add a line to a text: the same line whenever the arguments are the same."""
    drawn = share("propose", text, *about)
    return f"{text}{'good' if drawn < 0.4 else 'poor'} {int(drawn * 1e6)}\n"


def report(folder: Path, candidate: str, value: float) -> None:
    """Write down that a candidate has its score, as a user's own log would."""
    with (folder.parent / PROGRESS).open("a", encoding="utf-8") as file:
        file.write(json.dumps([candidate, round(value, 6)]) + "\n")


def main(run: Run, check: Check | None = None) -> None:
    """Run an arm: `ARM PORT FOLDER`, or `ARM PORT --each FOLDER...` for many damaged runs.

    Each of many runs in a fork, so that the imports are paid for once. `check` looks at a damaged
    run before it is opened.
    """
    port, folders = int(sys.argv[1]), sys.argv[2:]
    if folders[0] != "--each":
        print(json.dumps(run(Path(folders[0]), port)))
        return
    for folder in folders[1:]:
        print(json.dumps(apart(run, check, Path(folder), port)), flush=True)


def apart(run: Run, check: Check | None, folder: Path, port: int) -> dict[str, Any]:
    """Open one run in a process of its own; return its figures or its error."""
    answer = folder.parent / "answer.json"
    sys.stdout.flush()
    if not (pid := os.fork()):
        signal.alarm(SECONDS)
        resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES, MEMORY_BYTES))
        told: dict[str, Any] = {"found": check is not None and check(folder)}
        try:
            told["figures"] = run(folder, port)
        except BaseException as error:  # noqa: BLE001 # whatever a damaged file leads to is counted
            text = "".join(traceback.format_exception(error))
            told |= {"error": f"{type(error).__name__}: {error}", "traceback": text}
        answer.write_text(json.dumps(told), encoding="utf-8")
        os._exit(0)
    code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    if not answer.exists():
        return {"found": False, "error": f"the process ended with {code}", "traceback": ""}
    return json.loads(answer.read_text(encoding="utf-8"))


def finished(pairs: Sequence[tuple[str, float]]) -> list[list[object]]:
    """Return candidates and their scores in a form that can be compared."""
    return sorted([text, round(value, 6)] for text, value in pairs)
