"""A refinement that was cut anywhere comes to the same end, and nothing is asked twice."""

import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from kept.orchestrator.refine.best import BEST
from tests.engine.cutting import calls, rows
from tests.recipes.refine.world import Attempted, scores, world
from tests.sampling import sample, some_or_all

pytestmark = pytest.mark.slow

ATTEMPTS = [*scores(0.7, 0.9), Attempted(0.8, None)]


def cuts(folder: Path) -> Iterator[tuple[int, int]]:
    """Events and lines that there were at moments of a run: behind every event and every call."""
    spine = [json.loads(line) for line in (folder / "journal.jsonl").read_bytes().splitlines()]
    lines = (folder / "rollouts.jsonl").read_bytes().splitlines(keepends=True)
    ends = [0]
    for line in lines:
        ends.append(ends[-1] + len(line))
    opened = [(n, ends.index(e["rollouts_at"])) for n, e in enumerate(spine) if "rollouts_at" in e]
    for (event, first), (_, last) in zip(opened, [*opened[1:], (0, len(lines))], strict=True):
        made = [n for n in range(first, last) if b'"scope":"propose/' in lines[n]]
        yield from ((event + 1, n) for n in [*made, len(made) + first])
        for later in range(event + 2, len(spine) + 1):
            if later < len(spine) and "rollouts_at" in spine[later]:
                break
            yield later, last


@some_or_all
def test_a_refinement_cut_behind_everything_it_wrote_ends_the_same(
    tmp_path: Path, everything: bool
):
    it = world(tmp_path, *ATTEMPTS)
    whole, state = it.start()
    path = it.seed / "refinement_sessions" / "refine_1.json"
    told: dict[str, Any] = json.loads(path.read_text())
    assert (told["best_iter"], len(told["iterations"])) == (2, 3)
    spine = (whole / "journal.jsonl").read_bytes().splitlines(keepends=True)
    lines = (whole / "rollouts.jsonl").read_bytes().splitlines(keepends=True)
    places = list(dict.fromkeys(cuts(whole)))
    assert len(places) > 30
    part = tmp_path / "part"
    # what is said before is heard again each time, so every other one is as good
    for events, written in sample(places[::2], 12, everything):
        for gone in (part, it.seed / BEST, it.asked.root):
            shutil.rmtree(gone, ignore_errors=True)
        path.unlink(missing_ok=True)
        part.mkdir()
        (part / "journal.jsonl").write_bytes(b"".join(spine[:events]))
        (part / "rollouts.jsonl").write_bytes(b"".join(lines[:written]))
        shutil.copy(whole / "blobs.pack", part)
        again = world(tmp_path, *ATTEMPTS, seed=it.seed)
        _, ended = again.resume(part)
        assert ended.best_step == state.best_step, (events, written)
        assert max(calls(rows(part)).values()) == 1, "a call whose reply was written was made again"
        assert len(rows(part)) == len(lines)
        now = json.loads(path.read_text())
        assert (now["stop_reason"], now["best_iter"]) == (told["stop_reason"], 2)
        assert [row["loss"] for row in now["iterations"]] == [
            row["loss"] for row in told["iterations"]
        ]
        assert (it.seed / BEST / "report.md").read_bytes() == b"# Report\n\nVersion 2.\n"
