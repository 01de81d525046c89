"""A page that follows a run while it is written, killed and gone on with."""

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Generator
from pathlib import Path

import pytest
from playwright.sync_api import Page, expect

from tests.cli.tasks import TEXTS, write_task
from tests.web.browsing import chromium
from tests.web.conftest import serving

pytestmark = [pytest.mark.browser, pytest.mark.kill]

SLOW = 'sleep 0.15; cp "$KEPT_CANDIDATE"/* "$KEPT_OUTPUT"'
MANY = {f"{n:02}": f"good {n}\n" for n in range(60)} | TEXTS


@pytest.fixture
def page(tmp_path: Path) -> Generator[Page]:
    (tmp_path / ".kept").mkdir()
    with chromium() as browser:
        for site in serving(tmp_path / ".kept"):
            made = browser.new_context().new_page()
            made.goto(site.link)
            yield made
            made.context.close()


def started(folder: Path, *words: str) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-m", "kept", *words, "-q"]
    return subprocess.Popen(
        command, cwd=folder, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        start_new_session=True,
    )  # fmt: skip


def steps_shown(page: Page) -> int:
    cells = page.locator("#steps tbody tr td:first-child").all_inner_texts()
    return max((int(re.sub(r"\D", "", cell)) for cell in cells), default=-1)


def closed(folder: Path) -> int:
    (run,) = (folder / ".kept" / "runs").iterdir()
    return (run / "journal.jsonl").read_bytes().count(b'"kind":"step_closed"') - 1


def follows(page: Page, folder: Path, least: int) -> None:
    """The page comes to show a step that has closed by now, by itself; within a second on a machine
    that has nothing else to do."""
    deadline = time.monotonic() + 120
    while closed(folder) < least:
        assert time.monotonic() < deadline, "the run stands still"
        time.sleep(0.02)
    seen, began = closed(folder), time.monotonic()
    while steps_shown(page) < seen:
        assert time.monotonic() - began < 60, f"step {seen} is not shown"
        page.wait_for_timeout(50)


def test_the_page_follows_a_run_that_is_killed_and_resumed(page: Page, tmp_path: Path):
    write_task(tmp_path, run=SLOW, texts=MANY, iterations=100)
    expect(page.locator(".empty")).to_contain_text("kept demo")
    run = started(tmp_path, "optimize", "task.yaml")
    # the list has it without being asked
    expect(page.locator("#list tbody .state")).to_contain_text("running", timeout=60_000)
    page.locator("#list a[data-open]").click()
    follows(page, tmp_path, 2)
    expect(page.locator("#runhead .state")).to_contain_text("running")
    listed = page.context.new_page()
    listed.goto(page.url.partition("/runs/")[0])
    expect(listed.locator("#list tbody .state")).to_contain_text("running")
    os.killpg(run.pid, signal.SIGKILL)
    run.wait()
    expect(page.locator("#runhead .state")).to_contain_text("crashed", timeout=60_000)
    expect(listed.locator("#list tbody .state")).to_contain_text("crashed", timeout=60_000)
    listed.close()
    before = closed(tmp_path)
    run = started(tmp_path, "resume", "last")
    expect(page.locator("#runhead .state")).to_contain_text("running", timeout=60_000)
    follows(page, tmp_path, before + 3)
    os.killpg(run.pid, signal.SIGINT)
    run.wait()
    expect(page.locator("#runhead .state")).to_contain_text("interrupted", timeout=60_000)
    expect(page.locator("#pulse")).to_have_text("live")
