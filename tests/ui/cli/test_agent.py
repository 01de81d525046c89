"""`kept agent run` as a person types it, with a manager, workers and a critic on a test server."""

import json
import signal
import time
from pathlib import Path
from typing import cast

import pytest

from kept.orchestrator.run_folder.read import read_loss
from kept.sandbox.capabilities import abilities
from kept.store.home import Home
from kept.store.overview import Glance
from kept.store.reader import Run
from kept.store.run_index import RunIndex
from kept.testing.server import Fault, ModelServer, Seen
from kept.ui.web.agent_pages import Told, agent_body
from kept.ui.web.kinds import kind_of
from kept.ui.web.run_page import Asked, top
from kept.ui.web.runs_page import Line, Query, runs_view
from kept.ui.web.templates import figure
from tests.orchestrator.play import (
    REPORT,
    Play,
    Say,
    complete,
    delegate,
    done,
    plan,
    say,
    use,
    write,
)
from tests.recipes.killing import kept

pytestmark = [
    pytest.mark.slow,
    pytest.mark.sandbox,
    pytest.mark.skipif(not abilities().walls, reason="no walls here"),
]

TASK = "Write a report on data.csv to report.md"
CODE = (
    "import json, os\n"
    "may, june = map(int, open('input/data.csv').read().split(','))\n"
    "os.makedirs('output', exist_ok=True)\n"
    "json.dump({'growth': june / may}, open('output/data.json', 'w'))\n"
)
WORKERS = {"w1": [write(), done("w1")], "w2": [use("code_execute", code=CODE), done("w2")]}


def _play(**more: object) -> Play:
    decided = [plan("report.md", "data.json"), delegate("w1", "w2"), complete()]
    return Play(decided, WORKERS)


@pytest.fixture
def project(tmp_path: Path) -> Path:
    (tmp_path / "data.csv").write_text("12,15")
    return tmp_path


def _run(folder: Path, server: ModelServer, *words: str) -> tuple[int, str, str]:
    process = kept(folder, *words, OPENAI_COMPATIBLE_BASE_URL=server.v1, COLUMNS="120")
    out, err = process.communicate(timeout=60)
    return process.returncode, out, err


def _agent(folder: Path, server: ModelServer, *words: str) -> tuple[int, str, str]:
    more = ("--input", "data.csv", "--model", "openai_compatible/m")
    return _run(folder, server, "agent", "run", TASK, *more, *words)


def test_a_task_is_done_and_told_as_a_story(project: Path) -> None:
    with ModelServer(_play().of_server) as server:
        code, out, err = _agent(project, server, "--output", "made/here")
        assert (code, len(server.log)) == (0, 9), err
        shown = _run(project, server, "show")[1]
        listed = _run(project, server, "runs")[1]
    assert "complete (completed), 2 deliverables" in out
    assert (project / "made/here/report.md").read_text() == REPORT
    assert json.loads((project / "made/here/data.json").read_text()) == {"growth": 1.25}
    for story in (err, shown):
        assert "turn 2: the manager sends 2 workers" in story
        assert "w2 is done (1 tool call" in story
        assert "critique 0.90: fine" in story
        assert "passed: l0, critique" in story
    assert "loss: 0.0" in shown and "= eval 0." in shown
    assert "agent  complete, loss 0.0" in listed
    assert (project / "data.csv").read_text() == "12,15"


def test_a_run_that_failed_or_was_cut_off_is_listed_as_its_page_shows_it(project: Path) -> None:
    gave_up = Play([plan("report.md"), say({"decision": "fail", "reason": "cannot"})])
    with ModelServer(gave_up.of_server) as server:
        assert _agent(project, server)[0] == 1
        failed = _run(project, server, "runs", "--json")[1]
        listed = _run(project, server, "runs")[1]
    assert [row["status"] for row in json.loads(failed)] == ["failed"]
    assert " failed  agent  failed, loss" in listed and "finished" not in listed
    # the journal says so, and not a file that is made from it
    (ended,) = Home(project / ".kept").folders()
    (ended / "run_completion.json").rename(project / "aside.json")
    (project / ".kept/index.db").unlink()
    assert Glance(ended).refresh().status == "failed"
    with ModelServer(gave_up.of_server) as server:
        again = _run(project, server, "runs", "--json")[1]
    assert [row["status"] for row in json.loads(again)] == ["failed"]
    (project / "aside.json").rename(ended / "run_completion.json")
    cut = Play([plan("report.md"), Fault("status", 400)])
    with ModelServer(cut.of_server) as server:
        assert _agent(project, server)[0] == 3
    home = Home(project / ".kept")
    lines = runs_view(RunIndex(home).rows(), Query(), home.runs)["lines"]
    shown = {line.row.id: (line.state, line.result) for line in cast("list[Line]", lines)}
    for folder, state in zip(home.folders(), ("failed", "crashed"), strict=True):
        with Run(folder) as run:
            glance = Glance(folder).refresh()
            head = top(glance, kind_of(run.recipe or ""))
            told = cast("Told", agent_body(run, glance, Asked())["told"])
        assert told.loss is not None
        ended = told.record.status
        assert shown[folder.name] == (state, f"{ended}, loss {figure(told.loss.total)}")
        assert head["state"] == state
    assert run_ids(runs_view(RunIndex(home).rows(), Query(state="failed"), home.runs)) == [
        home.folders()[0].name
    ]


def run_ids(view: dict[str, object]) -> list[str]:
    return [line.row.id for line in cast("list[Line]", view["lines"])]


def test_what_a_worker_said_and_used_is_shown_word_for_word(project: Path) -> None:
    with ModelServer(_play().of_server) as server:
        assert _agent(project, server, "-q")[0] == 0
        shown = {
            who: _run(project, server, "show", "last", who)[1] for who in ("w2", "manager", "task")
        }
        rows = json.loads(_run(project, server, "show", "last", "w1", "--json")[1])
        code, _, err = _run(project, server, "show", "last", "nobody")
    assert "turn 2, w2\n  wants     code_execute {" in shown["w2"] and "may, june" in shown["w2"]
    assert "changed   output/data.json" in shown["w2"]
    assert "turn 2, critic of w2" in shown["w2"] and "w1" not in shown["w2"]
    assert shown["manager"].count('"decision"') == 3 and "turn 3, manager" in shown["manager"]
    assert all(text.splitlines()[1] in shown["task"] for text in shown.values())
    assert [(row["turn"], row["who"], row["role"]) for row in rows] == [
        (2, "w1", "assistant"),
        (2, "w1", "tool"),
        (2, "w1", "assistant"),
        (2, "critic of w1", "assistant"),
    ]
    assert code == 2 and "there is manager, w1, w2" in err


def test_the_folder_of_the_run_reads_as_that_of_the_source(project: Path) -> None:
    with ModelServer(_play().of_server) as server:
        code, out, err = _agent(project, server, "--json", "-q")
    assert code == 0, err
    (folder,) = (project / ".kept" / "runs").iterdir()
    told = json.loads(out)
    completion = json.loads((folder / "run_completion.json").read_text())
    assert completion["status"] == "complete" and completion["run_id"] == folder.name
    roles = ("manager", "worker", "critic")
    assert completion["models"] == dict.fromkeys(roles, "openai_compatible/m")
    assert (folder / "FINAL" / "report.md").read_text() == REPORT
    assert (folder / "output" / folder.name / "data.json").is_file()
    assert len(list((folder / "iterations").iterdir())) == 3
    assert (folder / "logs" / folder.name / "events.jsonl").is_file()
    assert read_loss(folder).parts()["total"] == pytest.approx(told["loss"]["total"])


def test_the_answer_is_one_document_for_programs(project: Path) -> None:
    with ModelServer(_play().of_server) as server:
        code, out, err = _agent(project, server, "--json", "-q")
    told = json.loads(out)
    assert code == 0 and err == ""
    assert told["ok"] and told["status"] == "complete"
    assert [one["path"] for one in told["deliverables"]] == ["data.json", "report.md"]
    assert told["loss"]["total"] == pytest.approx(
        sum(v for k, v in told["loss"].items() if k != "total")
    )


def test_a_run_without_an_end_is_partial_and_exits_with_1(project: Path) -> None:
    play = _play()
    play.loops = 2
    with ModelServer(play.of_server) as server:
        code, out, _ = _agent(project, server, "--max-loops", "2", "-q")
    assert code == 1
    assert "partial (max_loops), 2 deliverables" in out


def test_a_run_that_a_limit_ended_goes_on_with_more(project: Path) -> None:
    workers = {
        "w1": [write(content="# Draft\n\nSales were 12.\n"), done("w1")],
        "w2": [write(), done("w2")],
    }
    play = Play([plan("report.md"), delegate("w1"), delegate("w2"), complete()], workers, loops=2)
    with ModelServer(play.of_server) as server:
        code, out, err = _agent(project, server, "--max-loops", "2", "--output", "made")
        assert code == 1, err
        (folder,) = (project / ".kept" / "runs").iterdir()
        assert f"go on      kept resume {folder.name} --set budget.max_loops=4" in out
        asked = len(server.log)
        assert _run(project, server, "resume", "last", "-q")[0] == 1
        code, _, err = _run(project, server, "resume", "last", "--set", "budget.max_loops=1")
        assert code == 2 and "budget changed since it started" in err
        code, _, err = _run(project, server, "resume", "--workers", "2", "--fail-if-no-gain")
        assert code == 2 and "not resumed with --workers and --fail-if-no-gain" in err
        assert len(server.log) == asked, "nothing was asked for that"
        play.loops = 4
        code, out, err = _run(project, server, "resume", "last", "--set", "budget.max_loops=4")
        assert code == 0, err
        assert "goes on with more: max_loops 2 -> 4\nturn 3: the manager sends 1 worker" in err
        assert len(server.log) == asked + 5
        assert "goes on with more" in _run(project, server, "show")[1]
    assert "complete (completed), 1 deliverable" in out and "go on" not in out
    for place in (project / "made", folder / "FINAL"):
        assert (place / "report.md").read_text() == REPORT, "in the place of the draft"
    manifest = json.loads((folder / "run_manifest.json").read_text())
    assert manifest["budget"]["max_loops"] == 4


def test_an_output_folder_that_holds_something_is_not_touched(project: Path) -> None:
    (project / "out").mkdir()
    (project / "out" / "mine").write_text("mine")
    with ModelServer(_play().of_server) as server:
        code, _, err = _agent(project, server, "--output", "out")
        assert code == 2 and not server.log
    assert "`out` is there already, and is not empty" in err


def test_an_output_folder_that_cannot_be_made_is_told_before_anybody_is_asked(
    project: Path,
) -> None:
    (project / "file").write_text("mine")
    with ModelServer(_play().of_server) as server:
        code, _, err = _agent(project, server, "--output", "file/out")
        assert code == 2 and not server.log
        assert "`file/out` cannot be made" in err and "internal error" not in err


def test_what_was_made_is_not_lost_where_its_place_is_gone_by_then(project: Path) -> None:
    play = _play()

    def answer(seen: Seen) -> Say:
        (project / "out").touch()
        return play.of_server(seen)

    with ModelServer(answer) as server:
        code, out, err = _agent(project, server, "--output", "out")
    assert code == 0 and "cannot write to out" in err and "internal error" not in err
    (made,) = (project / ".kept" / "runs").glob("*/FINAL/report.md")
    assert made.read_text() == REPORT and str(made.parent.name) in out


def test_an_input_folder_is_copied_once_and_never_into_itself(project: Path) -> None:
    """The original copies until no path is short enough, where its output lies in its input."""
    (project / "logo.png").write_bytes(b"\x89PNG\xff\x00")
    looks = {"w1": [use("file_list"), write(), done("w1")]}
    play = Play([plan("report.md"), delegate("w1"), complete()], looks)
    words = ("agent", "run", TASK, "-i", ".", "-o", "out", "--model", "openai_compatible/m", "-q")
    with ModelServer(play.of_server) as server:
        first = _run(project, server, *words)
        again = _run(project, server, *words[:-3], "--model", "openai_compatible/m", "-o", "out2")
    assert first[0] == 0, first
    assert again[0] == 0, again
    listed = [text for who, text in play.heard if who == "w1"][-1]
    name = project.name
    assert f"input/{name}/logo.png (6 bytes)" in listed
    assert ".kept" not in listed


def test_what_is_wrong_with_a_file_is_told_at_once_and_nothing_is_asked(project: Path) -> None:
    config = "models: {manager: openai_compatible/m, boss: x/y}\nbudget: {max_loops: none}\n"
    (project / "run.yaml").write_text(config)
    with ModelServer(_play().of_server) as server:
        code, _, err = _run(project, server, "agent", "run", TASK, "--config", "run.yaml")
        assert code == 2 and not server.log
    assert "run.yaml:1 models.boss: unknown key" in err
    assert "run.yaml:2 budget.max_loops" in err


def test_a_file_may_name_models_budget_prompts_and_phases(project: Path) -> None:
    (project / "prompts").mkdir()
    (project / "prompts" / "worker_pitfalls.md").write_text("Never write the word sesame.")
    heard: list[str] = []
    play = _play()

    def listen(seen: Seen) -> Say:
        heard.append(json.dumps(seen.body))
        return play.of_server(seen)

    play.loops = 7
    with ModelServer(listen) as server:
        config = (
            "models:\n"
            f"  manager: {{provider: openai_compatible, model: boss, base_url: {server.v1}}}\n"
            f"  worker: {{provider: openai_compatible, model: hand, base_url: {server.v1}}}\n"
            "budget: {max_loops: 7, max_parallel_workers: 1}\nprompts: prompts\n"
            "phases:\n"
            "  - name: size\n"
            "    command: mkdir output; wc -c < input/data.csv > output/size.txt\n"
            "    invariants: [{kind: regex_present, path: output/size.txt, pattern: '^5$'}]\n"
        )
        (project / "run.yaml").write_text(config)
        words = ("agent", "run", TASK, "-i", "data.csv", "--config", "run.yaml", "--json", "-q")
        code, out, err = _run(project, server, *words)
    assert code == 0, err
    told = json.loads(out)
    assert told["models"]["worker"] == "openai_compatible/hand"
    assert told["phases"][0]["written"] == ["output/size.txt"]
    assert [one["path"] for one in told["deliverables"]][-1] == "size.txt"
    assert any('"hand"' in body and "sesame" in body for body in heard)
    assert not any('"boss"' in body and "sesame" in body for body in heard)


def test_without_a_model_it_says_which_flag_is_missing(project: Path) -> None:
    with ModelServer(_play().of_server) as server:
        code, _, err = _run(project, server, "agent", "run", TASK)
    assert code == 2 and "give --model provider/model, or set KEPT_MODEL" in err
    code, _, err = _run(project, server, "agent", "run", TASK, "--worker-model", "nope")
    assert code == 2 and err.startswith("error: --worker-model nope: `nope` is not a model"), err


LOGIN = "http://kim:hunter2hunter2@"


@pytest.mark.parametrize("rest", ["127.0.0.1:1/v1", "127.0.0.1:port/v1"])
def test_a_login_in_an_address_that_is_dead_is_not_shown(project: Path, rest: str) -> None:
    address = {"OPENAI_COMPATIBLE_BASE_URL": f"{LOGIN}{rest}"}
    model = "models.manager={provider: openai_compatible, model: m, tries: 1}"
    said = "".join(
        kept(project, "agent", "run", TASK, "--set", model, **address).communicate(timeout=60)
    )
    assert "nothing answers" in said
    assert "hunter2" not in said


def test_a_login_in_an_address_is_shown_nowhere(project: Path) -> None:
    with ModelServer(faults=lambda _: Fault("status", 500)) as server:
        rest = server.v1.removeprefix("http://")
        _no_login_is_shown(project, {"OPENAI_COMPATIBLE_BASE_URL": f"{LOGIN}{rest}"})


def _no_login_is_shown(project: Path, address: dict[str, str]) -> None:
    model = "models.manager={provider: openai_compatible, model: m, tries: 1}"
    said = ""
    for words in (
        ("agent", "run", TASK, "--set", model),
        ("show",),
        ("runs",),
        ("doctor",),
        ("models",),
    ):
        said += "".join(kept(project, *words, **address).communicate(timeout=60))
    assert "openai_compatible/m" in said
    files = [path for path in (project / ".kept").rglob("*") if path.is_file()]
    assert any(path.name == "journal.jsonl" for path in files)
    for told in (said.encode(), *(path.read_bytes() for path in files)):
        assert b"hunter2" not in told


def test_a_login_in_a_file_is_refused_without_being_shown(project: Path) -> None:
    block = f"{{provider: openai_compatible, model: m, base_url: '{LOGIN}host/v1'}}"
    (project / "run.yaml").write_text(f"models:\n  worker: {block}\n")
    with ModelServer(_play().of_server) as server:
        by_file = _agent(project, server, "--config", "run.yaml")
        by_hand = _agent(project, server, "--set", f"models.worker={block}")
        assert not server.log
    for code, out, err in (by_file, by_hand):
        assert code == 2 and "a login is kept in the environment" in err
        assert "hunter2" not in out + err
    assert "run.yaml:2 models.worker.base_url" in by_file[2]


def test_a_run_that_is_interrupted_is_aborted_and_can_be_gone_on_with(project: Path) -> None:
    with ModelServer(_play().of_server, latency=0.2) as server:
        more = ("--input", "data.csv", "--model", "openai_compatible/m", "--output", "out")
        env = {"OPENAI_COMPATIBLE_BASE_URL": server.v1}
        process = kept(project, "agent", "run", TASK, *more, **env)
        while len(server.answered) < 3:
            time.sleep(0.01)
        process.send_signal(signal.SIGINT)
        _, err = process.communicate(timeout=120)
        assert process.returncode == 130, err
        assert "goes on where it stopped" in err
        code, out, _ = _run(project, server, "show", "--json")
        assert code == 0 and json.loads(out)["status"] == "aborted"
        (folder,) = (project / ".kept" / "runs").iterdir()
        completion = folder / "run_completion.json"
        assert json.loads(completion.read_text())["status"] == "aborted"
        (project / "out").mkdir()
        (project / "out" / "report.md").write_text("mine")
        code, out, err = _run(project, server, "resume", "last")
        assert code == 0, err
        assert "`out/report.md` is there already, and is left alone" in err
        assert len(server.answered) == 9, "nothing was asked twice"
    assert "complete (completed), 2 deliverables" in out
    assert json.loads(completion.read_text())["status"] == "complete"
    assert (project / "out" / "report.md").read_text() == "mine"
    assert (project / "out" / "data.json").is_file()


def test_an_outage_stops_the_run_and_a_resume_ends_it(project: Path) -> None:
    down = [True]

    def faults(seen: Seen) -> Fault | None:
        return Fault("status", 400, "the key is wrong") if down[0] and len(server.log) > 4 else None

    with ModelServer(_play().of_server, faults=faults) as server:
        code, _, err = _agent(project, server)
        assert code == 3, err
        assert "goes on where it stopped" in err
        down[0] = False
        answered = len(server.answered)
        code, out, err = _run(project, server, "resume")
        assert code == 0, err
        assert len(server.answered) == 9 and answered < 9
    assert "complete" in out


def test_a_manager_that_writes_garbage_is_told_so_in_the_end(project: Path) -> None:
    with ModelServer(Play(["hello"]).of_server) as server:
        code, out, err = _agent(project, server)
    assert code == 1 and "failed (manager_garbage), no deliverable" in out
    assert err.count("the manager wrote no decision") == 3


def test_code_of_a_worker_that_loops_dies_or_floods_is_recorded_and_the_run_goes_on(
    project: Path,
) -> None:
    workers = {
        "loops": [use("code_execute", code="while True: pass"), done("loops", 0.1)],
        "dies": [use("code_execute", code="import os; os.kill(os.getpid(), 9)"), done("dies", 0.1)],
        "floods": [use("code_execute", code="print('x' * 5_000_000)"), done("floods", 0.1)],
        "outside": [use("code_execute", code="open('/etc/x', 'w')"), done("outside", 0.1)],
        "w1": [write(), done("w1")],
    }
    sent = [delegate("loops", "dies", "floods", "outside"), delegate("w1")]
    play = Play([plan("report.md"), *sent, complete()], workers)
    with ModelServer(play.of_server) as server:
        code, out, err = _agent(project, server, "--set", "code_seconds=1", "--json")
    told = json.loads(out)
    assert code == 0, err
    assert [one["tool_calls"] for one in told["iterations"][1]["delegations"]] == [1] * 4
    assert not list(project.glob("**/x"))
    assert max(len(text) for _, text in play.heard) < 60_000


def test_two_refusals_alike_are_repaired_over_http(project: Path) -> None:
    bad = {
        "w1": [write(content="# Report\n\nTODO\n"), done("w1")],
        "repair-1": [write(), done("repair-1")],
    }
    play = Play([plan("report.md"), delegate("w1"), complete()], bad)
    with ModelServer(play.of_server) as server:
        code, out, err = _agent(project, server)
    assert code == 0, out
    assert "refused by l0" in err or "refused by placeholder" in err
    assert "repair-1 is to repair s1" in err
