"""`kept doctor`: what works here, said without doing anything."""

import sqlite3
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from kept.orchestrator.prompt_registry import Epoch, PromptRegistry
from kept.orchestrator.toolkit import own_artifacts
from kept.sandbox.capabilities import abilities
from kept.sandbox.cgroup import Parents
from kept.store.lock import Lock
from tests.sandbox.coding_agents.stand_in import put
from tests.ui.cli.tasks import kept, write_task


def states(*names: str) -> dict[str, Any]:
    rows = kept("doctor", "--json").json["findings"]
    return {row["name"]: row for row in rows if not names or row["name"] in names}


def test_it_says_what_is_there_and_makes_nothing(here: Path):
    called = kept("doctor")
    assert called.code == 0
    names = ("kept", "python", "platform", "bwrap", "git", "runs", "disk")
    assert [name for name in names if not f"\n{called.stdout}".count(f"\n{name} ")] == []
    assert list(here.iterdir()) == []


def test_its_document_says_what_is_enforced():
    enforced = kept("doctor", "--json").json["enforced"]
    assert enforced["cpu, memory and file size"] is True
    assert enforced["network"] is abilities().walls


def test_without_bwrap_it_warns_names_what_is_not_enforced_and_still_exits_with_0(
    monkeypatch: pytest.MonkeyPatch,
):
    why_not = "no `bwrap` here"
    able = replace(abilities(), walls=False, overlay=False, groups=Parents(), why_not=why_not)
    monkeypatch.setattr("kept.sandbox.capabilities.abilities", lambda: able)
    called = kept("doctor")
    assert called.code == 0
    assert "warning: does not work (no `bwrap` here); on Debian: apt-get install" in called.stdout
    assert "NOT enforced" in called.stdout


def test_a_home_that_cannot_be_is_a_problem(here: Path, monkeypatch: pytest.MonkeyPatch):
    (here / "file").touch()
    monkeypatch.setenv("KEPT_HOME", str(here / "file" / "inner"))
    called = kept("doctor")
    assert called.code == 2
    assert "problem: KEPT_HOME is" in called.stdout


def test_a_home_elsewhere_is_named(here: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("KEPT_HOME", str(here / "elsewhere"))
    assert states("runs")["runs"]["text"] == f"KEPT_HOME is {here / 'elsewhere'}, not yet made"


def test_what_a_model_on_this_machine_lacks_is_told_as_what_to_type(
    here: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("KEPT_CACHE", str(here / "none"))
    found = states("local/smollm2")["local/smollm2"]
    assert found["state"] == "ok"
    assert "`kept models pull smollm2`" in found["text"]


def test_it_names_the_agents_that_are_here_and_how_to_have_the_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("PATH", "/usr/bin:/bin")
    put(tmp_path, ":", monkeypatch, "codex_exec")
    found = states("codex_exec", "opencode_exec")
    assert found["codex_exec"]["text"] == str(tmp_path.resolve() / "programs" / "codex")
    assert found["opencode_exec"]["text"] == "not here: `npm install -g opencode-ai`"


@pytest.fixture
def run(here: Path) -> Path:
    write_task(here)
    return Path(kept("optimize", "task.yaml", "--json").json["folder"])


def change(path: Path, old: bytes, new: bytes) -> None:
    data = path.read_bytes()
    assert old in data
    path.write_bytes(data.replace(old, new, 1))


@pytest.mark.slow
def test_it_verifies_a_run_file_by_file(run: Path):
    called = kept("doctor", "last")
    assert called.code == 0, called.stdout
    for name in ("journal.jsonl", "rollouts.jsonl", "blobs.pack", "steps.idx", "blobs.idx", "best"):
        assert f"{name}: verified\n" in f"{called.stdout}\n"
    assert {row["state"] for row in kept("doctor", "last", "--json").json["files"]} == {"ok"}
    called = kept("doctor", "--repair")
    assert called.code == 2 and "--repair needs a RUN" in called.stderr
    assert kept("doctor", run.name, "--repair").code == 0


@pytest.mark.slow
def test_it_names_what_is_damaged_and_a_repaired_run_ends_as_before(run: Path, here: Path):
    best = (run / "best" / "prompt.md").read_text()
    change(run / "rollouts.jsonl", b'"metrics":{"score":2', b'"metrics":{"score":9')
    change(run / "best" / "prompt.md", b"good", b"gold")
    number = 1 + (run / "rollouts.jsonl").read_text().splitlines().index(
        next(line for line in (run / "rollouts.jsonl").read_text().splitlines() if ":9" in line)
    )
    called = kept("doctor", "last")
    assert called.code == 2
    where = f"rollouts.jsonl:{number}: problem: it does not match its checksum (of step "
    assert where in called.stdout
    assert f"  recover: restore the file from a copy; or `kept doctor {run.name}" in called.stdout
    assert "best: problem: is not the best candidate: prompt.md" in called.stdout
    for words in (("report",), ("show", "--step", "1")):
        refused = kept(*words)
        assert (refused.code, refused.stdout) == (2, ""), words
        assert f"rollouts.jsonl:{number}: " in refused.stderr, words
    called = kept("doctor", "last", "--repair")
    assert "repaired: moved 1 lines of rollouts.jsonl to rollouts.jsonl.torn" in called.stdout
    assert kept("resume", "last").code == 0
    assert (run / "best" / "prompt.md").read_text() == best
    assert kept("doctor", "last").code == 0
    assert kept("report").code == 0


@pytest.mark.slow
@pytest.mark.parametrize("name", ["blobs.idx", "steps.idx", "index.db"])
def test_a_damaged_index_changes_no_answer(name: str, run: Path, here: Path):
    def answers() -> list[str]:
        words = ("runs",), ("show",), ("show", "--step", "1"), ("diff",)
        return [kept(*one).stdout for one in words]

    before = answers()
    path = here / ".kept" / name if name == "index.db" else run / name
    right = path.read_bytes()
    for at in range(0, len(right), len(right) // 6):
        path.write_bytes(right[:at] + bytes([right[at] ^ 4]) + right[at + 1 :])
        assert answers() == before, at
        path.write_bytes(right)


@pytest.mark.slow
def test_a_report_that_was_changed_is_found_and_written_again(run: Path):
    assert kept("report").code == 0
    assert "report.md" not in kept("doctor", "last").stdout
    data = bytearray((run / "report.md").read_bytes())
    data[len(data) // 2] ^= 1
    (run / "report.md").write_bytes(data)
    called = kept("doctor", "last")
    assert (called.code, called.stdout.count("report.md: warning: is not what")) == (0, 1)
    assert kept("report").code == 0
    assert "report.md" not in kept("doctor", "last").stdout


@pytest.mark.slow
def test_a_report_of_an_earlier_session_is_not_called_changed(run: Path):
    lines = (run / "journal.jsonl").read_bytes().splitlines(keepends=True)
    assert b'"run_stopped"' in lines[-1]
    (run / "journal.jsonl").write_bytes(b"".join(lines[:-1]))
    (run / "steps.idx").unlink()
    lock = Lock(run)
    assert not lock.lost
    assert "report.md" not in kept("doctor", "last").stdout, "this session writes it at its end"
    lock.release()
    assert "or an earlier session or another version" in kept("doctor", "last").stdout


@pytest.mark.slow
def test_an_index_of_the_pack_that_was_cut_between_two_lines_is_found(run: Path):
    lines = (run / "blobs.idx").read_bytes().splitlines(keepends=True)
    (run / "blobs.idx").write_bytes(b"".join(lines[:-1]))
    assert "blobs.idx: warning: does not fit blobs.pack" in kept("doctor", "last").stdout
    assert kept("doctor", "last", "--repair").code == 0
    assert "blobs.idx: warning" not in kept("doctor", "last").stdout


def write_task_with_exports(folder: Path) -> None:
    with write_task(folder).open("a") as spec:
        spec.write("logging: {results_file: out/r.jsonl, candidate_dir: out/candidates}\n")


def flip(path: Path) -> bytes:
    """Flip a bit in the middle of a file; what it held."""
    right = path.read_bytes()
    at = len(right) // 2
    path.write_bytes(right[:at] + bytes([right[at] ^ 1]) + right[at + 1 :])
    return right


def warned(*words: str) -> set[str]:
    """The names of the files that doctor finds wrong."""
    rows = kept("doctor", *(words or ("last",)), "--json").json["files"]
    return {Path(row["file"]).name for row in rows if row["state"] != "ok"}


@pytest.mark.slow
def test_a_changed_export_is_found_and_a_resume_writes_it_again(here: Path):
    write_task_with_exports(here)
    first = Path(kept("optimize", "task.yaml", "--json").json["folder"]).name
    second = Path(kept("optimize", "task.yaml", "--json").json["folder"]).name
    files = [path for path in sorted((here / "out").rglob("*")) if path.is_file()]
    (kept_one,) = {path.name for path in files if path.parent.name.endswith("-keep")}
    assert kept_one == "prompt.md"
    assert warned(first) == warned(second) == set()
    own = [path for path in files if second in str(path)]
    for path in own:
        right = flip(path)
        assert warned(second) == {path.name}, path
        assert warned(first) == set()
        assert kept("resume", second).code == 0
        assert path.read_bytes() == right
        assert warned(second) == set()
    results = here / "out" / "r.jsonl"
    lines = results.read_bytes().splitlines(keepends=True)
    results.write_bytes(
        b"".join([lines[0].replace(b'"iteration": 0', b'"iteration": 9'), *lines[1:]])
    )
    assert (warned(first), warned(second)) == ({"r.jsonl"}, set())
    own[0].unlink()
    assert warned(second) == set()  # removed by a person, who need not keep it


@pytest.mark.slow
def test_what_a_repair_made_good_is_no_problem_any_more(run: Path):
    change(run / "blobs.pack", b"good good\ngood", b"gold good\ngood")  # of the best candidate
    called = kept("doctor", "last", "--repair")
    assert "repaired: moved the last" in called.stdout
    assert "best: problem" not in called.stdout
    assert kept("resume", "last").code == 0
    called = kept("doctor", "last")
    assert called.code == 0, called.stdout
    assert "blobs.pack: warning: the entry" in called.stdout
    assert "does not match its digest, another one does\n  recover: nothing" in called.stdout


@pytest.mark.slow
def test_a_repair_is_advised_only_where_it_helps(run: Path):
    change(run / "blobs.pack", b"nothing of the sort", b"nothing of the soft")  # was discarded
    called = kept("doctor", "last")
    assert called.code == 2
    advice = "restore the file from a copy; the run goes on without it"
    assert f"does not match its digest\n  recover: {advice}\n" in called.stdout


@pytest.mark.slow
def test_an_index_of_a_pack_with_a_damaged_header_is_right_after_a_resume(run: Path):
    data = (run / "blobs.pack").read_bytes()
    at = data.index(b"@entry ") + len(b"@entry ")
    (run / "blobs.pack").write_bytes(data[:at] + b"\0" * 100 + data[data.index(b"\n", at) :])
    (run / "blobs.idx").unlink()
    assert kept("resume", "last").code == 0
    assert warned() == {"blobs.pack"}


@pytest.mark.slow
def test_an_unfinished_line_of_the_rollouts_is_found_and_a_resume_moves_it_aside(run: Path):
    path = run / "rollouts.jsonl"
    whole = path.read_bytes()
    path.write_bytes(whole + b'{"crc":"1')
    assert warned() == {f"rollouts.jsonl:{whole.count(10) + 1}"}
    assert kept("resume", "last").code == 0
    assert warned() == set()
    assert (run / "rollouts.jsonl.torn").read_bytes() == b'{"crc":"1\n'


@pytest.mark.slow
def test_a_run_whose_journal_is_gone_is_named(run: Path, caplog: pytest.LogCaptureFixture):
    (run / "journal.jsonl").unlink()
    place = f"{run / 'journal.jsonl'} is missing"
    kept("runs")
    assert place in caplog.text
    for words in (("doctor", run.name), ("show", run.name), ("resume", run.name)):
        called = kept(*words)
        assert called.code == 2 and place in called.stderr, words


@pytest.mark.slow
def test_damage_to_the_list_of_exports_is_found(here: Path):
    write_task_with_exports(here)
    run = Path(kept("optimize", "task.yaml", "--json").json["folder"])
    path = run / "exports.jsonl"
    assert path.stat().st_mode & 0o777 == 0o600
    right = flip(path)
    assert warned() == {next(one for one in warned() if one.startswith("exports.jsonl:"))}
    path.write_bytes(right[: right.rindex(b"\n", 0, -1) + 1])
    assert warned() == {"exports.jsonl", "r.jsonl"}  # whose last line is not told of any more
    path.unlink()
    assert warned() == {"exports.jsonl"}
    assert kept("resume", "last").code == 0
    assert warned() == set()


@pytest.mark.slow
def test_damage_to_the_prompts_of_agent_runs_is_found(run: Path, here: Path):
    registry = PromptRegistry(here / ".kept" / "artifacts.db", own_artifacts())
    name = registry.names[0]
    text = registry.texts()[name] + "And be quick.\n"
    before = registry.texts()
    after = {**before, name: text}
    one = Epoch(
        id="e",
        suite="s",
        number=1,
        started=1.0,
        ended=2.0,
        loss=0.5,
        before=before,
        after=after,
        kept=True,
        uses=(name,),
    )
    assert registry.record(one)
    assert warned() == set()
    with closing(sqlite3.connect(registry.path)) as database, database:
        database.execute("UPDATE epochs SET mean_loss = 0.25")
    called = kept("doctor", "last")
    assert called.code == 2
    assert "artifacts.db: problem: " in called.stdout
    assert "of `epochs` is not what was written" in called.stdout
