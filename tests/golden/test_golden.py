"""The commands of today do what they did: their values and their words, compared with files.

Written anew by `python -m tests.golden [NAME...]`; `--check` shows the differences alone. Values
(`*.values.json`) are exit codes, verdicts, figures, journals and exported files; words
(`*.words.txt`) are what a person reads. A change of words alone leaves the values as they are.
"""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from kept.sandbox.capabilities import abilities
from tests.golden.compare import (
    BYTE_IDENTICAL,
    FOLDER,
    JOURNALS,
    SUFFIXES,
    differences,
    make,
)
from tests.golden.normal import Normal
from tests.golden.scenarios import NEED_SANDBOX, SCENARIOS
from tests.golden.stage import FrozenKept, frozen_kept

SANDBOX = (
    pytest.mark.sandbox,
    pytest.mark.skipif(not abilities().walls, reason="no sandbox on this machine"),
)


@pytest.fixture(scope="module")
def kept() -> Iterator[FrozenKept]:
    with frozen_kept() as running:
        yield running


NAMES = [pytest.param(name, marks=SANDBOX if name in NEED_SANDBOX else ()) for name in SCENARIOS]


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_a_command_does_and_says_what_its_golden_files_hold(kept: FrozenKept, name: str):
    found = [line for file, text in make(kept, name).items() for line in differences(file, text)]
    hint = f"if that is meant: `python -m tests.golden {name}`"
    assert not found, "\n".join([*found, hint])


def test_there_is_a_golden_file_for_each_scenario_and_no_other():
    wanted = {f"{name}.{suffix}" for name in SCENARIOS for suffix in SUFFIXES.values()}
    wanted |= {f"{BYTE_IDENTICAL}.{file}" for file in JOURNALS}
    assert {
        path.name for path in FOLDER.iterdir() if path.suffix in {".json", ".jsonl", ".txt"}
    } == wanted


def test_the_runs_of_the_golden_files_come_to_all_verdicts():
    """Files of runs in which nothing happens would not notice much."""
    outcomes: set[str] = set()
    codes: set[int] = set()
    for path in FOLDER.glob("*.values.json"):
        values = json.loads(path.read_text(encoding="utf-8"))
        codes |= {command["exit"] for command in values["commands"]}
        outcomes |= {outcome for outcome in OUTCOMES if f'"{outcome}"' in path.read_text()}
    assert outcomes == OUTCOMES
    assert codes == {0, 1}


OUTCOMES = {"keep", "discard", "crash", "skip"}


@pytest.mark.parametrize(
    ("name", "old", "new", "shown"),
    [
        ("optimize.values.json", '"gain": 0.729', '"gain": 0.728', '"gain": 0.728'),
        ("optimize.values.json", '"verdict": "keep"', '"verdict": "skip"', '"verdict": "skip"'),
        ("compare.values.json", '"exit": 1', '"exit": 0', '"exit": 0'),
        ("optimize.words.txt", "## What was kept", "## What was taken", "## What was taken"),
        ("help.words.txt", "--max-usd USD", "--max-money USD", "--max-money USD"),
        ("fixed.journal.jsonl", '"at":1946', '"at":1947', '"at": 1947'),
    ],
)
def test_a_planted_change_is_shown(name: str, old: str, new: str, shown: str):
    golden = (FOLDER / name).read_text(encoding="utf-8")
    assert differences(name, golden) == []
    assert old in golden
    found = differences(name, golden.replace(old, new, 1))
    changed = [line for line in found if line[0] == "+"][1:]
    assert len(changed) == 1 and shown in changed[0]


def test_only_what_must_vary_is_taken_out_of_a_text():
    normal = Normal("/tmp/x/golden", 40123)
    text = "/tmp/x/golden/.kept/runs/20231114-221320-929e1b2d on :40123, gain +0.25 in 8 rollouts"
    assert normal.text(text) == "<folder>/.kept/runs/<run 1> on :<port>, gain +0.25 in 8 rollouts"
    assert normal.text("20231114-221321-14d7ef49") == "<run 2>"
    assert normal.text("6094485c499c728a 40123 2023-11-14 22:13:20") == (
        "6094485c499c728a 40123 2023-11-14 22:13:20"
    )


def test_prose_is_a_word_and_everything_else_a_value():
    heard: list[tuple[str, str]] = []
    normal = Normal("/tmp/x/golden", 40123)
    given = {"crc": "aa", "outcome": "keep", "why": "it is better", "gain": 0.1234567891234}
    found = normal.data({**given, "rollouts": [0, 9]}, lambda at, text: heard.append((at, text)))
    assert found == {"outcome": "keep", "why": "<words>", "gain": 0.123456789}
    assert heard == [("/why", "it is better")]
    assert normal.data({"rollouts": 9}, lambda at, text: None) == {"rollouts": 9}


def test_the_committed_files_name_no_folder_of_the_machine_that_wrote_them():
    for path in FOLDER.glob("*.*"):
        if path.suffix in {".json", ".jsonl", ".txt"}:
            text = path.read_text(encoding="utf-8")
            assert "/kept-" not in text and str(Path.home()) + "/" not in text, path
