"""A real run in a process of its own, made to be killed.

    python -m tests.engine.kill_target HOME PORT [--resume] [--die WHERE]

Its evaluator asks a loopback server for every score. `--die` names a place in the code at which the
process kills itself with SIGKILL: in the middle of swapping `best/`, or of writing a view.
"""

import asyncio
import os
import signal
import sys
from collections.abc import Mapping
from pathlib import Path

import kept
import kept.store.candidate_files as candidate_files
from kept.core.artifact import Candidate
from tests.engine.worlds import draw

STEPS, HOLDOUT, WORKERS = 24, 20, 8
CASES = kept.Cases(
    train=(kept.Case("t0", "t0"),),
    holdout=tuple(kept.Case(f"h{n}", f"h{n}") for n in range(HOLDOUT)),
)


def die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


async def ask(port: int, candidate: Candidate, case: str) -> float:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(f"GET /{candidate.id}/{case} HTTP/1.0\r\n\r\n".encode())
    await writer.drain()
    answer = await reader.read()
    writer.close()
    return float(answer.rpartition(b"\r\n")[2])


def propose(brief: kept.Brief) -> kept.Proposal:
    word = "good" if draw(brief.seed) < 0.4 else "poor"
    return kept.Proposal((kept.Append("text", f"{word} {brief.step}\n"),))


def plant(where: str) -> None:
    """Have the process die at a place in the code the third time it gets there."""
    times = iter(range(100))
    write_files, rmtree = candidate_files.write_files, candidate_files.shutil.rmtree

    def third() -> None:
        if next(times) == 2:
            die()

    def half_written(
        folder: Path, candidate: Candidate, modes: Mapping[str, int] | None = None
    ) -> None:
        if next(times) == 2:
            folder.mkdir(parents=True)
            (folder / "text").write_text("half")
            die()
        write_files(folder, candidate, modes)

    def before_link(
        folder: Path, candidate: Candidate, modes: Mapping[str, int] | None = None
    ) -> None:
        write_files(folder, candidate, modes)
        third()

    def after_link(path: Path, ignore_errors: bool = False) -> None:
        # the first rmtree of a swap clears the target, the later ones the old folders
        if path.exists():
            third()
        rmtree(path, ignore_errors=ignore_errors)

    if where == "half written":
        candidate_files.write_files = half_written
    elif where == "before the link moves":
        candidate_files.write_files = before_link
    elif where == "after the link moved":
        candidate_files.shutil.rmtree = after_link  # pyright: ignore[reportAttributeAccessIssue] # the module is ours for the test


def main() -> None:
    home, port = sys.argv[1], int(sys.argv[2])
    if "--die" in sys.argv:
        plant(sys.argv[sys.argv.index("--die") + 1])

    async def evaluate(candidate: Candidate, case: str) -> float:
        return await ask(port, candidate, case) + 0.15 * candidate.text.count("good")

    result = kept.optimize(
        "seed\n",
        evaluate,
        CASES,
        proposers=[propose],
        gate="strict",
        budget=STEPS,
        workers=WORKERS,
        width=4,
        home=home,
        resume="last" if "--resume" in sys.argv else None,
    )
    sys.stdout.write(f"{result.best.id}\n")


if __name__ == "__main__":
    main()
