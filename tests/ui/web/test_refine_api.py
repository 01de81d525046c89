"""Refinement over the real server: what is refused, what begins, and that only one does."""

import os
import signal
import time
from collections.abc import Callable, Generator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from kept.orchestrator.refine.proposer import MIXED
from kept.store.lock import holder
from kept.testing.server import ModelServer
from tests.ui.web.asking import Reply, Site
from tests.ui.web.conftest import serving
from tests.ui.web.project import make_agent_run
from tests.ui.web.team import MODEL, Team

pytestmark = pytest.mark.slow

HIDDEN = {"SOME_OTHER_SECRET_KEY": "sk-nobodys-business", "OPENAI_COMPATIBLE_API_KEY": "sk-mine"}
LONG = 60.0
"""Seconds after which a thing that was waited for is not coming."""


class Refined:
    """A site with one agent run, and the server that its models are on."""

    def __init__(self, site: Site, seed: Path, server: ModelServer) -> None:
        self.site, self.seed, self.server = site, seed, server
        self.path = f"/api/experiments/{seed.name}"

    def start(self, told: object | None = None) -> Reply:
        return self.site.post(f"{self.path}/refine", {} if told is None else told)

    def cancel(self) -> Reply:
        return self.site.post(f"{self.path}/refine/cancel", {})

    def sessions(self) -> list[dict[str, Any]]:
        return self.site.get(f"{self.path}/refinement_sessions").json["sessions"]

    def session(self, id_: str) -> dict[str, Any]:
        return next(one for one in self.sessions() if one["session_id"] == id_)

    def pid(self) -> int | None:
        """Who refines now."""
        found = (holder(one) for one in self.seed.parent.iterdir() if one != self.seed)
        return next((pid for pid in found if pid is not None), None)


def wait_for(what: Callable[[], object]) -> None:
    until = time.monotonic() + LONG
    while not what():
        assert time.monotonic() < until, "it does not come"
        time.sleep(0.05)


@pytest.fixture(scope="module")
def refined(tmp_path_factory: pytest.TempPathFactory) -> Generator[Refined]:
    folder = tmp_path_factory.mktemp("refined")
    with ModelServer(Team()) as server:
        seed = make_agent_run(folder, server)
        told = {**HIDDEN, "OPENAI_COMPATIBLE_BASE_URL": server.v1}
        for site in serving(folder / ".kept", **told):
            yield Refined(site, seed, server)


@pytest.fixture(autouse=True)
def quiet(refined: Refined) -> Generator[None]:
    """No test leaves a refinement behind."""
    yield
    refined.server.latency = 0.0
    while refined.pid() is not None:
        refined.cancel()
        time.sleep(0.2)


@pytest.mark.parametrize("run", ["nowhere", "..", "%2e%2e%2fetc", "a%00b", "%ff", "%c3%a9"])
def test_a_run_that_is_not_there_is_not_refined(refined: Refined, run: str):
    for path in ("refine", "refine/cancel"):
        assert refined.site.post(f"/api/experiments/{run}/{path}", {}).status == 404
    assert refined.site.get(f"/api/experiments/{run}/refinement_sessions").status == 404


@pytest.mark.parametrize(
    "body",
    [
        {"iterations": 0},
        {"iterations": 11},
        {"iterations": "3"},
        {"iterations": True},
        {"iterations": 2.5},
        {"model": "no-provider"},
        {"model": "openai_compatible/m,worker=x"},
        {"model": "--config=/etc/passwd"},
        {"worker_model": "openai_compatible/{a: b}"},
        {"model": "openai_compatible/m:"},
        {"tier_low": {"manager": "openai_compatible/m\nx"}},
        {"tier_low": "openai_compatible/m:openai_compatible/m"},
        {"tier_low": {"leader": "openai_compatible/m"}},
        {"config": "/etc/passwd"},
        [],
        "x",
    ],
)
def test_a_body_that_says_something_else_is_refused(refined: Refined, body: object):
    reply = refined.start(body)
    assert reply.status == 422, reply.text
    assert refined.pid() is None


def test_runs_of_other_kinds_leave_nothing_to_refine(site: Site):
    for recipe in ("artifact", "coordinate", "skill", "eval", "compare"):
        path = f"/api/experiments/{site.run(recipe)}"
        assert site.post(f"{path}/refine", {}).status == 409
        assert site.get(f"{path}/refinement_sessions").status == 409


def test_sessions_of_the_source_and_the_best_are_told(site: Site):
    told = site.get(f"/api/experiments/{site.run('agent run')}/refinement_sessions").json
    by_id = {one["session_id"]: one for one in told["sessions"]}
    assert len(by_id) == 3
    assert "tier" not in by_id["refine_20260419T182438Z"]["iterations"][0]
    tiers = [[row.get("tier") for row in one["iterations"]] for one in by_id.values()]
    assert ["low", "mid", "high"] in tiers
    assert told["best"]["best_loss"] < told["best"]["seed_loss"]
    # a refinement leads to what it refined
    other = site.get(f"/api/experiments/{site.run('refine')}/refinement_sessions").json
    assert other == told


def test_only_json_is_taken(refined: Refined):
    for kind in ("text/plain", "application/x-www-form-urlencoded", "multipart/form-data"):
        for path in ("refine", "refine/cancel"):
            reply = refined.site.post(f"{refined.path}/{path}", {}, Content_Type=kind)
            assert reply.status in (415, 422)
    assert refined.site.post("/api/settings", {}, Content_Type="text/plain").status in (415, 422)
    assert refined.pid() is None


def test_one_refinement_at_a_time_that_can_be_cancelled(refined: Refined):
    refined.server.latency = 1.0
    with ThreadPoolExecutor(4) as pool:
        replies = list(pool.map(refined.start, [{"iterations": 3}] * 4))
    assert sorted(reply.status for reply in replies) == [202, 409, 409, 409]
    (begun,) = [reply.json for reply in replies if reply.status == 202]
    assert begun["run_id"] == refined.seed.name and begun["warnings"] == []
    pid = refined.pid()
    assert pid is not None
    # it is told who the models are and where, and nothing that is none of its business
    seen = Path(f"/proc/{pid}/environ").read_bytes()
    assert b"OPENAI_COMPATIBLE_BASE_URL" in seen and b"sk-mine" in seen
    assert b"nobodys-business" not in seen
    assert b"-P\0-m\0kept\0refine\0" in Path(f"/proc/{pid}/cmdline").read_bytes()
    # what has only begun is listed
    assert refined.session(begun["session_id"])["completed_at"] is None
    assert refined.cancel().status == 202
    wait_for(lambda: refined.pid() is None)
    assert refined.session(begun["session_id"])["stop_reason"] == "interrupted"
    assert refined.cancel().status == 409
    # the next may begin
    refined.server.latency = 0.0
    assert refined.start({"iterations": 1}).status == 202


def test_a_mixed_body_is_warned_of_and_begins(refined: Refined):
    pair = {"manager": f"{MODEL}-tiny", "worker": ""}
    body = {"iterations": 2, "model": f"{MODEL}-other", "tier_low": pair, "tier_high": {}}
    reply = refined.start(body)
    assert (reply.status, reply.json["warnings"]) == (202, [MIXED])
    id_ = reply.json["session_id"]
    wait_for(lambda: refined.session(id_)["completed_at"])
    told = refined.session(id_)
    assert told["tier_plan_used"] is True
    rows = [(row["tier"], row["model_manager"]) for row in told["iterations"]]
    assert rows == [("low", f"{MODEL}-tiny"), ("high", MODEL)]
    best = refined.site.get(f"{refined.path}/refinement_sessions").json["best"]
    assert best["best_loss"] < best["seed_loss"]


def test_one_that_cannot_begin_says_why(refined: Refined):
    reply = refined.start({"model": "openai/gpt-5-mini"})
    assert reply.status == 409
    assert "OPENAI_API_KEY" in reply.json["error"]


def test_a_refinement_outlives_its_page_and_the_next_one_can_cancel_it(refined: Refined):
    refined.server.latency = 1.0
    told = {"OPENAI_COMPATIBLE_BASE_URL": refined.server.v1}
    for page in serving(refined.site.home, **told):
        other = Refined(page, refined.seed, refined.server)
        with ThreadPoolExecutor(2) as pool:
            replies = [pool.submit(one.start, {"iterations": 2}) for one in (refined, other)]
        assert sorted(one.result().status for one in replies) == [202, 409], "one of both pages"
        refined.cancel()
        wait_for(lambda: refined.pid() is None)
        assert other.start({"iterations": 2}).status == 202
    pid = refined.pid()
    assert pid is not None, "the page has ended, and it goes on"
    assert refined.start({"iterations": 1}).status == 409, "whoever started the other one"
    # a kill is told of, and another may begin
    os.kill(pid, signal.SIGKILL)
    wait_for(lambda: refined.pid() is None)
    page = refined.site.get(f"/runs/{refined.seed.name}/refine").text
    assert "crashed" in page and "kept resume" in page
    assert refined.start({"iterations": 1}).status == 202
    assert refined.cancel().status == 202


def test_settings_are_kept_whole_or_not_at_all(refined: Refined):
    site = refined.site
    told = site.get("/api/settings").json
    assert told["refinement_default_iterations"] == 3
    chosen = {**told, "refinement_tier_mid": {"manager": MODEL, "worker": None}}
    assert site.post("/api/settings", chosen).status == 200
    for wrong in ({"refinement_default_iterations": 0}, {"x": 1}, {"refinement_tier_low": "m"}):
        assert site.post("/api/settings", wrong).status == 422
    assert site.get("/api/settings").json == chosen
    assert MODEL in site.get(f"/runs/{refined.seed.name}/refine").text
    (site.home / "view.json").write_text('{"refinement_default_iterations": 99}')
    assert site.get("/api/settings").json == told
    assert site.get("/settings").status == 200
