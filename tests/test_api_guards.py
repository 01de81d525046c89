"""Guards of `kept.optimize`: what nobody may copy, and what is not a copy."""

import json
import random
import zlib
from pathlib import Path

import kept

LOGS = [json.dumps({"service": "checkout", "order": n * 7919, "ms": n % 977}) for n in range(60)]


def packed(candidate: kept.Candidate, line: str) -> int:
    packer = zlib.compressobj(9, zdict=candidate.text.encode())
    return len(packer.compress(line.encode()) + packer.flush())


def append_a_train_line(brief: kept.Brief) -> str:
    draw = random.Random(brief.seed)
    line = str(draw.choice(brief.train).data)
    return brief.incumbent.text + line[draw.randrange(len(line)) :]


def append_any_line(brief: kept.Brief) -> str:
    return brief.incumbent.text + LOGS[brief.step]


def run(home: Path, proposer: object, **options: object) -> list[tuple[str, str]]:
    result = kept.optimize(
        " ",
        packed,
        LOGS,
        proposers=[proposer],  # pyright: ignore[reportArgumentType] # a function
        direction="minimize",
        gate="strict",
        home=home,
        width=1,
        **options,  # pyright: ignore[reportArgumentType] # as optimize has them
    )
    return [(step.verdict.code, step.verdict.reason) for step in result.state.history]


def test_pieces_of_train_lines_pass(tmp_path: Path):
    told = run(tmp_path, append_a_train_line, budget=40)
    assert [reason for code, reason in told if code == "guard"] == []


def test_lines_of_holdout_and_test_cases_are_refused_and_those_of_train_are_not(tmp_path: Path):
    told = run(tmp_path, append_any_line, budget=len(LOGS))
    refused = [reason for code, reason in told if code == "guard"]
    # 3:5:2 of 60, and only those that were there to decide
    assert len(refused) == 42
    assert all(reason.startswith("guard copy: text:") for reason in refused)


def test_guards_can_be_chosen(tmp_path: Path):
    told = run(tmp_path / "none", append_any_line, budget=10, guards=())
    assert "guard" not in {code for code, _ in told}
    limit = kept.LengthGuard(None, max_chars=20)
    told = run(tmp_path / "length", append_any_line, budget=3, guards=[limit])
    assert {reason for _, reason in told} == {
        f"guard length: {1 + len(LOGS[n])} characters, 20 allowed" for n in range(3)
    }
