"""What a candidate may try, and what comes of it: with walls, and where there are none."""

from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from kept.sandbox.capabilities import abilities
from kept.store.reader import Run
from tests.sandbox.attempts import ATTEMPTS, BEST, QUIET, Ended, make, sleepers, tree_of

pytestmark = pytest.mark.slow

WALLED = {**ATTEMPTS, **QUIET, **BEST}
# without walls a path from the root leads out, and so does the network
UNHELD = {
    *("edit-parent", "edit-outside", "write-scorer", "append-scorer", "unhide-scorer"),
    *("unhide-in-namespace", "read-holdout-by-path", "read-journal", "hard-link", "network"),
    *("swap-candidate", "huge-memory", "network-of-the-host"),
}
# without control groups a process that leaves its group goes on
GOING_ON = set[str]() if abilities().groups.pids else {"double-fork"}
BARE = {label: script for label, script in WALLED.items() if label not in UNHELD | GOING_ON}
LIMITS = ("swap-output-file", "swap-output-folder", "huge-folder", "huge-file", "huge-tree")
KINDS = {
    **dict.fromkeys(LIMITS, "limit crash"),
    **dict.fromkeys(("sleep", "deaf", "spin"), "timeout"),
    "fork-bomb": "timeout crash",
}


@pytest.fixture(scope="module")
def walled(request: pytest.FixtureRequest) -> Iterator[Ended]:
    if not abilities().walls:
        pytest.skip(f"bwrap does not work here: {abilities().why_not}")
    # not in /tmp: that is empty between the walls, and the folder above the task not the real one
    place = request.config.rootpath / ".pytest_cache"
    place.mkdir(exist_ok=True)
    with TemporaryDirectory(dir=place) as folder:
        yield make(Path(folder), WALLED, "required")


@pytest.fixture(scope="module")
def bare(tmp_path_factory: pytest.TempPathFactory) -> Ended:
    return make(tmp_path_factory.mktemp("bare"), BARE, "off")


def check_went_on(ended: Ended) -> None:
    run = Run(ended.folder)
    assert run.state.stopped is not None
    assert run.state.stopped.kind == "nothing left to propose"
    assert run.best["attempt.sh"].splitlines()[1] == BEST["best"]
    run.close()
    assert tree_of(ended.outside) == ended.before
    assert sleepers() == []


@pytest.mark.sandbox
def test_the_run_goes_on_the_tree_is_untouched_and_no_process_is_left(walled: Ended):
    check_went_on(walled)
    assert walled.connected == 0


def test_without_walls_too_unless_a_path_from_the_root_is_written_to(bare: Ended):
    check_went_on(bare)


@pytest.mark.sandbox
@pytest.mark.parametrize("label", ATTEMPTS)
def test_an_attempt_between_walls_is_the_candidates_failure(label: str, walled: Ended):
    if label in ("edit-parent", "edit-outside") and walled.outside.is_relative_to("/tmp"):
        # a checkout in /tmp: the write goes to the command's own /tmp, succeeds, and is gone; that
        # nothing outside changed is what the test of the whole tree says
        return
    failure = walled.failure(label)
    assert failure.blame == "candidate", failure
    assert failure.kind in KINDS.get(label, "crash").split(), failure


@pytest.mark.parametrize("label", [label for label in ATTEMPTS if label not in UNHELD])
def test_an_attempt_that_can_be_held_without_walls_is_the_candidates_failure(
    label: str, bare: Ended
):
    if label == "fork-bomb" and abilities().groups.pids is None:
        pytest.skip("no control group: only the timeout holds it")
    failure = bare.failure(label)
    assert failure.blame == "candidate", failure
    assert failure.kind in KINDS.get(label, "crash").split(), failure


@pytest.mark.sandbox
@pytest.mark.parametrize("label", QUIET)
def test_what_does_no_harm_is_scored(label: str, walled: Ended):
    assert walled.score(label) == 1


@pytest.mark.parametrize("label", [label for label in QUIET if label not in GOING_ON])
def test_what_does_no_harm_is_scored_without_walls_too(label: str, bare: Ended):
    assert bare.score(label) == 1


@pytest.mark.sandbox
def test_what_one_candidate_wrote_to_the_tree_the_next_does_not_see(walled: Ended):
    assert walled.score("best") == 2


def test_a_copy_of_the_tree_is_put_right_between_two_candidates(bare: Ended):
    assert bare.score("best") == 2


def test_nothing_of_these_tests_is_left_running():
    assert sleepers() == []
