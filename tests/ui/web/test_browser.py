"""Every view in a real Chromium: that it shows, that it can be used, that everybody can read it."""

import re
from collections.abc import Generator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page, expect

from tests.ui.cli.tasks import kept
from tests.ui.web.asking import Site
from tests.ui.web.browsing import chromium, findings, overflow

pytestmark = pytest.mark.browser


@pytest.fixture(scope="module")
def browser() -> Generator[Browser]:
    with chromium() as made:
        yield made


@pytest.fixture
def page(browser: Browser, site: Site) -> Generator[Page]:
    """A page that was let in, and that no script of ours may break."""
    context = browser.new_context(viewport={"width": 1280, "height": 850}, reduced_motion="reduce")
    made = context.new_page()
    broken: list[str] = []
    made.on("pageerror", lambda error: broken.append(str(error)))
    made.on("console", lambda said: broken.append(said.text) if said.type == "error" else None)
    made.goto(site.link)
    yield made
    context.close()
    assert not broken


def places(site: Site) -> dict[str, str]:
    """A page of every kind."""
    race, tuning = site.run("artifact"), site.run("coordinate")
    loop, test, compare = site.run("artifact", 1), site.run("eval"), site.run("compare")
    train, agent, refined = site.run("skill"), site.run("agent run"), site.run("refine", 1)
    suite, raced = site.run("suite"), site.run("refine")
    best = site.get(f"/api/runs/{race}").json["best_step"]
    return {
        "runs": "/",
        "race": f"/runs/{race}",
        "loop": f"/runs/{loop}",
        "tuning": f"/runs/{tuning}",
        "test": f"/runs/{test}",
        "comparison": f"/runs/{compare}",
        "step": f"/runs/{race}/steps/0",
        "kept step": f"/runs/{race}/steps/{best}",
        "cases": f"/runs/{race}/cases",
        "cases of a test": f"/runs/{test}/cases",
        "cell": f"/runs/{test}/steps/0/cases/sum-0",
        "numbers": f"/runs/{tuning}/numbers",
        "no numbers": f"/runs/{loop}/numbers",
        "compare": f"/compare?run={site.run('eval', 1)}&run={site.run('eval', 2)}",
        "compare three": f"/compare?run={race}&run={loop}&run={compare}",
        "compare kinds": f"/compare?run={agent}&run={refined}&run={train}",
        "training": f"/runs/{train}",
        "step of a training": f"/runs/{train}/steps/1",
        "agent run": f"/runs/{agent}",
        "suite": f"/runs/{suite}",
        "epoch": f"/runs/{suite}/steps/0",
        "tasks": f"/runs/{suite}/cases",
        "raced refinement": f"/runs/{raced}",
        "refinement": f"/runs/{refined}",
        "iteration": f"/runs/{refined}/steps/1",
        "refine": f"/runs/{agent}/refine",
        "refine, from a refinement": f"/runs/{refined}/refine",
        "settings": "/settings",
        "experiments": "/experiments",
        "prompt artifacts": "/prompts",
        "choose": "/compare",
        "nothing": "/?q=no-such-run",
    }


LOOKS = (
    "color-contrast", "link-in-text-block", "scrollable-region-focusable", "target-size",
    "meta-viewport",
)  # fmt: skip


@pytest.mark.parametrize(("width", "scheme"), [(1280, "light"), (400, "dark")])
def test_every_page_fits_and_everybody_can_read_it(
    browser: Browser, site: Site, width: int, scheme: str
):
    context = browser.new_context(
        viewport={"width": width, "height": 850},
        color_scheme="dark" if scheme == "dark" else "light",
        reduced_motion="reduce",
    )
    page = context.new_page()
    page.goto(site.link)
    problems: list[str] = []
    for name, path in places(site).items():
        reply = page.goto(site.base + path)
        assert reply is not None and reply.status == 200, name
        expect(page.locator("h1")).to_be_visible()
        # what a narrow window or other colours can break; the rest is the same markup
        some = LOOKS if scheme == "dark" else ()
        problems += [f"{name}: {one}" for one in findings(page, *some)]
        problems += [f"{name}: {overflow(page)} px too wide"] if overflow(page) > 0 else []
    context.close()
    assert not problems, "\n".join(problems)


def test_the_list_is_searched_filtered_and_sorted(page: Page, site: Site):
    rows = page.locator("#list tbody tr")
    expect(rows).to_have_count(12)
    page.keyboard.press("/")
    page.keyboard.type("talking")
    expect(rows).to_have_count(1)
    expect(page).to_have_url(re.compile("q=talking"))
    page.keyboard.press("Escape")
    page.get_by_label("search runs").fill("")
    page.get_by_label("kind").select_option("tuning")
    expect(rows).to_have_count(1)
    page.get_by_label("kind").select_option("")
    page.get_by_label("order").select_option("rollouts")
    expect(rows).to_have_count(12)
    figures = [
        int(text.replace(",", ""))
        for text in page.locator("td[data-label=rollouts]").all_inner_texts()
    ]
    assert figures == sorted(figures, reverse=True)


def test_keys_lead_from_the_list_to_a_step_and_back(page: Page, site: Site):
    page.keyboard.press("j")
    expect(page.locator("tr.here")).to_have_count(1)
    page.keyboard.press("Enter")
    page.wait_for_url("**/runs/*")
    page.keyboard.press("j")
    page.keyboard.press("j")
    page.keyboard.press("k")
    page.keyboard.press("Enter")
    page.wait_for_url("**/steps/*")
    page.keyboard.press("Escape")
    page.wait_for_url("**/runs/*")
    page.keyboard.press("Escape")
    page.wait_for_url(f"{site.base}/")


def test_a_tab_that_nobody_sees_holds_no_connection(page: Page, site: Site):
    page.add_init_script(
        "const Real = EventSource; window.streams = []; window.EventSource = class extends Real {"
        " constructor(where) { super(where); window.streams.push(this); } };"
    )
    page.goto(f"{site.base}/runs/{site.run('artifact')}")
    seen = "(how) => { Object.defineProperty(document, 'visibilityState', { value: how, "
    seen += "configurable: true }); document.dispatchEvent(new Event('visibilitychange')); "
    seen += "return streams.map((one) => one.readyState === EventSource.CLOSED); }"
    page.wait_for_function("window.streams.length === 1")
    assert page.evaluate(seen, "hidden") == [True]
    assert page.evaluate(seen, "visible") == [True, False]
    expect(page.locator("#pulse")).to_have_text("live")


def test_a_point_of_the_trajectory_leads_to_its_step(page: Page, site: Site):
    run = site.run("artifact")
    page.goto(f"{site.base}/runs/{run}")
    promoted = page.locator("svg.trajectory a:has(.promoted)")
    expect(promoted).to_have_count(1)
    promoted.click()
    expect(page.locator("h1")).to_contain_text("Step")
    expect(page.locator(".lead .verdict")).to_contain_text("kept")
    assert page.locator(".diff ins").all_inner_texts()
    expect(page.locator("svg.bars")).to_be_visible()


def test_a_cell_of_the_matrix_leads_to_its_conversation(page: Page, site: Site):
    page.goto(f"{site.base}/runs/{site.run('eval')}/cases")
    page.locator("a.cell").first.click()
    expect(page.locator(".item.user").first).to_be_visible()
    expect(page.locator(".use").first).to_contain_text("add")
    expect(page.locator(".item.tool").first).to_be_visible()
    page.get_by_text("raw", exact=True).first.click()
    expect(page.locator("details[open] pre").last).to_contain_text('"trace"')


def test_cases_that_broke_or_were_fixed_are_found(page: Page, site: Site):
    run = site.run("artifact")
    page.goto(f"{site.base}/runs/{run}/cases?show=all")
    whole = page.locator("table.matrix tbody tr").count()
    page.get_by_role("link", name="fixed", exact=True).click()
    expect(page.locator("b.up").first).to_be_visible()
    assert 0 < page.locator("table.matrix tbody tr").count() <= whole
    page.get_by_role("link", name="broke", exact=True).click()
    assert page.locator("table.matrix tbody tr").count() == page.locator("tr:has(b.down)").count()


def test_cases_whose_draws_differ_and_those_that_nothing_passes_are_found(page: Page, site: Site):
    rows = page.locator("table.matrix tbody tr")
    page.goto(f"{site.base}/runs/{site.run('artifact')}/cases?show=all")
    # what is behind a link is a candidate's
    told = ["".join(row.locator("a.cell").all_inner_texts()) for row in rows.all()]
    page.get_by_role("link", name="flaky", exact=True).click()
    expect(rows).to_have_count(sum("≈" in row for row in told))
    page.get_by_role("link", name="always failing", exact=True).click()
    expect(rows).to_have_count(sum(not re.search("[1-9]", row) for row in told))
    assert 0 < rows.count() < len(told)


def test_deciding_and_sealed_cases_are_shown_as_such(page: Page, site: Site):
    page.goto(f"{site.base}/runs/{site.run('artifact')}/cases?show=all")
    expect(page.locator(".split.deciding").first).to_be_visible()
    expect(page.locator(".split.sealed").first).to_be_visible()


def test_steps_are_filtered_and_a_step_has_its_reason(page: Page, site: Site):
    run = site.run("coordinate")
    page.goto(f"{site.base}/runs/{run}")
    which = page.get_by_role("navigation", name="which steps")
    which.get_by_role("link", name="kept").click()
    page.wait_for_url("**show=kept**")
    rows = page.locator("#steps tbody tr")
    assert rows.count() == page.locator("#steps .verdict").count() > 0
    page.goto(f"{site.base}/runs/{run}?show=refused")
    page.locator("#steps tbody a").first.click()
    expect(page.locator(".lead")).to_be_visible()


def test_numbers_show_every_point_with_the_densities_of_their_study(page: Page, site: Site):
    page.goto(f"{site.base}/runs/{site.run('coordinate')}/numbers")
    assert page.locator(".strand").count() >= 5
    expect(page.locator("figure code")).to_contain_text("temperature")
    assert page.locator("path.good").count() >= 1 and page.locator("path.bad").count() >= 1


def test_a_training_shows_its_epochs_with_edits_their_fates_and_the_skill(page: Page, site: Site):
    page.goto(f"{site.base}/runs/{site.run('skill')}")
    assert page.locator("#epochs h3").all_inner_texts()[0].startswith("Epoch 2")
    assert "1 applied" in page.locator("#epochs .fate").all_inner_texts()
    expect(page.locator("#epochs")).to_contain_text("slow update")
    assert page.locator("svg .band").count() >= 3
    expect(page.locator("#skill .diff ins").first).to_be_visible()
    page.keyboard.press("j")
    page.keyboard.press("Enter")
    page.wait_for_url("**/steps/*")
    expect(page.locator(".lead .verdict")).to_be_visible()


def test_a_suite_shows_what_each_epoch_considered_changed_and_decided(page: Page, site: Site):
    page.goto(f"{site.base}/runs/{site.run('suite')}")
    epochs = page.locator("#epochs tbody tr")
    expect(epochs).to_have_count(3)
    expect(epochs.nth(0)).to_contain_text("no text is to be changed")
    expect(epochs.nth(1).locator(".verdict")).to_contain_text("discarded")
    expect(epochs.nth(2).locator(".verdict")).to_contain_text("kept")
    expect(epochs.nth(2)).to_contain_text("may 0.12 → 0.042")
    epochs.nth(2).locator("summary").click()
    expect(epochs.nth(2)).to_contain_text("critics miss the source")
    expect(page.locator("#texts .diff ins").first).to_contain_text("where its figures come from")
    page.get_by_role("link", name="prompt artifacts").click()
    expect(page.locator("h1")).to_have_text("Prompt artifacts")


def test_readings_that_decide_stand_beside_the_loss_of_the_run(page: Page, site: Site):
    page.goto(f"{site.base}/runs/{site.run('refine')}")
    expect(page.locator("#iterations")).to_contain_text("Noise: none: 3 readings agree")
    rows = page.locator("#iterations tbody tr")
    assert rows.locator("td[data-label='by readings']").all_inner_texts() == ["0.0900", "0.0900"]
    page.get_by_role("link", name="All its refinements").click()
    session = page.locator("#sessions .session").nth(0)
    expect(session.locator(".tag", has_text="race")).to_be_visible()
    expect(session.locator("td[data-label='by readings']")).to_have_text("0.0900")


def test_an_agent_run_tells_its_story_with_the_loss_in_parts(page: Page, site: Site):
    page.goto(f"{site.base}/runs/{site.run('agent run')}")
    expect(page.locator("h1")).to_have_text("complete, 1 deliverable")
    expect(page.locator(".parts")).to_contain_text("critics")
    expect(page.locator("#plan tbody tr")).to_contain_text("2 workers")
    story = page.locator("#story .turn")
    expect(story).to_have_count(5)
    expect(story.nth(0)).to_contain_text("report.md")
    expect(story.nth(1)).to_contain_text("the change from May to June is not told")
    expect(story.nth(2)).to_contain_text("refused by l0")
    expect(story.nth(4)).to_contain_text("✓ critique")
    expect(page.locator("#deliverables pre")).to_contain_text("window.hacked")
    assert page.evaluate("window.hacked") is None
    page.get_by_role("link", name="Refine", exact=True).click()
    expect(page.locator("#sessions .session")).to_have_count(3)
    # one of them was written before there were tiers
    old = page.locator("#refine_20260419T182438Z")
    expect(old.locator("tbody tr")).to_contain_text("0.350")
    expect(old).not_to_contain_text("tier")


def test_a_refinement_leads_from_its_loss_to_the_story_of_an_iteration(page: Page, site: Site):
    page.goto(f"{site.base}/runs/{site.run('refine', 1)}")
    tiers = page.locator("#iterations td[data-label=tier]").all_inner_texts()
    assert tiers == ["low", "mid", "high"]
    expect(page.locator("#iterations tr.chosen")).to_contain_text("★")
    page.locator("#iterations tr.chosen a").click()
    expect(page.locator(".diff figcaption")).to_have_text("deliverable/report.md")
    expect(page.locator("#story .turn").first).to_contain_text("Turn 1")
    page.wait_for_load_state()
    page.keyboard.press("Escape")
    expect(page.locator("#iterations")).to_be_visible()


def test_experiments_are_a_tree_and_prompts_have_their_epochs(page: Page, site: Site):
    page.get_by_role("link", name="experiments").click()
    tree = page.locator("details.tree")
    expect(tree).to_contain_text("Sales <script>")
    expect(tree.locator("details.branch")).to_have_count(2)
    expect(tree.locator("tr.chosen")).to_contain_text("★")
    expect(tree.locator("details.branch").nth(1)).to_contain_text("continuation")
    page.get_by_role("link", name="Prompt artifacts").click()
    epochs = page.locator("section", has_text="awp.db").locator("article.card")
    expect(epochs.nth(0)).to_contain_text("taken back")
    expect(epochs.nth(1)).to_contain_text("updated")
    expect(epochs.nth(1).locator(".diff ins").first).to_contain_text("Say where every figure")
    assert page.evaluate("window.hacked") is None
    page.wait_for_load_state()
    page.keyboard.press("Escape")
    expect(page.locator("h1")).to_have_text("Experiments")


def test_two_tests_are_chosen_and_compared(page: Page, site: Site):
    first, second = site.run("eval", 1), site.run("eval", 2)
    page.get_by_label(f"compare {first}").check()
    page.get_by_label(f"compare {second}").check()
    page.get_by_role("button", name="compare the chosen").click()
    page.wait_for_url("**/compare?**")
    expect(page.locator(".lead")).to_contain_text("better on")
    asked = page.locator("section", has=page.get_by_role("heading", name="What was asked"))
    expect(asked.locator("table").first).to_contain_text("model.temperature=0.1")
    # a case that flipped leads to what was said in it
    page.locator("section[id^=against] td a").first.click()
    page.wait_for_url("**/steps/0/cases/text-*")
    expect(page.locator(".item.assistant").first).to_be_visible()


def test_script_in_prompts_and_traces_never_runs(page: Page, site: Site):
    run = site.run("artifact")
    for path in ("", "/steps/2", "/steps/2/cases/c36", "/cases?show=all"):
        page.goto(f"{site.base}/runs/{run}{path}")
        assert page.evaluate("window.hacked") is None
        assert page.locator("img").count() == 0


def test_what_is_not_there_says_where_to_go(page: Page, site: Site, browser: Browser):
    context = browser.new_context()
    lost = context.new_page()
    lost.goto(site.link)
    lost.goto(f"{site.base}/runs/nowhere")
    expect(lost.locator("h1")).to_contain_text("there is no run")
    lost.get_by_role("link", name="All runs").click()
    expect(lost.locator("h1")).to_have_text("Runs")
    context.close()
    stranger = browser.new_context()
    out = stranger.new_page()
    out.goto(site.base)
    expect(out.locator("body")).to_contain_text("Open the link that")
    stranger.close()


def test_an_exported_page_opens_anywhere_and_asks_for_nothing(
    browser: Browser, site: Site, project: Path, tmp_path: Path
):
    run = site.run("artifact")
    called = kept("report", str(project / ".kept" / "runs" / run), "--html")
    assert called.code == 0, called.stderr
    text = (project / ".kept" / "runs" / run / "report.html").read_text()
    (tmp_path / "mailed.html").write_text(text)
    context = browser.new_context(viewport={"width": 1280, "height": 850}, offline=True)
    page = context.new_page()
    broken: list[str] = []
    asked: list[str] = []
    page.on("console", lambda said: broken.append(said.text) if said.type == "error" else None)
    page.on("request", lambda request: asked.append(request.url))
    page.goto((tmp_path / "mailed.html").as_uri())
    expect(page.locator("svg.trajectory")).to_be_visible()
    page.locator("svg.trajectory a:has(.promoted)").click()
    expect(page.locator("section[id^=step-] .diff").first).to_be_visible()
    assert (
        page.evaluate("getComputedStyle(document.querySelector('.card')).borderTopWidth") == "1px"
    )
    assert page.evaluate("window.hacked") is None
    assert not findings(page)
    context.close()
    assert not broken and [url for url in asked if not url.startswith(("file:", "data:"))] == []
