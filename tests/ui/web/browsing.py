"""Debian's Chromium, driven by Playwright; and axe, which says what one cannot read or reach."""

from collections.abc import Generator
from contextlib import contextmanager
from importlib.resources import files
from typing import Any

from playwright.sync_api import Browser, Page, sync_playwright

FLAGS = (
    "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run",
    "--disable-background-networking", "--disable-component-update", "--disable-sync",
)  # fmt: skip


LIKE = ("tbody tr:nth-child(n+13)", "svg.bars a:nth-of-type(n+13)", ".chiplist a:nth-child(n+9)")
"""Rows like those above them, which take axe most of its time."""


@contextmanager
def chromium() -> Generator[Browser]:
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path="/usr/bin/chromium", args=[*FLAGS])
        yield browser
        browser.close()


def findings(page: Page, *rules: str) -> list[str]:
    """What axe calls serious or critical, with what it is about; by these rules, or by all."""
    # by the protocol, for the pages' own policy allows no script but theirs
    source = (files("axe_playwright_python") / "axe.min.js").read_text(encoding="utf-8")
    page.evaluate(f"() => {{ {source}; window.axe = axe; }}")
    told: dict[str, Any] = {"resultTypes": ["violations"]}
    if rules:
        told["runOnly"] = list(rules)
    where = {"exclude": [[one] for one in LIKE]}
    run = "async ([where, told]) => await axe.run(where, told)"
    found: dict[str, Any] = page.evaluate(run, [where, told])
    return [
        f"{one['id']}: {node['html'][:200]}"
        for one in found["violations"]
        if one["impact"] in ("serious", "critical")
        for node in one["nodes"]
    ]


def overflow(page: Page) -> int:
    """Pixels by which a page is wider than its window."""
    root = "document.documentElement"
    return page.evaluate(f"{root}.scrollWidth - {root}.clientWidth")
