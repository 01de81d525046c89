"""Files of real runs damaged at random: each command has the same answer, or names the file.

Each run is made once by its command, as a process, and every damage is done to a fresh copy in its
place. `tests/store/test_flips.py` does the same to one small run, which is killed and repaired too.
"""

import random
import re
import shutil
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

import pytest

from kept.store.reader import Run
from kept.testing.server import ModelServer
from tests.recipes.killing import Kills, the_run, timeless
from tests.recipes.test_kills import COMMANDS, commands
from tests.ui.cli.tasks import kept
from tests.ui.web.project import inside

SAMPLE, NIGHTLY = 5, 44
"""Damages of a recipe, in CI and at night."""
CI = ("optimize", "compare")
"""Recipes of the sample: those whose runs are the quickest to make."""

READING: Sequence[Sequence[str]] = (
    *(("runs",), ("show", "last"), ("show", "last", "--json"), ("diff", "last")),
    *(("report", "last"), ("adopt", "last", "--yes"), ("resume", "last", "-q")),
)
CORE = ("journal.jsonl", "rollouts.jsonl", "blobs.pack", "blobs.idx", "steps.idx")
DATABASES = ("artifacts.db", "index.db")
"""Files with bytes that mean nothing, of free space say; `kept doctor RUN` finds the others."""

NAMED = re.compile(
    r"(journal|rollouts)\.jsonl(:\d+: | is empty)|blobs\.pack|newer kept"
    r"|(applier|critic)\.yaml changed"
)


class Said(NamedTuple):
    """The answer of a command."""

    code: int
    text: str
    error: str = ""

    @property
    def refuses(self) -> bool:
        """True if it names the damaged file, or lists the run as one that cannot be read."""
        return bool(self.code and NAMED.search(self.error)) or "unreadable" in self.text


class Whole(NamedTuple):
    """A run without damage, and what commands say of it."""

    folder: Path
    copy: Path
    sources: dict[str, bytes]
    adopted: dict[str, bytes]
    said: dict[Sequence[str], Said]
    state: object
    healthy: list[str]
    """What `kept doctor` says of it."""

    def restore(self) -> None:
        """Have the folder, in which commands may be at work, hold what the run left."""
        for path in self.folder.iterdir():
            if path.is_dir():
                shutil.rmtree(path)
            else:
                path.unlink()
        shutil.copytree(self.copy, self.folder, symlinks=True, dirs_exist_ok=True)


@contextmanager
def at_work(name: str, folder: Path) -> Generator[Whole]:
    """A run of a command, and its server."""
    made = Kills(COMMANDS[name], folder)
    with made.server:
        run = made.whole_run()
        copy = folder / "copy"
        shutil.copytree(run, copy, symlinks=True)
        with going(run, made.server):
            said, adopted = answers(run)
        # what a resume may add to the journal of a run stands at its end
        with Run(the_run(run)) as past:
            state = past.state.settled()
        whole = Whole(run, copy, sources(copy), adopted, said, state, [])
        with going(run, made.server):
            whole.restore()
            whole.healthy.extend(doctor())
            again, changed = answers(run)
            assert [one[:2] for one in again.values()] == [one[:2] for one in said.values()]
            assert changed == adopted
            yield whole


@contextmanager
def going(folder: Path, server: ModelServer) -> Generator[None]:
    at = {"OPENAI_COMPATIBLE_BASE_URL": server.v1, "OPENAI_COMPATIBLE_API_KEY": "1-1"}
    with inside(folder, KEPT_HOME=str(folder / ".kept"), KEY="1-1", **at):
        yield


def doctor() -> list[str]:
    """What `kept doctor` finds wrong."""
    told = kept("doctor", "last").stdout.splitlines()
    return [one for one in told if ": warning: " in one or ": problem: " in one]


def answers(folder: Path) -> tuple[dict[Sequence[str], Said], dict[str, bytes]]:
    """What every command says, and the sources after `kept adopt`."""
    said: dict[Sequence[str], Said] = {}
    before, adopted = sources(folder), dict[str, bytes]()
    for words in READING:
        called = kept(*words)
        assert "internal error" not in called.stderr, f"{words}: {called.stderr}"
        text = re.sub(r"\d+ \w+ ago|just now", "AGO", called.stdout)
        if words[0] == "resume":
            text = timeless(text)  # work that is done again takes another time
        said[words] = Said(called.code, text, called.stderr)
        if words[0] == "adopt":
            adopted = sources(folder)
            for name, data in before.items():
                (folder / name).write_bytes(data)
    return said, adopted


def sources(folder: Path) -> dict[str, bytes]:
    """The files of a person, which only `kept adopt` changes."""
    return {path.name: path.read_bytes() for path in folder.iterdir() if path.is_file()}


def damage(whole: Whole, chance: random.Random) -> str:
    """Flip a bit of a file, cut a file, or take a line out; half of them of a core file."""
    places = [whole.folder / ".kept", *whole.folder.glob("*/BEST")]
    places += [*whole.folder.glob("*/refinement_sessions"), *whole.folder.glob("out")]
    places += [*whole.folder.glob("results")]
    files = [path for place in places for path in sorted(place.rglob("*")) if path.is_file()]
    files = [path for path in files if not path.is_symlink() and path.stat().st_size]
    files = [path for path in files if path.name not in ("lock", ".gitignore")]
    core = [path for path in files if path.name in CORE]
    path = chance.choice(core if chance.random() < 0.5 else files)
    data = bytearray(path.read_bytes())
    at, how = chance.randrange(len(data)), chance.random()
    if how < 0.25:
        del data[at:]
    elif how < 0.35:
        lines = bytes(data).splitlines(keepends=True)
        del lines[chance.randrange(len(lines))]
        data = bytearray(b"".join(lines))
    else:
        data[at] ^= 1 << chance.randrange(8)
    path.write_bytes(data)
    what = "cut" if how < 0.25 else "a line less" if how < 0.35 else "a bit flipped"
    return f"{path.relative_to(whole.folder)}: {what}, at byte {at}"


def check(whole: Whole, seed: int) -> str:
    """Damage one file; the same answers or refusals, and a doctor that sees it."""
    whole.restore()
    told = f"seed {seed}: {damage(whole, random.Random(seed))}"
    seen = doctor() != whole.healthy
    verified = not any(f"/{name}:" in told for name in DATABASES)
    assert seen or not verified, f"{told}: kept doctor does not see it"
    said, adopted = answers(whole.folder)
    refused = [words for words, one in said.items() if one.refuses]
    for words, one in said.items():
        same = one[:2] == whole.said[words][:2]
        assert same or one.refuses, f"{told}: {words}: {one}\ninstead of {whole.said[words]}"
    if ("adopt", "last", "--yes") in refused:
        assert adopted == whole.sources, f"{told}: kept adopt refused, and changed a file"
    else:
        assert adopted == whole.adopted, f"{told}: kept adopt wrote something else"
    if READING[-1] not in refused:
        with Run(the_run(whole.folder)) as run:
            assert run.state.settled() == whole.state, told
    return "refused" if refused else "same"


@pytest.mark.kill
@pytest.mark.parametrize("name", CI)
def test_damage_to_a_real_run_is_named_or_changes_nothing(name: str, tmp_path: Path):
    with at_work(name, tmp_path) as whole:
        for seed in range(SAMPLE):
            check(whole, seed)


@pytest.mark.kill
@pytest.mark.nightly
@pytest.mark.parametrize("name", commands())
def test_much_damage_to_a_real_run_is_named_or_changes_nothing(name: str, tmp_path: Path):
    with at_work(name, tmp_path) as whole:
        ends = [check(whole, seed) for seed in range(1000, 1000 + NIGHTLY)]
    assert {*ends} == {"same", "refused"}
