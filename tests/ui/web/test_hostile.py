"""Names and texts that mean harm: shown as text, and leading nowhere."""

import json
import shutil
from collections.abc import Generator
from pathlib import Path
from urllib.parse import quote

import pytest

from tests.ui.web.asking import Site
from tests.ui.web.conftest import serving
from tests.ui.web.project import HOSTILE

pytestmark = pytest.mark.slow

WAYS = (
    "..", "../..", "..%2f..%2fetc%2fpasswd", "%2e%2e/%2e%2e", "....//....//etc/passwd", "%00",
    "runs%2f..", "/etc/passwd", "..\\..", "%5c..%5c", "a" * 4000, "%ff%fe", "💥",
)  # fmt: skip


@pytest.mark.parametrize("way", WAYS)
def test_no_path_leads_out_of_the_runs(site: Site, way: str):
    way = quote(way, safe="%/\\")
    for path in (
        f"/runs/{way}",
        f"/api/runs/{way}",
        f"/runs/{way}/cases",
        f"/compare?run={way}&run=y",
        f"/runs/{way}/refine",
        f"/api/experiments/{way}/refinement_sessions",
    ):
        reply = site.get(path)
        assert reply.status in (200, 404, 422), path
        assert "root:" not in reply.text
    assert site.get(f"/static/{way}").status in (404, 405)


@pytest.mark.parametrize("way", WAYS)
def test_no_case_leads_out_of_its_step(site: Site, way: str):
    run = site.run("artifact")
    reply = site.get(f"/runs/{run}/steps/0/cases/{quote(way, safe='%/')}")
    assert reply.status in (404, 422)
    assert "root:" not in reply.text


@pytest.mark.parametrize("step", ["-1", "999999", "99999999999999999999", "1e3", "x", "0x1", "%20"])
def test_a_step_that_is_not_there_is_told_of(site: Site, step: str):
    run = site.run("artifact")
    assert site.get(f"/runs/{run}/steps/{step}").status in (404, 422)


def test_an_address_that_leads_nowhere_is_told_of_on_a_page(tmp_path: Path):
    (tmp_path / ".kept" / "runs").mkdir(parents=True)
    for site in serving(tmp_path / ".kept"):
        for path, status, told in (
            ("/runs/x/steps/abc", 422, "`abc` is no step"),
            ("/runs/x/steps/%3Cscript%3E", 422, "`&lt;script&gt;` is no step"),
            ("/?page=0", 422, "`0` is no page"),
            ("/nowhere", 404, "there is no page /nowhere"),
        ):
            reply = site.get(path)
            assert reply.status == status, path
            assert reply.headers["content-type"].startswith("text/html"), path
            assert told in reply.text and "All runs" in reply.text, path
            assert "Content-Security-Policy".lower() in reply.headers
        # programs hear it as they did
        assert site.get("/api/runs/x/steps/abc").json["detail"][0]["loc"] == ["path", "step"]
        assert site.get("/api/nowhere").json == {"detail": "Not Found"}


def test_script_in_a_prompt_is_text(site: Site):
    run = site.run("artifact")
    pages = [site.get(f"/runs/{run}/steps/{n}").text for n in range(4)]
    assert any("&lt;script&gt;" in page for page in pages)
    assert not any("<script>window" in page or "<img src=x" in page for page in pages)


def test_script_in_a_trace_is_text(site: Site):
    run = site.run("artifact")
    step = next(n for n in range(4) if "window.hacked" in site.get(f"/runs/{run}/steps/{n}").text)
    cells = site.get(f"/runs/{run}/steps/{step}").text
    case = cells.partition(f"/runs/{run}/steps/{step}/cases/")[2].partition('"')[0]
    page = site.get(f"/runs/{run}/steps/{step}/cases/{case}").text
    assert "&lt;script&gt;window.hacked" in page and HOSTILE not in page


@pytest.fixture
def odd(project: Path, tmp_path: Path) -> Generator[Site]:
    """A home with run folders of hostile names."""
    (source,) = [f for f in (project / ".kept" / "runs").iterdir() if _is(f, "task")][:1]
    for name in ODD:
        shutil.copytree(source, tmp_path / ".kept" / "runs" / name, symlinks=True)
    (tmp_path / ".kept" / "runs" / "empty").mkdir()
    (tmp_path / ".kept" / "runs" / "torn").mkdir()
    (tmp_path / ".kept" / "runs" / "torn" / "journal.jsonl").write_text('{"kind": "run_st')
    (tmp_path / ".kept" / "runs" / "file").write_text("not a folder")
    yield from serving(tmp_path / ".kept")


ODD = (
    "<img src=x onerror=alert(1)>",
    "a b",
    "'\"><script>alert(1)<",
    "..x",
    "%2e%2e",
    "é\n",
    "?q#f",
)


def test_files_of_a_run_that_mean_harm_are_text_or_nothing(project: Path, tmp_path: Path):
    (source,) = [f for f in (project / ".kept" / "runs").iterdir() if _is(f, "agent_run")]
    home = tmp_path / ".kept"
    seed = home / "runs" / source.name
    shutil.copytree(source, seed, symlinks=True)
    sessions = seed / "refinement_sessions"
    (sessions / "broken.json").write_text('{"session_id": ')
    (sessions / "list.json").write_text("[1]")
    (sessions / "deep.json").write_text("[" * 100_000)
    (sessions / "leads-out.json").symlink_to("/etc/passwd")
    rows = [{"k": HOSTILE, "run_id": HOSTILE, "loss": "x", "tier": [HOSTILE]}, 7, {"k": 1e400}]
    told = {"session_id": HOSTILE, "iterations": rows, "stop_reason": HOSTILE, "best_iter": "x"}
    (sessions / "odd.json").write_text(json.dumps(told))
    (seed / "BEST" / "manifest.json").write_text(json.dumps({"best_run_id": [HOSTILE]}))
    task = home / "experiments" / "exp_00000000" / "tasks" / "001-x"
    task.mkdir(parents=True)
    order = ["../../../../etc", "001-x", 7]
    odd = {"name": HOSTILE, "task_order": order, "goal": {"a": HOSTILE}}
    (task.parents[1] / "experiment.json").write_text(json.dumps(odd))
    (task / "task.json").write_text(json.dumps({"task_number": "x", "inputs": [HOSTILE]}))
    (task.parents[1] / "outer_loop.db").write_bytes(b"SQLite format 3\0" + b"x" * 100)
    (home / "artifacts.db").write_text("not a database")
    for site in serving(home):
        for path in (f"/runs/{seed.name}/refine", "/experiments", "/prompts"):
            reply = site.get(path)
            assert reply.status == 200, path
            assert "<script>window" not in reply.text and "root:" not in reply.text, path
        told = site.get(f"/api/experiments/{seed.name}/refinement_sessions")
        assert told.status == 200 and "root:" not in told.text
        assert HOSTILE in [one["session_id"] for one in told.json["sessions"]]
        assert site.get("/api/experiments").status == site.get("/api/prompts").status == 200


def _is(folder: Path, recipe: str) -> bool:
    return f'"recipe":"{recipe}"' in (folder / "journal.jsonl").read_text().partition("\n")[0]


def test_runs_with_hostile_names_are_listed_as_text_and_open(odd: Site):
    page = odd.get("/")
    assert page.status == 200
    assert "<img src=x" not in page.text and "<script>alert" not in page.text
    for name in ODD:
        reply = odd.get(f"/runs/{quote(name, safe='')}")
        assert reply.status == 200, name
        assert "<img src=x" not in reply.text and "<script>alert" not in reply.text
    assert odd.get("/runs/torn").status == 409
    assert odd.get("/runs/empty").status == 404
