"""A run of a task with views, made to be killed while it writes one.

python -m tests.recipes.views_target TASK WHERE [--resume]
"""

import asyncio
import os
import signal
import sys
from pathlib import Path

from kept.core.artifact import Candidate
from kept.core.event import StepRecords
from kept.recipes.task.compile import compile_task
from kept.run import resume, start
from kept.store import exports
from kept.store.home import Home


def die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def plant(where: str, task: Path) -> None:
    """Have the process die in the middle of the third line, or of the first kept candidate."""

    def half_a_line(self: exports.ResultsFile, step: StepRecords) -> None:
        line = self._line(step)
        with (task.parent / "out" / "r.jsonl").open("ab") as file:
            file.write(line if step.closed.step < 2 else line[: len(line) // 2])
        if step.closed.step == 2:
            die()

    def half_a_rebuild(path: Path, data: bytes, below: Path | None = None) -> None:
        path.with_name(f".{path.name}.new").write_bytes(data[: len(data) // 2])
        die()

    def half_a_folder(folder: Path, candidate: Candidate, *, below: Path) -> None:
        folder.mkdir(parents=True)
        (folder / "prompt.md").write_text("half")
        die()

    if where == "half a line":
        exports.ResultsFile.closed = half_a_line
    elif where == "half a rebuild":
        exports.write_whole = half_a_rebuild
    elif where == "half a folder":
        exports.write_files = half_a_folder  # pyright: ignore[reportAttributeAccessIssue] # as it is called there


def main() -> None:
    task, where = Path(sys.argv[1]), sys.argv[2]
    plant(where, task)
    home = Home(task.parent / ".kept")
    plan = compile_task(task).plan
    go = resume(plan, home.find_run("last")) if "--resume" in sys.argv else start(plan, home)
    asyncio.run(go)


if __name__ == "__main__":
    main()
