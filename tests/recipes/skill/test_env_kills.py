"""Training in each environment, killed with SIGKILL, resumes to the same end.

In CI one environment stands for each kind of rollout; at night all are killed.
"""

import random
from collections.abc import Sequence
from functools import partial
from pathlib import Path

import pytest

from tests.conftest import needed_peer
from tests.recipes.killing import Killable, Kills
from tests.recipes.skill.test_env_worlds import MARKS, WORLDS, marked

pytestmark = pytest.mark.kill

KINDS = {
    "one call": "docvqa",
    "tool loop": "officeqa",
    "code loop": "spreadsheetbench",
    "shell": "swebench",
}
"""An environment for each kind of rollout."""


def write(name: str, folder: Path, url: str) -> Sequence[str]:
    """Data and words of a training; the key goes with the server."""
    return WORLDS[name].words("train", folder, url, "evaluation.gate=selection")


def check(name: str, kills: int, low: float, folder: Path) -> None:
    more = {"PYTHONPATH": str(needed_peer("alfworld"))} if name == "alfworld" else {}
    command = Killable(partial(write, name), lambda: WORLDS[name].answer, more=more)
    made = Kills(command, folder)
    with made.server:
        made.check(made.reference(), kills, random.Random(name), low)
    assert made.kills == kills


@pytest.mark.parametrize(
    "kind", [pytest.param(kind, marks=MARKS.get(KINDS[kind], ())) for kind in sorted(KINDS)]
)
def test_a_kind_of_rollout_that_is_killed_resumes_to_the_same_end(kind: str, tmp_path: Path):
    check(KINDS[kind], 1, 0.3, tmp_path)


@pytest.mark.nightly
@pytest.mark.parametrize("name", marked(WORLDS))
def test_training_that_is_killed_resumes_to_the_same_end(name: str, tmp_path: Path):
    check(name, 3, 0.0, tmp_path)
