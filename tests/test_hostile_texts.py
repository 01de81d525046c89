"""No text brings down or holds up what reads it: `tests/hostile.py` in a process of its own."""

import random
import subprocess
import sys
from pathlib import Path

import pytest

from kept.evaluators.tools.documents import Unreadable, read_document
from tests.evaluators.tools.documents.test_documents import a_document, a_pdf, a_workbook, slides

ROOT = Path(__file__).parents[1]
DEEP = "a: " + "[" * 60_000 + "]" * 60_000


def hold(seed: int, texts: int, size: int, seconds: float) -> None:
    words = [sys.executable, "-m", "tests.hostile", *map(str, (seed, texts, size))]
    ended = subprocess.run(
        words, cwd=ROOT, capture_output=True, text=True, timeout=seconds, check=False
    )
    assert (ended.returncode, ended.stdout) == (0, ""), ended.stdout + ended.stderr[-4000:]


@pytest.mark.slow
def test_parsers_refuse_hostile_texts_in_time():
    hold(seed=1, texts=16, size=2000, seconds=300)


@pytest.mark.nightly
@pytest.mark.parametrize("seed", range(2, 12))
def test_parsers_refuse_many_long_hostile_texts_in_time(seed: int):
    hold(seed, texts=100, size=20_000, seconds=3600)


@pytest.mark.slow
def test_a_spec_that_would_end_the_process_is_a_problem_of_its_line(tmp_path: Path):
    (tmp_path / "task.yaml").write_text(DEEP)
    words = [sys.executable, "-m", "kept", "check", "task.yaml"]
    ended = subprocess.run(
        words, cwd=tmp_path, capture_output=True, text=True, timeout=120, check=False
    )
    assert ended.returncode == 2
    told = "task.yaml:1 not YAML: it is nested more than 100 levels deep"
    assert told in ended.stdout + ended.stderr


@pytest.mark.nightly
def test_damaged_office_files_are_refused_in_time(tmp_path: Path):
    chance = random.Random(1)
    made = {"a.pdf": a_pdf("x", "y"), "a.docx": a_document(), "a.pptx": slides()}
    made |= {"a.xlsx": a_workbook()}
    for name, data in made.items():
        for _ in range(25):
            broken = bytearray(data)
            for _ in range(chance.randint(1, 40)):
                broken[chance.randrange(len(broken))] = chance.randrange(256)
            (tmp_path / name).write_bytes(broken[: chance.choice([None, len(broken) // 2])])
            try:
                read_document(tmp_path / name)
            except Unreadable as error:
                assert str(error).startswith(f"`{name}` cannot be read: ")
