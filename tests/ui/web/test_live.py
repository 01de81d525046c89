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
from playwright.sync_api import Browser, Page, expect

from tests.ui.cli.tasks import TEXTS, write_task
from tests.ui.web.browsing import chromium
from tests.ui.web.conftest import serving
from tests.ui.web.replaying import Replayed

pytestmark = [pytest.mark.browser, pytest.mark.kill]

LONG = 120_000
"""Milliseconds after which a thing that was waited for is not coming."""
SLOW = 'sleep 0.15; cp "$KEPT_CANDIDATE"/* "$KEPT_OUTPUT"'
MANY = {f"{n:02}": f"good {n}\n" for n in range(60)} | TEXTS


@pytest.fixture(scope="module")
def browser(project: Path) -> Generator[Browser]:
    # after the project: a browser that is driven from here leaves no room for another event loop
    with chromium() as made:
        yield made


@pytest.fixture
def page(browser: Browser, tmp_path: Path) -> Generator[Page]:
    (tmp_path / ".kept").mkdir()
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
    """The page comes to show a step that has closed by now; how soon is for the server's clock to
    say, which looks four times a second."""
    deadline = time.monotonic() + LONG / 1000
    while closed(folder) < least:
        assert time.monotonic() < deadline, "the run stands still"
        time.sleep(0.02)
    seen, began = closed(folder), time.monotonic()
    while steps_shown(page) < seen:
        assert time.monotonic() - began < LONG / 1000, f"step {seen} is not shown"
        page.wait_for_timeout(50)


def test_the_page_follows_a_run_that_is_killed_and_resumed(page: Page, tmp_path: Path):
    write_task(tmp_path, run=SLOW, texts=MANY, iterations=100)
    expect(page.locator(".empty")).to_contain_text("kept demo")
    run = started(tmp_path, "optimize", "task.yaml")
    # the list has it without being asked
    expect(page.locator("#list tbody .state")).to_contain_text("running", timeout=LONG)
    page.locator("#list a[data-open]").click()
    follows(page, tmp_path, 2)
    expect(page.locator("#runhead .state")).to_contain_text("running")
    listed = page.context.new_page()
    listed.goto(page.url.partition("/runs/")[0])
    expect(listed.locator("#list tbody .state")).to_contain_text("running")
    os.killpg(run.pid, signal.SIGKILL)
    run.wait()
    expect(page.locator("#runhead .state")).to_contain_text("crashed", timeout=LONG)
    expect(listed.locator("#list tbody .state")).to_contain_text("crashed", timeout=LONG)
    listed.close()
    before = closed(tmp_path)
    run = started(tmp_path, "resume", "last")
    expect(page.locator("#runhead .state")).to_contain_text("running", timeout=LONG)
    follows(page, tmp_path, before + 3)
    os.killpg(run.pid, signal.SIGINT)
    run.wait()
    expect(page.locator("#runhead .state")).to_contain_text("interrupted", timeout=LONG)
    expect(page.locator("#pulse")).to_have_text("live")


def replayed(project: Path, recipe: str, tmp_path: Path) -> Replayed:
    runs = (project / ".kept" / "runs").iterdir()
    first = (run for run in runs if f'"recipe":"{recipe}"' in _first_line(run))
    return Replayed(next(first), tmp_path / ".kept")


def _first_line(run: Path) -> str:
    return (run / "journal.jsonl").read_text().partition("\n")[0]


def opened(page: Page, run: Replayed) -> None:
    """From the list, which has it without being asked."""
    page.locator(f"#list a[href$='{run.folder.name}']").click(timeout=LONG)
    expect(page.locator("#runhead .state")).to_contain_text("running")


def state_is(page: Page, word: str) -> None:
    expect(page.locator("#runhead .state")).to_contain_text(word, timeout=LONG)


def test_pages_of_a_training_follow_it_with_what_was_opened_in_them(
    page: Page, tmp_path: Path, project: Path
):
    run = replayed(project, "skill", tmp_path)
    opened(page, run)
    expect(page.locator("#epochs .empty")).to_contain_text("this page follows the run")
    rows = page.locator("#epochs tbody tr")
    run.close_step()
    expect(rows).to_have_count(1, timeout=LONG)
    run.close_step()
    expect(rows).to_have_count(2, timeout=LONG)
    expect(page.locator("#trajectory svg .stairs")).to_be_visible()
    page.keyboard.press("j")
    chosen = page.locator("tr.here a").get_attribute("href")
    run.kill()
    state_is(page, "crashed")
    run.resume()
    state_is(page, "running")
    while not page.locator("#epochs summary").count():
        assert run.close_step(), "no note was taken"
        page.wait_for_timeout(300)
    assert page.locator("tr.here a").get_attribute("href") == chosen
    page.locator("#epochs summary").first.click()
    while run.close_step():
        pass
    run.kill()
    state_is(page, "finished")
    expect(page.locator("#skill .diff ins").first).to_be_visible()
    expect(page.locator("#epochs h3").first).to_contain_text("Epoch 2")
    expect(page.locator("#epochs details[open]")).to_have_count(1)


def test_the_page_of_an_agent_run_grows_from_nothing_to_its_end(
    page: Page, tmp_path: Path, project: Path
):
    run = replayed(project, "agent_run", tmp_path)
    opened(page, run)
    # there is no story to be replaced yet: its parts come to a page that has none of them
    expect(page.locator(".empty")).to_contain_text("It has not begun")
    expect(page.locator("#story")).to_have_count(0)
    run.open_step()
    run.call(b"/story")
    expect(page.locator("#task")).to_contain_text("Write a report", timeout=LONG)
    expect(page.locator(".empty")).to_have_count(1)
    for turns in (1, 2):
        run.call(b"/story")
        expect(page.locator("#story .turn")).to_have_count(turns, timeout=LONG)
    expect(page.locator("#plan tbody tr")).to_have_count(1)
    run.kill()
    state_is(page, "crashed")
    run.resume()
    state_is(page, "running")
    while run.close_step():
        pass
    run.kill()
    state_is(page, "finished")
    expect(page.locator("#story .turn")).to_have_count(5)
    expect(page.locator("#headline")).to_have_text("complete, 1 deliverable")
    expect(page.locator("#deliverables pre")).to_contain_text("June 15")
    order = page.locator("main > [id]").evaluate_all("all => all.map(one => one.id)")
    page.reload()
    assert order == page.locator("main > [id]").evaluate_all("all => all.map(one => one.id)")
