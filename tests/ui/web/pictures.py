"""The pictures of the guide, taken of real pages: `python -m tests.ui.web.pictures [NAME ...]`.

Runs are made by the real commands, as for the browser tests but without markup that means harm.
Look at each picture before it is kept.
"""

import os
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

from playwright.sync_api import Browser, Page, expect

from kept.testing.server import ModelServer
from tests.recipes.agent_config.tune.world import answer, write_agent
from tests.ui.cli.tasks import kept
from tests.ui.web.asking import Site
from tests.ui.web.browsing import chromium
from tests.ui.web.conftest import serving
from tests.ui.web.project import inside, make_agents, make_project
from tests.ui.web.team import Team

OUT = Path(__file__).parents[3] / "docs" / "img"
WIDE, NARROW, TALLEST = 1280, 400, 1500
"""Pixels."""
LIVE = "refine-live"
TUNING = "race: balanced\nsplit: '3:5:2'"


@dataclass(frozen=True)
class Shot:
    """One picture."""

    name: str
    path: str
    width: int = WIDE
    dark: bool = False


def shots(site: Site) -> list[Shot]:
    """All but the one that has to be waited for."""
    tuning, race = site.run("coordinate"), site.run("artifact")
    train, agent, refined = site.run("skill"), site.run("agent run"), site.run("refine", 1)
    both = {
        "agent": f"/runs/{agent}",
        "experiments": "/experiments",
        "prompts": "/prompts",
        "refine": f"/runs/{agent}/refine",
        "refinement": f"/runs/{refined}",
        "run": f"/runs/{tuning}",
        "settings": "/settings",
        "suite": f"/runs/{site.run('suite')}",
        "training": f"/runs/{train}",
        "runs": "/",
    }
    wide = {
        "cases": f"/runs/{race}/cases?show=all",
        "cell": f"/runs/{site.run('eval')}/steps/0/cases/sum-0",
        "compare": f"/compare?run={site.run('eval', 2)}&run={site.run('eval', 1)}",
        "numbers": f"/runs/{tuning}/numbers",
        "step": f"/runs/{race}/steps/6",
    }
    found = [Shot(name, path) for name, path in (both | wide).items()]
    found += [Shot(f"{name}-400", path, NARROW) for name, path in both.items()]
    return [*found, Shot("run-dark", both["run"], dark=True)]


def make(folder: Path) -> None:
    """A shop with runs of every kind."""
    make_project(folder, harm="")
    home = {"KEPT_HOME": str(folder / ".kept"), "KEY": "sk-none"}
    with ModelServer(answer) as server, inside(folder / "moods", **home):
        path = write_agent(folder / "moods", server.v1, cases=60, trials=14, more=TUNING)
        text = path.read_text()
        axis = "        - {path: model.temperature, range: [0.0, 1.0]}\n"
        two = f"{axis}        - {{path: model.top_p, range: [0.1, 1.0]}}\n"
        path.write_text(text.replace(axis, two))
        called = kept("test", "optimize", "agent.yaml", "-q")
        assert called.code == 0, called.stderr


def take(browser: Browser, site: Site, wanted: set[str]) -> None:
    """Every picture that is wanted, or all."""
    for shot in shots(site):
        if wanted and shot.name not in wanted:
            continue
        context = browser.new_context(
            viewport={"width": shot.width, "height": 850},
            color_scheme="dark" if shot.dark else "light",
            reduced_motion="reduce",
        )
        page = context.new_page()
        page.goto(site.link)
        page.goto(site.base + shot.path)
        save(page, shot.name)
        context.close()


def save(page: Page, name: str) -> None:
    page.wait_for_load_state()
    height: int = page.evaluate("document.documentElement.scrollHeight")
    size = page.viewport_size
    assert size is not None
    page.set_viewport_size({"width": size["width"], "height": min(TALLEST, height)})
    page.evaluate("scrollTo(0, 0)")
    page.screenshot(path=OUT / f"view-{name}.png")
    sys.stdout.write(f"view-{name}.png\n")


def live(browser: Browser, site: Site, server: ModelServer) -> None:
    """A refinement that goes on."""
    page = browser.new_page(viewport={"width": WIDE, "height": 850}, reduced_motion="reduce")
    page.goto(site.link)
    page.goto(f"{site.base}/runs/{site.run('agent run')}/refine")
    server.latency = 4.0
    page.get_by_role("button", name="Refine").click()
    expect(page.locator("#now .turn")).to_have_count(2, timeout=120_000)
    save(page, LIVE)
    page.get_by_role("button", name="cancel").click()
    expect(page.get_by_role("button", name="Refine")).to_be_visible(timeout=120_000)
    page.close()


def main() -> None:
    """Make the shop, and take what is wanted."""
    wanted = set(sys.argv[1:])
    with tempfile.TemporaryDirectory() as place, ModelServer(Team("")) as server:
        folder = Path(place) / "shop"
        os.environ.pop("KEPT_HOME", None)  # noqa: TID251 # as a new shell has it
        if wanted != {LIVE}:
            make(folder)
        make_agents(folder, server, "")
        with chromium() as browser:
            for site in serving(folder / ".kept", OPENAI_COMPATIBLE_BASE_URL=server.v1):
                if wanted != {LIVE}:
                    take(browser, site, wanted)
                if not wanted or LIVE in wanted:
                    live(browser, site, server)


if __name__ == "__main__":
    main()
