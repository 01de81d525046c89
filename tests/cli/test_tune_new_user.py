"""What somebody runs into who tunes an agent for the first time, and what is said then."""

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from kept.testing.server import Fault, ModelServer, Seen
from tests.cli.tasks import kept
from tests.recipes.coordinate.world import answer, write_agent

pytestmark = pytest.mark.slow

SIGMA = "accept_sigma: 1.0\nrepeats: 2\nsplit: '1:1:0'"
RACE = "split: '6:12:6'\nrace: {preset: fast}"
GUIDE = Path(__file__).parents[2] / "docs" / "guide" / "tuning.md"


@pytest.fixture(autouse=True)
def key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KEY", "none")


@pytest.fixture(scope="module")
def server() -> Iterator[ModelServer]:
    with ModelServer(answer) as made:
        yield made


def results(here: Path) -> Path:
    (folder,) = (here / "results" / "optimizer").iterdir()
    return folder


def rows(folder: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (folder / "trials.jsonl").read_text().splitlines()]


def cut_short(project: Path) -> None:
    """Leave the only run of a project as a kill in its third trial would."""
    (run,) = (project / ".kept" / "runs").iterdir()
    lines = (run / "journal.jsonl").read_bytes().splitlines(keepends=True)
    opened = [n for n, line in enumerate(lines) if b'"kind":"step_opened"' in line]
    (run / "journal.jsonl").write_bytes(b"".join(lines[: opened[3] + 1]))


def every_file(folder: Path) -> dict[Path, bytes]:
    return {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}


@pytest.mark.parametrize("command", [("test", "optimize", "--resume", "last"), ("resume",)])
def test_a_copied_project_goes_on_in_its_own_folder(
    command: tuple[str, ...], here: Path, server: ModelServer, monkeypatch: pytest.MonkeyPatch
):
    first, second = here / "first", here / "second"
    write_agent(first, server.v1, cases=16, trials=3, more=SIGMA)
    monkeypatch.chdir(first)
    assert kept("test", "optimize", "-q", "--max-cycles", "1").code == 0
    cut_short(first)
    shutil.copytree(first, second, symlinks=True)
    (results(second) / "report.md").unlink()
    before = every_file(first)
    monkeypatch.chdir(second)
    called = kept(*command, "-q")
    assert called.code == 0, called.stderr
    assert every_file(first) == before
    assert (results(second) / "report.md").exists()
    assert str(first) not in (results(second) / "report.md").read_text()
    assert len(rows(results(second))) > 3


def test_a_measured_baseline_is_not_the_last_run_to_go_on_with(here: Path, server: ModelServer):
    write_agent(here, server.v1, cases=16, trials=3, more=SIGMA)
    assert kept("test", "optimize", "--print-baseline", "-q").code == 0
    refused = kept("test", "optimize", "--resume", "last", "-q")
    assert refused.code == 1
    assert "only measured the baseline" in refused.stderr and "hint: " in refused.stderr
    assert kept("test", "optimize", "-q", "--max-cycles", "1").code == 0
    assert kept("test", "optimize", "--print-baseline", "-q").code == 0
    called = kept("test", "optimize", "--resume", "last", "--progress", "json")
    started = json.loads(called.stdout.splitlines()[0])
    trials = here / "results" / "optimizer" / started["run_id"] / "trials.jsonl"
    assert len(trials.read_text().splitlines()) > 1


def test_each_figure_of_the_baseline_says_which_draws_it_is_of(here: Path, server: ModelServer):
    write_agent(here, server.v1, cases=48, trials=4, more=RACE)
    called = kept("test", "optimize", "--max-cycles", "1")
    assert called.code == 0, called.stderr
    line = next(line for line in called.stderr.splitlines() if line.startswith("baseline"))
    told = dict(line.split("  ", 1) for line in called.stdout.splitlines())
    page = (results(here) / "report.md").read_text()
    row = rows(results(here))[0]
    for split, name in (("train", "train"), ("hold", "holdout")):
        first = float(re.findall(rf"{split} (\d\.\d+)", line)[0])
        assert first == pytest.approx(row[name]["loss"], abs=6e-4)
        said = told[f"{name} loss"].strip()
        whole = float(said.split()[0])
        table = re.findall(rf"\| {name} \| loss \| (\S+) \|", page)
        assert table == [f"{whole:.4g}"], "the page and the answer have the same"
        assert f"* {name} loss {whole:.4g}" in page
        if whole != pytest.approx(first, abs=6e-4):
            begun = re.findall(r"draws, (\S+) in the first (\d+)", said)[0]
            assert float(begun[0]) == pytest.approx(first, abs=6e-4)
            assert int(begun[1]) == row[name]["rollouts"]
    assert "in the first" in called.stdout, "nothing was drawn again, so that nothing was shown"


def garbage(seen: Seen) -> Any:
    critic = "failing_pattern" in json.dumps(seen.body.get("response_format") or {})
    return "I would rather talk about the weather." if critic else answer(seen)


def test_a_critic_who_talks_nonsense_is_told_of(here: Path):
    with ModelServer(garbage) as server:
        write_agent(here, server.v1, cases=16, trials=3, more=SIGMA)
        called = kept("test", "optimize", "--max-cycles", "1")
        told = kept("test", "optimize", "--max-cycles", "1", "--progress", "json").stdout
    assert called.code == 0, called.stderr
    assert re.search(r"critic +3 of 3 replies could not be used, the last: ", called.stdout)
    assert "warning: the critic: 3 of 3 replies could not be used" in called.stderr
    assert re.search(r"hint: .*optimizer/agents/critic\.yaml", called.stderr)
    last = json.loads(told.splitlines()[-1])
    assert [(one["who"], one["times"]) for one in last["unused_replies"]] == [("critic", 3)]
    for page in (here / "results" / "optimizer").glob("*/report.md"):
        assert "* critic: 3 of 3 replies could not be used" in page.read_text()


def test_after_a_wrong_endpoint_the_way_on_works(here: Path, server: ModelServer):
    with ModelServer(faults=lambda _: Fault("status", 404)) as wrong:
        path = write_agent(here, wrong.v1, cases=16, trials=2, more=SIGMA)
        called = kept("test", "optimize", "-q", "--max-cycles", "1")
    assert called.code == 1
    hints = [line for line in called.stderr.splitlines() if line.startswith("hint: ")]
    (anew,) = re.findall(r"mend it there, then `kept (.*)` starts another run", "\n".join(hints))
    path.write_text(path.read_text().replace(wrong.v1, server.v1))
    called = kept(*anew.split(), "-q")
    assert called.code == 0, called.stderr


def test_a_secret_that_was_set_is_written_nowhere_and_asked_for_again(
    here: Path, server: ModelServer
):
    write_agent(here, server.v1, cases=16, trials=3, more=SIGMA)
    secret = "only-on-the-command-line"
    given = ("--set", f"observability.exporters.headers.auth={secret}")
    called = kept("test", "optimize", "-q", "--max-cycles", "1", *given)
    assert called.code == 0, called.stderr
    cut_short(here)
    refused = kept("test", "optimize", "--resume", "last", "-q")
    assert refused.code == 1
    assert "hint: give --set observability.exporters.headers.auth=… again" in refused.stderr
    called = kept("test", "optimize", "--resume", "last", "-q", *given)
    assert called.code == 0, called.stderr
    for path, data in every_file(here).items():
        assert secret.encode() not in data, path


def test_the_way_to_start_again_has_the_flags_that_it_began_with(here: Path, server: ModelServer):
    path = write_agent(here, server.v1, cases=16, trials=3, more=SIGMA)
    words = ("--max-cycles", "1", "--seed", "7", "--numeric-max-trials", "2")
    assert kept("test", "optimize", "-q", *words).code == 0
    path.write_text(path.read_text().replace("temperature: 0.9", "temperature: 0.8"))
    refused = kept("test", "optimize", "--resume", "last")
    assert refused.code == 1
    anew = re.findall(r"start a new run: `kept (.*)`", refused.stderr)[0].split()
    assert anew[:3] == ["test", "optimize", "agent.yaml"]
    assert set(words) <= set(anew)
    assert kept(*anew, "-q").code == 0


def test_a_dry_run_says_what_it_will_come_to(here: Path, server: ModelServer):
    write_agent(here, server.v1, cases=48, trials=4, more=RACE)
    told = kept("test", "optimize", "--dry-run").stdout
    likely = re.search(
        r"likely +about ([\d,]+) rollouts \(\$(\d+\.\d\d)\) if nothing is better, "
        r"about ([\d,]+) rollouts \(\$(\d+\.\d\d)\) if something is kept and proven",
        told,
    )
    most = re.search(r"at most +([\d,]+) rollouts, \$([\d,]+\.\d\d)", told)
    assert likely and most, told
    useless, kept_, worst = (int(n.replace(",", "")) for n in (likely[1], likely[3], most[1]))
    assert useless < kept_ < worst
    assert "critic and applier are not counted" in told
    limited = kept("test", "optimize", "--dry-run", "--set", "model.name=nobody-knows-it").stdout
    assert "the price of `openai/nobody-knows-it` is not known" in limited
    assert "money without limit" in limited


@pytest.mark.kill
def test_ctrl_c_reaches_the_command_of_the_guide_which_ends_in_order(tmp_path: Path):
    for name, text in re.findall(
        r"<!-- file: (\S+) -->\n```\w+\n(.*?)```", GUIDE.read_text(), re.S
    ):
        (tmp_path / name).write_text(text)
    env = {"PATH": os.defpath, "HOME": str(tmp_path)}
    command = [sys.executable, "model.py", sys.executable, "-m", "kept", "test", "optimize"]
    process = subprocess.Popen(
        command, cwd=tmp_path, env=env, stderr=subprocess.PIPE, text=True, start_new_session=True
    )
    deadline = time.monotonic() + 60
    while not any(len(rows(path.parent)) > 2 for path in tmp_path.glob("results/*/*/trials.jsonl")):
        assert process.poll() is None and time.monotonic() < deadline
        time.sleep(0.01)
    os.killpg(process.pid, signal.SIGINT)  # as a terminal does
    _, said = process.communicate(timeout=60)
    assert process.returncode == 2, said
    assert "Traceback" not in said
    assert "goes on where it stopped" in said
    assert "interrupted" in (results(tmp_path) / "report.md").read_text()
