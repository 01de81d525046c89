"""Kill -9 at every stage of a step, in each thing that an epoch ends with, and in the last test.

From some request of a stage on the server answers nobody, and the process is killed as soon as all
that was answered before is written down. So the log of the server alone tells whether a call whose
reply had arrived was made again.
"""

import json
import re
import signal
import subprocess
import time
from collections import Counter
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple, get_args

import pytest

from kept.core.rollout import Purpose
from kept.models.ask import draw_seed
from kept.store import codec
from kept.testing.server import Fault, ModelServer, Seen
from tests.engine.cutting import calls, rows
from tests.recipes.killing import kept
from tests.recipes.skill import world

pytestmark = [pytest.mark.kill, pytest.mark.nightly]

FOREVER = Fault("slow", seconds=3600.0)
PATIENCE = 120.0
"""Seconds in which a process comes to its next stage, on a machine with other things to do."""
REPEATS = [tenure * 1000 + n for tenure in range(5) for n in range(40)]
TEACHER = (
    *("probe_instruction", "failure_summary", "success_patterns", "selected_indices", "notes"),
    *("new_skill", "slow_update_content", "meta_skill_content", "meta_summary"),
)
"""Keys by which a reply of the teacher is known; merger and repair have but edits in common."""


class Stage(NamedTuple):
    """What a request is for: the purpose of a rollout, or what the teacher is asked."""

    name: str
    answered: int = 0
    """Requests of it that are answered before nothing more is."""


class Training(NamedTuple):
    more: Sequence[str]
    stages: Sequence[Stage]
    """Before each kill, in the order in which they come."""


STEP = (
    *(Stage("feedback", 4), Stage("probe_instruction"), Stage("probe", 2)),
    *(Stage("failure_summary", 1), Stage("merge", 1), Stage("selected_indices")),
    *(Stage("repair"), Stage("decide", 5)),
)
EPOCHS = Training(
    (
        "evaluation.gate=selection",
        "optimizer.use_meta_reflect=true",
        "optimizer.slow_update_samples=5",
        "optimizer.use_skill_aware_reflection=true",
        "optimizer.skill_aware_consolidate_threshold=1",
        "gradient.use_deep_reflect=true",
    ),
    (
        *STEP,
        # the end of the first epoch: reminders, then a look back, each at the gate as well
        *(Stage("notes"), Stage("decide", 2), Stage("meta_summary"), Stage("decide", 2)),
        # of the second: guidance that is kept, so that skills are compared on train cases once more
        *(Stage("slow_update_content"), Stage("decide", 2), Stage("feedback", 2)),
        *(Stage("meta_skill_content"), Stage("test", 3)),
    ),
)
RACED = Training(
    (
        "train.num_epochs=1",
        "train.batch_size=15",
        "train.seed=3",  # one whose second skill is raced, and not screened out
        "evaluation.gate=race",
        "optimizer.skill_update_mode=rewrite_from_suggestions",
        "optimizer.use_skill_aware_reflection=true",
        "optimizer.appendix_gate=flush",
        "optimizer.skill_aware_consolidate_threshold=1",
    ),
    (
        # reminders are taken after each step, and what comes next begins with them
        *(Stage("new_skill"), Stage("screen", 9), Stage("notes"), Stage("feedback", 3)),
        *(Stage("decide", 7), Stage("promote", 5)),
    ),
)


@cache
def _purposes(case: str) -> dict[int, str]:
    """What a rollout of a case is for, by the seed that it is drawn with."""
    found = ((draw_seed(p, case, n), p) for p in get_args(Purpose) for n in REPEATS)
    return dict(found)


def stage_of(seen: Seen) -> str:
    if seen.model == "student":
        found = re.search(r"What is number (\d+)\?", seen.text)
        assert found is not None, seen.text
        return _purposes(f"q{found[1]}")[seen.body["seed"]]
    wanted = world.properties(seen)
    other = "merge" if "reasoning" in wanted else "repair"
    return next((name for name in TEACHER if name in wanted), other)


def answer(seen: Seen) -> str:
    """As ever, but edits that failures suggest have no place in the skill, and must be mended."""
    said = world.searchqa_answer(seen)
    if seen.model == "student" or stage_of(seen) != "failure_summary":
        return said
    told = json.loads(said)
    for edit in told["patch"].get("edits", ()):
        edit |= {"op": "replace", "target": "a line that is not there"}
    return json.dumps(told)


class Sittings:
    """A run beside a server, one process after the other."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.server = ModelServer(answer, faults=self._fault)
        self._number = 0
        self._stage = Stage("none")
        self._left = 0
        self._shut = False
        self._let_in: list[Seen] = []

    @property
    def answered(self) -> list[str]:
        """What had a whole reply, in the words of the request."""
        assert all(seen.answer == "reply" for seen in self._let_in)
        return [json.dumps(seen.body, sort_keys=True) for seen in self._let_in]

    @property
    def run(self) -> Path:
        (run,) = (self.folder / ".kept" / "runs").iterdir()
        return run

    def sit(self, words: Sequence[str], until: Stage | None = None) -> None:
        """One process, to its end or to its death in a stage."""
        self._number += 1
        self._stage = until or Stage("none")
        self._left, self._shut = self._stage.answered, False
        process = kept(self.folder, *words, OPENAI_COMPATIBLE_API_KEY=f"sitting-{self._number}")
        if until is None:
            out, err = process.communicate(timeout=PATIENCE)
            assert process.returncode == 0, out + err
            return
        try:
            self._wait(process)
        finally:
            process.send_signal(signal.SIGKILL)
            _, told = process.communicate(timeout=PATIENCE)
        assert process.returncode == -signal.SIGKILL, f"it ended before {until.name}: {told}"

    def _wait(self, process: "subprocess.Popen[str]") -> None:
        """Until nobody is answered any more, and what was answered is written down."""
        end = time.monotonic() + PATIENCE
        while process.poll() is None:
            if self._shut and sum(calls(rows(self.run)).values()) == len(self._let_in):
                return
            assert time.monotonic() < end, f"{self._stage} did not come, or was not written down"
            time.sleep(0.005)

    def _fault(self, seen: Seen) -> Fault | None:
        # what a process had sent when it was killed may come in while the next one is at work
        dead = seen.headers["authorization"] != f"Bearer sitting-{self._number}"
        if not dead and not self._shut and stage_of(seen) == self._stage.name:
            self._shut = self._left == 0
            self._left -= 1
        if dead or self._shut:
            return FOREVER
        self._let_in.append(seen)
        return None


def result(folder: Path) -> Any:
    """What a run came to, without clocks and what was done in vain."""
    out = folder / "out"
    history = json.loads((out / "history.json").read_text())
    for row in history:
        del row["timing"], row["usage"]
    files = sorted(str(path.relative_to(out)) for path in out.rglob("*") if path.is_file())
    best, state = (out / "best_skill.md").read_text(), (out / "runtime_state.json").read_text()
    return history, files, best, state


@pytest.mark.parametrize("training", [EPOCHS, RACED], ids=["epochs", "raced"])
def test_a_run_that_is_killed_at_every_stage_asks_nothing_twice(training: Training, tmp_path: Path):
    whole, cut = Sittings(tmp_path / "whole"), Sittings(tmp_path / "cut")
    with whole.server, cut.server:
        whole.sit(world.write_searchqa(whole.folder, whole.server.v1, *training.more))
        words = world.write_searchqa(cut.folder, cut.server.v1, *training.more)
        for stage in training.stages:
            cut.sit(words, stage)
            words = ["resume", "-q"]
        cut.sit(words)
        asked, again = Counter(whole.answered), Counter(cut.answered)
    assert max(asked.values()) == 1, "or one could not be told from the other"
    twice = [body for body, n in again.items() if n > 1]
    assert not twice, "a call whose reply had arrived was made again"
    assert again.keys() == asked.keys(), "and nothing else was asked"
    assert result(cut.folder) == result(whole.folder)
    lines = rows(cut.run)
    pairs = Counter(row.entry()[0] for row in lines if isinstance(row, codec.RolloutLine))
    assert max(pairs.values()) == 1 and max(calls(lines).values()) == 1
