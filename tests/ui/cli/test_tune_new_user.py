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
from tests.recipes.agent_config.tune.world import answer, write_agent
from tests.ui.cli.tasks import kept

pytestmark = pytest.mark.slow

SIGMA = "accept_sigma: 1.0\nrepeats: 2\nsplit: '1:1:0'"
RACE = "split: '6:12:6'\nrace: {preset: fast}"
GUIDE = Path(__file__).parents[3] / "docs" / "guide" / "tuning.md"


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


def test_check_reports_the_agent_and_its_optimizer_block_at_once(here: Path, server: ModelServer):
    path = write_agent(here, server.v1, more="gate: race\nrepeats: 2")
    path.write_text(path.read_text().replace("metric: equality", "metric: equalit"))
    called = kept("check", ".")
    assert called.code == 2
    first, second = called.stderr.splitlines()
    assert "`equality` or `numeric` was expected" in first
    assert "`repeats` is of `gate: sigma`, and the gate is `race`" in second
    write_agent(here, server.v1, more="repeats: 2")
    assert kept("check", ".").code == 0


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
    # a critic is paid, whose calls nothing bounds but `max_usd`
    most = re.search(r"at most +([\d,]+) rollouts, money without limit", told)
    assert likely and most, told
    assert "`budget.global.max_usd` limits it" in told
    bounded = kept("test", "optimize", "--dry-run", "--max-usd", "5").stdout
    assert re.search(r"at most +[\d,]+ rollouts, \$5\.00", bounded), bounded
    useless, kept_, worst = (int(n.replace(",", "")) for n in (likely[1], likely[3], most[1]))
    assert useless < kept_ < worst
    assert "critic and applier are not counted" in told
    limited = kept("test", "optimize", "--dry-run", "--set", "model.name=nobody-knows-it").stdout
    assert "the price of `openai/nobody-knows-it` is not known" in limited
    assert "money without limit" in limited


def test_citations_of_cases_that_do_not_exist_are_dropped_and_counted(here: Path):
    def cite(seen: Seen) -> Any:
        said = answer(seen)
        wrong = '["text-1", "no-such-case"]'
        return said.replace('["text-1"]', wrong) if isinstance(said, str) else said

    with ModelServer(cite) as server:
        write_agent(here, server.v1, cases=16, trials=2, more=SIGMA)
        called = kept("test", "optimize", "-q", "--max-cycles", "1")
    assert called.code == 0, called.stderr
    textual = [row for row in rows(results(here)) if row["phase"] == "textual"]
    critics = [row["proposal_source"]["critic"] for row in textual]
    dropped = sum(one["citations_dropped"] for one in critics)
    assert dropped >= len(critics) > 0
    assert all("no-such-case" not in one["citations"] for one in critics)
    told = f"{dropped} citations of cases that do not exist, dropped"
    assert re.search(rf"^critic +{told}$", called.stdout, re.MULTILINE)
    assert f"* critic: {told}" in (results(here) / "report.md").read_text()


def gate_row(told: str) -> str:
    (row,) = (line for line in told.splitlines() if line.startswith("gate "))
    return " ".join(row.split())


def test_the_gate_is_told_with_the_reason_for_it(here: Path, server: ModelServer):
    write_agent(here, server.v1, cases=24, trials=1)
    plain = kept("test", "optimize", "--dry-run").stdout
    assert gate_row(plain) == "gate race: the default with 12 holdout cases"
    flag = kept("test", "optimize", "--dry-run", "--repeats", "2").stdout
    assert gate_row(flag) == "gate sigma: `--repeats` is set"
    write_agent(here, server.v1, cases=10, trials=1)
    few = kept("test", "optimize", "--dry-run").stdout
    assert gate_row(few).startswith("gate sigma: a race needs 8 deciding cases or more, and there ")
    write_agent(here, server.v1, cases=24, trials=1, more="repeats: 1")
    ran = kept("test", "optimize", "--max-cycles", "1", "--progress", "json")
    first = json.loads(ran.stdout.splitlines()[0])
    assert (first["gate"], first["gate_reason"]) == ("sigma", "`repeats` is set")
    ran = kept("test", "optimize", "--max-cycles", "1")
    assert ran.code == 0, ran.stderr
    assert "started: minimize loss, gate sigma (`repeats` is set)\n" in ran.stderr


def test_a_flag_of_sigma_is_refused_where_the_file_names_the_race(here: Path, server: ModelServer):
    write_agent(here, server.v1, cases=24, more="gate: race")
    for flag in ("--repeats", "--accept-sigma"):
        called = kept("test", "optimize", "--dry-run", flag, "2")
        assert called.code == 1
        told = f"error: {flag} is of `gate: sigma`, and the agent.yaml names `gate`"
        assert told in called.stderr


def with_files(here: Path, server: ModelServer, more: str) -> Path:
    """An agent whose only cases are in the files that its optimizer names."""
    more += "\ntrain_cases_file: cases/train.yaml\nholdout_cases_file: cases/holdout.yaml"
    path = write_agent(here, server.v1, cases=16, trials=1, more=more)
    path.write_text(path.read_text().replace("test_cases_file: cases.yaml\n", ""))
    rows = (here / "cases.yaml").read_text().split("- name")[1:]
    (here / "cases.yaml").unlink()
    (here / "cases").mkdir()
    for name, part in (("train", rows[:6]), ("holdout", rows[6:])):
        (here / "cases" / f"{name}.yaml").write_text("".join(f"- name{row}" for row in part))
    return path


def test_an_agent_with_train_and_holdout_files_alone_has_cases_everywhere(
    here: Path, server: ModelServer
):
    with_files(here, server, "repeats: 1\naccept_sigma: 0.0")
    checked = kept("check", "agent.yaml")
    assert checked.code == 0, checked.stderr
    assert re.search(r"^cases +16, ", checked.stdout, re.MULTILINE)
    ran = kept("test", "run", "agent.yaml", "-q", "--format", "json")
    assert ran.code in (0, 1), ran.stderr
    assert len(json.loads(ran.stdout)["results"]) == 16
    assert kept("test", "optimize", "-q", "--max-cycles", "1").code == 0
    best = results(here) / "best.yaml"
    checked = kept("check", str(best))
    assert checked.code == 0, checked.stderr
    again = kept("test", "run", str(best), "-q", "--format", "json")
    assert again.code in (0, 1), again.stderr
    assert len(json.loads(again.stdout)["results"]) == 16


def test_a_broken_row_of_a_train_file_keeps_nobody_from_the_others(here: Path, server: ModelServer):
    with_files(here, server, "")
    holdout = here / "cases" / "holdout.yaml"
    holdout.write_text(holdout.read_text().replace("input: text number 7", "inputt: text"))
    ran = kept("test", "run", "agent.yaml", "-q", "--format", "json")
    assert ran.code == 3, ran.stderr
    names = [row["test_name"] for row in json.loads(ran.stdout)["results"]]
    assert names == [f"text-{n}" for n in range(16)]


UNPRICED = "max_usd: 5\nrepeats: 1"


def test_only_test_optimize_goes_on_where_a_price_is_not_known(here: Path, server: ModelServer):
    path = write_agent(here, server.v1, cases=16, trials=1, more=UNPRICED)
    path.write_text(path.read_text().replace("gpt-5-mini", "nobody-knows-it"))
    refused = kept("optimize", "agent.yaml", "-q")
    assert refused.code == 2
    assert "`max_usd` cannot be kept: `openai/nobody-knows-it` has no `price`" in refused.stderr
    told = "`max_usd` cannot be enforced: the price of `openai/nobody-knows-it` is not known; at "
    dry = kept("test", "optimize", "--dry-run")
    assert dry.code == 0, dry.stderr
    assert "max_usd 5 (not enforced)" in dry.stdout
    assert "`budget.global.max_usd` limits it" not in dry.stdout
    (bound,) = re.findall(rf"{re.escape(told)}most ([\d,]+) rollouts", dry.stderr)
    assert re.search(rf"^at most +{bound} rollouts", dry.stdout, re.MULTILINE)
    ran = kept("test", "optimize", "-q", "--max-cycles", "1")
    assert ran.code == 0, ran.stderr
    assert told in ran.stderr
    assert kept("test", "optimize", "-q", "--resume", "last").code == 0
    assert kept("resume", "-q").code == 0


def test_what_is_wrong_with_agent_block_and_critic_is_told_at_once(here: Path, server: ModelServer):
    path = write_agent(here, server.v1, cases=3, trials=1, more="max_usd: 5")
    path.write_text(path.read_text().replace("gpt-5-mini", "nobody-knows-it"))
    agents = here / ".holodeck" / "optimizer" / "agents"
    agents.mkdir(parents=True)
    (agents / "critic.yaml").write_text("name: critic\ninstructions: {inline: x}\ntools: []\n")
    (agents / "applier.yaml").write_text("name: applier\ninstructions: {inline: x}\nmodle: 1\n")
    told = kept("optimize", "agent.yaml", "-q").stderr
    assert "of 3 cases, and 5 are needed" in told and "add " in told
    assert "`max_usd` cannot be kept: `openai/nobody-knows-it` has no `price`" in told
    assert "critic.yaml:3 tools: the critic has no use for this" in told
    assert "applier.yaml:3 modle: unknown key" in told
    path.write_text(path.read_text().replace("name: moods", "nam: moods") + "what: 1\n")
    path.write_text(path.read_text().replace("max_usd: 5", "max_usd: five"))
    told = kept("test", "optimize", "--dry-run").stderr
    assert " name: missing" in told
    assert " what: unknown key" in told
    assert "evaluations.optimizer.max_usd: the text `five`, where a number was expected" in told


def test_a_suggestion_for_too_few_cases_counts_them_and_says_what_is_missing(
    here: Path, server: ModelServer
):
    for cases in range(1, 19):
        path = write_agent(here, server.v1, cases=cases)
        text = path.read_text()
        start, end = text.index("  optimizer:"), text.index("test_cases_file:")
        bare = text[:start] + text[end:]
        path.write_text(bare)
        called = kept("test", "optimize", "--suggest-axes")
        block = called.stdout.partition("evaluations:\n")[2]
        path.write_text(bare.replace("evaluations:\n", f"evaluations:\n{block}"))
        pasted = kept("test", "optimize", "--dry-run")
        if cases < 6:
            few = f"the agent has {cases} case" + ("s" if cases > 1 else "")
            assert f"{few}, and tuning needs 6: 1 to learn from and 5 " in called.stderr
            assert f"add {6 - cases} (16 are enough" in called.stderr
            assert f"# {few}" in called.stdout
            assert pasted.code == 1
            write_agent(here, server.v1, cases=6)  # as many as it says
            text = path.read_text()
            start, end = text.index("  optimizer:"), text.index("test_cases_file:")
            bare = text[:start] + text[end:]
            path.write_text(bare.replace("evaluations:\n", f"evaluations:\n{block}"))
            assert kept("test", "optimize", "--dry-run").code == 0
        else:
            assert "tuning needs" not in called.stderr + called.stdout
            assert pasted.code == 0, (cases, pasted.stderr)


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
