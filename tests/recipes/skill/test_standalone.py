"""The files of the method's standalone scripts: their names, their keys, and what is in them.

Names and keys are taken from `eval_prompt_official`, `eval_prompt_custom` and
`eval_livemathematicianbench_baseline` of the source.
"""

import io
import json
import re
import signal
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import openpyxl
import pytest

from kept.testing.server import Fault, ModelServer, Seen
from tests.evaluators.environments.livemath_data import right_text, write_months
from tests.evaluators.environments.spreadsheet_data import program, row_id, write_tasks
from tests.evaluators.environments.test_livemathematicianbench import letter_of
from tests.recipes import killing
from tests.recipes.skill.env_world import put_agent
from tests.recipes.skill.test_env_worlds import AGENTS
from tests.ui.cli.tasks import Called, kept

pytestmark = pytest.mark.slow

ROW = ["id", "ok", "hard", "soft", "n_cases", "n_pass", "fail_reason", "error"]
DOCUMENT = [
    *("mode", "model", "reasoning_effort", "seed", "max_completion_tokens"),
    *("summary", "results"),
]
RESULT = [
    *("id", "question", "correct_label", "correct_text", "predicted_label", "predicted_text"),
    *("is_correct", "elapsed_seconds", "response"),
]
RAISES = "```python\nraise ValueError('no such sheet')\n```"


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("KEPT_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("OPENAI_COMPATIBLE_API_KEY", "sk-very-secret-key")
    return tmp_path


def evaluated(
    env: str, reply: Callable[[Seen], str | Fault], *more: str, settings: tuple[str, ...] = ()
) -> tuple[Called, list[Seen]]:
    """Evaluate all cases without any skill; what was asked."""
    with ModelServer(reply) as server:
        words = command(env, server)
        called = kept(*words[:2], *more, *words[2:], *settings)
        return called, list(server.log)


def command(env: str, server: ModelServer) -> list[str]:
    """All cases without any skill."""
    target = (
        f"{{provider: openai_compatible, model: m, base_url: '{server.v1}', cache: false, "
        "tries: 1, max_tokens: 900}"
    )
    start = ["eval", f"configs/{env}/default.yaml", "--skill", "none", "--split", "all", "-q"]
    split = ["--split_mode", "ratio", "--split_ratio", "1:1:1"]
    return [*start, *split, "--cfg-options", f"model.target={target}"]


def worked(seen: Seen) -> str:
    """Right for task 0; for one workbook of two in task 1; a program that fails in task 2."""
    n = int(re.findall(r"Task (\d+)", seen.text)[0])
    if n == 2:
        return RAISES
    # amounts of a second workbook are above 200
    return (
        program() if n == 0 else program().replace("* 2", "* (3 if sheet['B2'].value > 200 else 2)")
    )


@pytest.mark.sandbox
@pytest.mark.parametrize("prompt", ["official", "custom"])
def test_eval_prompt_writes_the_folder_of_its_script(prompt: str, here: Path):
    write_tasks(here / "data", 3)
    told = ("--mode", "single", "--prompt", prompt, "--out_root", "out", "--data_path", "data")
    settings = ("env.data_root=data", "env.recalculate=false")
    called, asked = evaluated("spreadsheetbench", worked, *told, settings=settings)
    assert called.code == 0, called.stderr
    assert len(asked) == 3
    lines = [json.loads(line) for line in (here / "out" / "results.jsonl").read_text().splitlines()]
    assert [list(line) for line in lines] == [ROW] * 3
    rows = {line["id"]: line for line in lines}
    assert rows[row_id(0)] == dict(zip(ROW, (row_id(0), True, 1, 1.0, 2, 2, "", ""), strict=True))
    half, failed = rows[row_id(1)], rows[row_id(2)]
    assert [half[key] for key in ROW[1:6]] == [False, 0, 0.5, 2, 1]
    assert "workbook 2: Sales!C2: your output = " in half["fail_reason"]
    assert [failed[key] for key in ROW[1:6]] == [False, 0, 0.0, 2, 0]
    assert "no such sheet" in failed["fail_reason"]
    summary = json.loads((here / "out" / "summary.json").read_text())
    sums = {"n": 3, "hard": pytest.approx(1 / 3), "soft": pytest.approx(0.5)}
    assert summary == {"prompt": prompt, "model": "openai_compatible/m", **sums}
    assert list(summary) == ["prompt", "model", "n", "hard", "soft"]
    place = here / "out" / "predictions"
    found = {str(one.relative_to(place)) for one in place.rglob("*") if one.is_file()}
    both = ("code.py", "raw.txt")
    books = ("1_pred.xlsx", "2_pred.xlsx")
    solved = {f"{row_id(n)}/{name}" for n in (0, 1) for name in (*both, *books)}
    assert found == solved | {f"{row_id(2)}/{name}" for name in both}
    assert (place / row_id(2) / "raw.txt").read_text() == RAISES
    assert (place / row_id(2) / "code.py").read_text() == "raise ValueError('no such sheet')\n"
    book = openpyxl.load_workbook(io.BytesIO((place / row_id(0) / "2_pred.xlsx").read_bytes()))
    assert book["Sales"]["C2"].value == 2 * 202


@pytest.mark.sandbox
def test_the_program_that_an_agent_cli_left_is_its_prediction(
    here: Path, monkeypatch: pytest.MonkeyPatch
):
    write_tasks(here / "data", 3)
    agent = put_agent(here, AGENTS["spreadsheetbench"], monkeypatch)
    told = ("--mode", "single", "--prompt", "official", "--out_root", "out", "--data_path", "data")
    settings = ("env.data_root=data", "env.recalculate=false", *agent)
    called, _ = evaluated("spreadsheetbench", lambda _: "", *told, settings=settings)
    assert called.code == 0, called.stderr
    place = here / "out" / "predictions" / row_id(1)
    assert (place / "raw.txt").read_text() == "The program is in solution.py."
    assert "sheet.cell(row, 2).value * 3" in (place / "code.py").read_text()
    assert (place / "2_pred.xlsx").is_file()


@pytest.mark.sandbox
def test_the_last_program_of_several_tries_is_the_prediction(here: Path):
    write_tasks(here / "data", 3)

    def reply(seen: Seen) -> str:
        return program() if "The program did not work" in seen.text else RAISES

    told = ("--mode", "multi", "--prompt", "official", "--out_root", "out", "--data_path", "data")
    settings = ("env.data_root=data", "env.recalculate=false")
    called, asked = evaluated("spreadsheetbench", reply, *told, settings=settings)
    assert called.code == 0, called.stderr
    assert len(asked) == 6
    place = here / "out" / "predictions" / row_id(1)
    assert "book.save(OUTPUT_PATH)" in (place / "code.py").read_text()
    assert (place / "1_pred.xlsx").is_file() and (place / "2_pred.xlsx").is_file()
    assert json.loads((here / "out" / "summary.json").read_text())["hard"] == 1.0


def mathematician(prompt: str, outage: bool = False) -> Callable[[Seen], str | Fault]:
    """Right, wrong, without any choice, and one that is not answered at all, by the question."""

    def reply(seen: Seen) -> str | Fault:
        letter = letter_of(seen.text, right_text(seen.text))
        if "prime order" in seen.text:
            return "I do not know?"
        if "How many edges" in seen.text and outage:
            return Fault("status", 503)
        if "harmonic" in seen.text:
            letter = "A" if letter != "A" else "B"
        return f"\\boxed{{{letter}}}" if prompt == "official" else f"<answer>{letter}</answer>"

    return reply


def check_document(document: dict[str, Any], prompt: str, total: int) -> None:
    assert list(document) == DOCUMENT
    asked = [document[key] for key in DOCUMENT[:5]]
    assert asked == [prompt, "openai_compatible/m", "low", 42, 900]
    correct = total - 2
    accuracy = pytest.approx(correct / total)
    assert document["summary"] == {"correct": correct, "total": total, "accuracy": accuracy}
    rows = document["results"]
    assert [row["id"] for row in rows] == sorted(row["id"] for row in rows)
    for row in rows:
        unsure, wrong = "prime order" in row["question"], "harmonic" in row["question"]
        assert list(row) == [*RESULT, *(["error"] if unsure else [])]
        assert row["correct_text"] == right_text(row["question"])
        assert row["is_correct"] is not (unsure or wrong)
        assert row["is_correct"] == (row["predicted_text"] == row["correct_text"])
        assert row["is_correct"] == (row["predicted_label"] == row["correct_label"])
        assert (row["predicted_label"] is None) == (row["predicted_text"] == "") == unsure
        assert unsure or str(row["predicted_label"]) in row["response"]
        assert row["elapsed_seconds"] >= 0


BASELINE = "livemathematicianbench"


@pytest.mark.parametrize("prompt", ["official", "current"])
def test_the_baseline_writes_the_document_of_its_script(prompt: str, here: Path):
    """A case that nobody answered is no row: it would count as wrong."""
    write_months(here)
    told = ("--prompt", prompt, "--output_json", "results/baseline.json")
    settings = ("model.reasoning_effort=low",)
    called, _ = evaluated(BASELINE, mathematician(prompt), *told, settings=settings)
    assert called.code == 0, called.stderr
    assert "results/baseline.json holds the results" in called.stderr
    path = here / "results" / "baseline.json"
    check_document(json.loads(path.read_text()), prompt, 12)
    called, _ = evaluated(BASELINE, mathematician(prompt, outage=True), *told, settings=settings)
    assert called.code == 3, called.stderr
    check_document(json.loads(path.read_text()), prompt, 11)


def test_a_baseline_that_was_interrupted_has_a_document_and_resumes(here: Path):
    write_months(here)
    running: list[subprocess.Popen[str]] = []
    say = mathematician("official")

    def reply(seen: Seen) -> str | Fault:
        if seen.number == 5:
            running[0].send_signal(signal.SIGINT)
        # it hears of the signal before this reply
        time.sleep(0.5 if seen.number == 5 else 0)
        return say(seen)

    with ModelServer(reply) as server:
        words = [*command(BASELINE, server), "env.workers=1", "model.reasoning_effort=low"]
        words[2:2] = ["--prompt", "official", "--output_json", "out.json"]
        running.append(killing.kept(here, *words))
        _, told = running[0].communicate(timeout=120)
        assert running[0].returncode == 130, told
        first = json.loads((here / "out.json").read_text())
        assert list(first) == DOCUMENT and 0 < len(first["results"]) < 12
        before = len(server.log)
        called = kept(*words[:2], "--resume", *words[2:])
        assert called.code == 0, called.stderr
        whole = json.loads((here / "out.json").read_text())
        check_document(whole, "official", 12)
        again = [seen.text for seen in server.log[before:]]
        assert 0 < len(again) <= 12 - len(first["results"])
        known = [row["question"] for row in first["results"]]
        assert not any(question in text for text in again for question in known)
        (here / "out.json").unlink()
        assert kept("resume", "last", "-q").code == 0
    assert json.loads((here / "out.json").read_text()) == whole


def test_a_document_is_refused_where_no_script_writes_one(here: Path):
    write_tasks(here / "data", 3)
    settings = ("env.data_root=data", "env.recalculate=false")
    told = ("--data_path", "data", "--output_json", "out.json")
    called, asked = evaluated("spreadsheetbench", worked, *told, settings=settings)
    assert (called.code, asked) == (2, [])
    assert "no standalone script of `spreadsheetbench` writes such a file" in called.stderr
    assert "--out_root FOLDER" in called.stderr
    write_months(here)
    (here / "link.json").symlink_to(here / "elsewhere.json")
    called, asked = evaluated(BASELINE, mathematician("current"), "--output_json", "link.json")
    assert (called.code, asked) == (2, []) and "link.json: it is a link" in called.stderr
    (here / "task.yaml").write_text("artifacts: {include: [a]}\n")
    called = kept("eval", "task.yaml", "--output_json", "out.json")
    assert called.code == 2 and "--output_json is for a skill config" in called.stderr
