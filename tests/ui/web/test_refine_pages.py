"""Refinement in a real Chromium: settings, the form, watching, cancelling, a kill and a resume."""

import os
import signal
import subprocess
import sys
from collections.abc import Generator
from pathlib import Path

import pytest
from playwright.sync_api import Page, expect

from kept.store.lock import holder
from kept.testing.server import ModelServer
from tests.ui.web.browsing import chromium, findings, overflow
from tests.ui.web.conftest import serving
from tests.ui.web.project import inside, make_agent_run
from tests.ui.web.team import MODEL, Team

pytestmark = [pytest.mark.browser, pytest.mark.kill]

LONG = 60_000
"""Milliseconds after which a thing that was waited for is not coming."""


class Watched:
    def __init__(self, page: Page, seed: Path, server: ModelServer, base: str) -> None:
        self.page, self.seed, self.server = page, seed, server
        self.base, self.refine = base, f"{base}/runs/{seed.name}/refine"

    @property
    def child(self) -> tuple[Path, int]:
        """The refinement that goes on, and who writes it."""
        runs = [one for one in self.seed.parent.iterdir() if one != self.seed]
        return next((one, pid) for one in runs if (pid := holder(one)) is not None)

    def hold(self) -> None:
        """Have the next request answered and those behind it wait: a slow page is to see it all."""
        first = len(self.server.log)
        self.server.held = lambda seen: seen.number > first

    def start(self) -> None:
        """Begin a refinement, and see its first turn."""
        self.hold()
        self.page.get_by_role("button", name="Refine").click()
        turn = self.page.locator("#now .turn").first
        expect(turn).to_contain_text("Turn 1", timeout=LONG)

    def empty(self, label: str) -> None:
        """Empty a field of the form that was sent."""
        # until it is loaded, the jump to `#begin` takes the focus away from what is typed
        self.page.wait_for_load_state()
        self.page.get_by_label(label).fill("")
        expect(self.page.get_by_label(label)).to_have_value("")

    def release(self) -> None:
        """Have all requests answered."""
        self.server.held = lambda seen: False


@pytest.fixture(scope="module")
def watched(tmp_path_factory: pytest.TempPathFactory) -> Generator[Watched]:
    folder = tmp_path_factory.mktemp("watched")
    broken: list[str] = []
    with ModelServer(Team()) as server:
        # first: a browser that is driven from here leaves no room for another event loop
        seed = make_agent_run(folder, server)
        told = {"OPENAI_COMPATIBLE_BASE_URL": server.v1}
        with chromium() as browser:
            for site in serving(folder / ".kept", **told):
                page = browser.new_context(reduced_motion="reduce").new_page()
                page.on("pageerror", lambda error: broken.append(str(error)))
                page.goto(site.link)
                yield Watched(page, seed, server, site.base)
                page.context.close()
    assert not broken


def test_a_refinement_is_set_up_started_watched_and_cancelled(watched: Watched):
    page = watched.page
    page.goto(f"{watched.base}/settings")
    page.get_by_role("spinbutton", name="Iterations").fill("2")
    page.get_by_label("low manager").fill("nobody")
    page.get_by_role("button", name="Save").click()
    # what is wrong is told where it was typed, which is still there
    expect(page.get_by_role("alert")).to_contain_text("tier low manager")
    expect(page.get_by_label("low manager")).to_have_value("nobody")
    page.get_by_label("low manager").fill(f"{MODEL}-small")
    page.get_by_label("high worker").fill(f"{MODEL}-large")
    page.get_by_role("button", name="Save").click()
    expect(page.get_by_text("saved")).to_be_visible()
    assert not findings(page)
    page.goto(watched.refine)
    expect(page.locator("#sessions .empty")).to_contain_text("Nobody has refined")
    expect(page.get_by_role("spinbutton", name="Iterations")).to_have_value("2")
    expect(page.get_by_label("low manager")).to_be_hidden()
    page.get_by_label("Use tiered models across iterations").check()
    expect(page.get_by_label("low manager")).to_have_value(f"{MODEL}-small")
    expect(page.get_by_label("high worker")).to_have_value(f"{MODEL}-large")
    expect(page.locator("[name=model]")).to_be_hidden()
    page.get_by_label("mid worker").fill("--help")
    page.get_by_role("button", name="Refine").press("Enter")
    expect(page.get_by_role("alert")).to_contain_text("no name of a model")
    watched.empty("mid worker")
    watched.server.latency = 0.7
    # live: its story, then its first iteration with tier and models, and no second one may begin
    watched.start()
    expect(page.locator("#begin")).to_contain_text("One at a time")
    expect(page.locator("#sessions .state")).to_contain_text("running")
    watched.server.latency = 0.0
    watched.release()
    expect(page.locator("#sessions tbody tr").first).to_contain_text(f"{MODEL}-small", timeout=LONG)
    expect(page.locator("#best .big")).to_contain_text("→")
    assert not findings(page) and overflow(page) <= 0
    # a second one, for the first ends by itself once it took twice the time of the seed run
    expect(page.get_by_role("button", name="Refine")).to_be_visible(timeout=LONG)
    watched.start()
    assert not findings(page) and overflow(page) <= 0
    page.get_by_role("button", name="cancel").click()
    expect(page.locator("#sessions .state").first).to_contain_text("interrupted", timeout=LONG)
    expect(page.get_by_role("button", name="Refine")).to_be_visible(timeout=LONG)
    assert page.evaluate("window.hacked") is None


def test_the_page_follows_a_refinement_that_is_killed_and_resumed(watched: Watched):
    page = watched.page
    page.goto(watched.refine)
    before = page.locator("#sessions .session").count()
    watched.server.latency = 0.7
    watched.hold()
    page.get_by_role("spinbutton", name="Iterations").fill("1")
    page.get_by_role("button", name="Refine").click()
    expect(page.locator("#sessions .session")).to_have_count(before + 1, timeout=LONG)
    expect(page.locator("#now .turn").first).to_be_visible(timeout=LONG)
    run, pid = watched.child
    own = page.context.new_page()
    own.goto(f"{watched.base}/runs/{run.name}")
    expect(own.locator("#runhead .state")).to_contain_text("running")
    expect(own.locator("#now .turn").first).to_be_visible(timeout=LONG)
    os.kill(pid, signal.SIGKILL)
    first = page.locator("#sessions .session").first
    expect(first.locator(".state")).to_contain_text("crashed", timeout=LONG)
    expect(first).to_contain_text(f"kept resume {run.name}")
    expect(own.locator("#runhead .state")).to_contain_text("crashed", timeout=LONG)
    home = {"KEPT_HOME": str(watched.seed.parent.parent)}
    with inside(watched.seed.parents[2] / "team", **home):
        told = {"OPENAI_COMPATIBLE_BASE_URL": watched.server.v1}
        again = subprocess.Popen(
            [sys.executable, "-m", "kept", "resume", run.name, "-q"],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            env={**os.environ, **told},  # noqa: TID251 # as a shell would
        )
    expect(first.locator(".state")).to_contain_text("running", timeout=LONG)
    watched.server.latency = 0.0
    watched.release()
    expect(first.locator(".state")).to_contain_text("finished", timeout=LONG)
    assert again.wait(60) in (0, 1)
    expect(own.locator("#runhead .state")).to_contain_text("finished", timeout=LONG)
    own.locator("#iterations a[data-open]").first.click()
    expect(own.locator("#story .turn").first).to_contain_text("Turn 1")
    own.close()
