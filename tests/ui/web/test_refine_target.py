"""Refinements of a task on the pages: on the Refine tab of the run they refined, and linked."""

import re
from pathlib import Path

import pytest

from kept.sandbox.capabilities import abilities
from kept.store.home import Home
from kept.testing.server import ModelServer
from tests.recipes.refine.world import Attempted
from tests.ui.cli.tasks import kept
from tests.ui.cli.test_refine import Stage, refine, seed_in, server, stage
from tests.ui.cli.test_refine_target import Made
from tests.ui.web.asking import Reply
from tests.ui.web.conftest import serving

__all__ = ["server", "stage"]  # fixtures

pytestmark = [
    pytest.mark.slow,
    pytest.mark.sandbox,
    pytest.mark.skipif(not abilities().walls, reason="no walls here"),
]

API = "/api/experiments/first/refinement_sessions"
REFINE = "/runs/first/refine"
TREE = "/experiments"


def test_sessions_of_a_task_are_on_the_refine_tab_of_its_seed_and_attempts_are_linked(
    tmp_path: Path, stage: Stage, server: ModelServer, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.chdir(tmp_path)
    made = Made()
    for loops in (10, 5):
        stage.loops = loops  # half of what the run before could use
        called = kept("refine", "--target", made.target, "--iterations", "1", "--json")
        assert called.code == 0, called.stderr
    latest = Path(called.json["folder"])
    won = called.json["iterations"][0]["run_id"]
    home, seen = Home(tmp_path / ".kept"), dict[str, Reply]()
    for site in serving(home.path):
        seen = {path: site.get(path) for path in (API, REFINE, TREE)}
        seen["step"] = site.get(f"/runs/{latest.name}/steps/0")
    told = seen[API].json
    # the second session began with what the first one made, which began with the seed
    assert [row["seed_run_id"] == "first" for row in told["sessions"]] == [False, True]
    assert [len(row["iterations"]) for row in told["sessions"]] == [1, 1]
    assert told["best"]["best_run_id"] == won
    page = seen[REFINE].text
    assert page.count('class="card session"') == 2 and made.target in page
    assert f"/runs/{latest.name}/steps/0" in page
    link = re.search(rf'<a href="([^"]+)">{won}</a>', seen[TREE].text)
    assert link is not None and link[1] == f"/runs/{latest.name}/steps/0"
    assert seen["step"].status == 200


def test_attempts_that_left_nothing_are_counted_and_the_refine_tab_says_so(
    tmp_path: Path, stage: Stage, server: ModelServer, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.chdir(tmp_path)
    home = Home(tmp_path / ".kept")
    home.make()
    seed = seed_in(home.runs)
    stage.plays = [Attempted(text=None).play()]
    assert refine(seed).code == 1
    assert "0 of 2" in kept("runs").stdout
    listed = tab = ""
    for site in serving(home.path):
        listed, tab = site.get("/").text, site.get(f"/runs/{seed.name}/refine").text
    assert "0 of 2 kept" in listed
    assert "no deliverable was left to go on from" in tab
