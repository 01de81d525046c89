"""Below `.kept/` only the owner may read; what is written elsewhere follows the umask."""

import os
import stat
from collections.abc import Iterator
from pathlib import Path

import pytest

import kept as kept_api
from kept.errors import SetupError
from kept.orchestrator.prompt_registry import Epoch, PromptRegistry, registry_path
from kept.store.candidate_files import make_folder, write_below, write_file, write_whole
from kept.store.home import Home
from kept.store.run_index import RunIndex
from kept.store.verify import verify_run
from tests.ui.cli.tasks import kept, write_task


@pytest.fixture(autouse=True)
def usual_umask() -> Iterator[None]:
    before = os.umask(0o022)
    yield
    os.umask(before)


def mode(path: Path) -> int:
    return stat.S_IMODE(path.lstat().st_mode)


def opened_up(home: Path) -> list[str]:
    """Files and folders below a home that others may read, or that the owner may not."""
    found: list[str] = []
    for path in (home, *home.rglob("*")):
        if path.is_symlink():
            continue
        want = (0o700,) if path.is_dir() else (0o600, 0o700)
        if mode(path) not in want:
            found.append(f"{path.relative_to(home)} {mode(path):o}")
    return found


@pytest.mark.slow
def test_every_file_of_a_run_is_its_owners_and_exports_follow_the_umask(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    here = tmp_path
    monkeypatch.chdir(here)
    spec = write_task(here)
    (here / "prompt.md").chmod(0o755)
    with spec.open("a") as file:
        file.write("logging: {results_file: results.jsonl, candidate_dir: kept-candidates}\n")
    assert kept("optimize", "task.yaml").code == 0
    assert kept("runs").code == 0
    assert kept("report", "--html").code == 0
    assert opened_up(here / ".kept") == []
    names = {path.name for path in here.rglob(".kept/**/*")}
    assert {"journal.jsonl", "blobs.pack", "index.db", "lock", "prompt.md", "report.html"} <= names
    assert mode(here / ".kept" / "runs") == 0o700
    assert mode(here / "results.jsonl") == 0o644
    (folder,) = (here / "kept-candidates").iterdir()
    assert mode(folder) == 0o755 and {mode(path) for path in folder.rglob("*.diff")} == {0o644}


def test_what_is_written_below_a_home_is_private_wherever_the_home_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    for home in (tmp_path / ".kept", tmp_path / "elsewhere"):
        monkeypatch.setenv("KEPT_HOME", str(home))
        Home(home).make()
        make_folder(home / "experiments" / "exp" / "tasks")
        write_below(home / "a" / "b", {"c/d.txt": b"d"})
        write_whole(home / "e" / "f.json", b"{}")
        write_file(home / "g", b"h", "ab")
        assert RunIndex(Home(home)).rows() == []
        registry = PromptRegistry(registry_path(Home(home)), {"critic": "a text"})
        registry.record(an_epoch())
        assert (home / "artifacts.db").exists()
        assert opened_up(home) == []
    write_whole(tmp_path / "out" / "f.json", b"{}")
    assert (mode(tmp_path / "out"), mode(tmp_path / "out" / "f.json")) == (0o755, 0o644)


def test_a_run_of_a_python_program_is_private_in_the_home_that_it_names(tmp_path: Path):
    def length(text: str) -> float:
        return len(text)

    home = tmp_path / "elsewhere"
    result = kept_api.optimize("a", length, proposers=["ab"], home=home)
    assert opened_up(result.folder) == []
    assert {one.severity for one in verify_run(result.folder)} == {"ok"}


def an_epoch() -> Epoch:
    return Epoch(
        id="e",
        suite="s",
        number=0,
        started=0.0,
        ended=1.0,
        loss=0.5,
        before={"critic": "a text"},
        after={"critic": "another"},
        kept=True,
    )


def test_a_prompt_artifact_that_was_changed_in_its_file_is_refused(tmp_path: Path):
    registry = PromptRegistry(tmp_path / "artifacts.db", {"critic": "a text"})
    registry.record(an_epoch())
    assert registry.versions("critic")[1].content == "another"
    data = (tmp_path / "artifacts.db").read_bytes()
    assert data.count(b"another") >= 1
    (tmp_path / "artifacts.db").write_bytes(data.replace(b"another", b"anothes"))
    with pytest.raises(SetupError, match="version 1 of `critic` is not what was written"):
        registry.versions("critic")
