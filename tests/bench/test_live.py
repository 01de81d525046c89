"""The live bench: its data, its grading, its money, and a whole run against the test server."""

import asyncio
import json
import os
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from bench.harness import ROOT
from bench.live import __main__ as command
from bench.live.answers import same_answer, same_number
from bench.live.compare import WORKERS, Comparison, Terms, arms
from bench.live.following import CHECKS, broken
from bench.live.ledger import Call, Ledger, OutOfMoney
from bench.live.page import EMPTY, empty_page, report
from bench.live.sets import SEEDS, BadData, read_sample
from bench.report import RESULTS
from kept.core.llm import ModelReply
from kept.core.rollout import Usage
from kept.models.client import make
from kept.models.providers import ModelConfig, Price
from kept.settings import child_environment
from kept.testing.server import Fault, ModelServer
from tests.bench.live_world import answer, write_data

DATA = Path("/work/shared/data")
real = pytest.mark.skipif(not DATA.is_dir(), reason=f"{DATA} is not there: real samples")


@pytest.mark.parametrize(
    ("said", "wanted", "right"),
    [
        ("16 - 7 = 9\n#### 9", "9", True),
        ("#### $1,234.00 dollars", "1,234", True),
        ("She has 3 left, so 12 in all.", "12", True),
        ("#### 12 eggs in 3 days", "12", True),
        ("#### -5", "-5", True),
        ("#### 5", "-5", False),
        ("I do not know.", "9", False),
        ("#### ", "9", False),
    ],
)
def test_a_number_of_gsm8k_is_read_as_people_write_it(said: str, wanted: str, right: bool):
    assert same_number(said, wanted) is right


@pytest.mark.parametrize(
    ("said", "wanted", "right"),
    [
        ("So the answer is (B).", "(B)", True),
        ("Not (A).\nThe answer is **B**", "(B)", True),
        ("The answer is (A), not (B)", "(B)", False),
        ("False and True is False.\nThe answer is: False", "False", True),
        ("**True**", "True", True),
        ("The answer is no.", "No", True),
        ("I count 12.\nthe answer is 12 pianos", "12", True),
        ("The answer is ant, bee, cat", "ant bee cat", True),
        ("The answer is bee ant cat", "ant bee cat", False),
        ("The answer is ] ) }", "] ) }", True),
        ("The answer is ] )", "] ) }", False),
        ("", "True", False),
    ],
)
def test_an_answer_of_big_bench_hard_is_held_to_the_form_of_its_target(
    said: str, wanted: str, right: bool
):
    assert same_answer(said, wanted) is right


FOLLOWED: dict[str, tuple[dict[str, Any], str, str]] = {
    "keywords:existence": ({"keywords": ["mom"]}, "My Mom.", "My dad."),
    "keywords:frequency": (
        {"keyword": "war", "relation": "at least", "frequency": 2},
        "War and war",
        "War and peace",
    ),
    "keywords:forbidden_words": ({"forbidden_words": ["rock"]}, "A rocket.", "A Rock."),
    "keywords:letter_frequency": (
        {"letter": "t", "let_relation": "less than", "let_frequency": 2},
        "Tea",
        "Tight",
    ),
    "length_constraints:number_paragraphs": (
        {"num_paragraphs": 2},
        "one\n***\ntwo",
        "one\n***\n\n***\ntwo",
    ),
    "length_constraints:number_words": (
        {"relation": "at least", "num_words": 3},
        "it is so",
        "so what",
    ),
    "length_constraints:nth_paragraph_first_word": (
        {"num_paragraphs": 2, "nth_paragraph": 2, "first_word": "weekend"},
        "One.\n\n'Weekend, at last",
        "One.\n\nAt last the weekend",
    ),
    "detectable_content:number_placeholders": ({"num_placeholders": 2}, "[a] [b]", "[a] b"),
    "detectable_content:postscript": ({"postscript_marker": "P.S."}, "Bye.\nP. S. more", "Bye."),
    "detectable_format:number_bullet_lists": (
        {"num_bullets": 2},
        "* one\n- two",
        "* one\n**two**\nthree",
    ),
    "detectable_format:constrained_response": ({}, "My answer is no.", "No."),
    "detectable_format:number_highlighted_sections": (
        {"num_highlights": 2},
        "*one* and **two**",
        "*one* and ** **",
    ),
    "detectable_format:multiple_sections": (
        {"section_spliter": "SECTION", "num_sections": 2},
        "SECTION 1\na\nSECTION 2\nb",
        "SECTION 1\na",
    ),
    "detectable_format:json_format": ({}, '```json\n{"a": 1}\n```', "{a: 1}"),
    "detectable_format:title": ({}, "<<Ode>>\nO", "<< >>\nO"),
    "combination:two_responses": ({}, "one\n******\ntwo", "one\n******\none"),
    "combination:repeat_prompt": ({"prompt_to_repeat": "Say hi."}, "say hi. Hi!", "Hi! Say hi."),
    "startend:end_checker": ({"end_phrase": "Any more?"}, '"Yes. any more?"', "Any more? No."),
    "startend:quotation": ({}, '"so"', '"so" he said'),
    "change_case:capital_word_frequency": (
        {"capital_relation": "at least", "capital_frequency": 2},
        "THE END-OF it",
        "THE end",
    ),
    "change_case:english_capital": ({}, "LOUD, 1!", "Loud"),
    "change_case:english_lowercase": ({}, "soft, 1!", "Soft"),
    "punctuation:no_comma": ({}, "one two", "one, two"),
}


@pytest.mark.parametrize("kind", CHECKS)
def test_an_instruction_of_ifeval_is_told_followed_from_broken(kind: str):
    given, followed, not_followed = FOLLOWED[kind]
    row = {"instruction_id_list": [kind], "kwargs": [given]}
    assert broken(followed, row) == []
    assert broken(not_followed, row) == [kind]
    assert broken(" ", row) == [kind]


def test_samples_are_disjoint_and_rows_that_cannot_be_checked_are_counted(tmp_path: Path):
    data = write_data(tmp_path / "data")
    eggs = read_sample(data, "gsm8k", 30, 20)
    assert eggs is not None and len(eggs.cases) == 30 and len(eggs.fresh) == 20
    assert {one.id.partition("-")[0] for one in eggs.cases} == {"train"}
    assert {one.id.partition("-")[0] for one in eggs.fresh} == {"test"}
    hard = read_sample(data, "bbh", 5, 4)
    assert hard is not None and not {o.id for o in hard.cases} & {o.id for o in hard.fresh}
    obeyed = read_sample(data, "ifeval", 1, 1)
    assert obeyed is not None and obeyed.left_out == 1
    assert read_sample(data, "bbh", 5, 4) == hard
    assert read_sample(tmp_path, "bbh", 5, 4) is None
    with pytest.raises(BadData, match="too small for 9 \\+ 9 questions"):
        read_sample(data, "bbh", 9, 9)


def test_a_file_in_another_format_is_told_with_its_place(tmp_path: Path):
    data = write_data(tmp_path / "data")
    (data / "gsm8k" / "train.jsonl").write_text('{"question": "1 + 1?", "answer": "2"}\n')
    with pytest.raises(BadData, match=r"train.jsonl:1: no `answer` with a number behind ####"):
        read_sample(data, "gsm8k", 1, 1)
    (data / "bbh" / "boolean_expressions.json").write_text('[{"input": "a", "target": "b"}]')
    with pytest.raises(BadData, match="no list of `examples`"):
        read_sample(data, "bbh", 1, 1)


@real
@pytest.mark.parametrize("name", SEEDS)
def test_real_samples_are_read_and_their_own_answers_are_right(name: str):
    sample = read_sample(DATA, name, 60, 100)
    assert sample is not None
    for one in (*sample.cases, *sample.fresh):
        if name == "ifeval":
            assert isinstance(broken("So be it.", one.row), list)
        else:
            assert one.grade(f"Well.\nThe answer is {one.wanted}")[0] == 1.0, one
            assert one.grade("The answer is a unicorn 123456")[0] == 0.0, one
    assert (sample.left_out > 0) == (name == "ifeval")


REPLY = ModelReply("4", Usage(1, 10, 1, 0, 0.25))


def test_a_reply_is_paid_for_once_and_a_lost_one_counts_with_its_worst_case(tmp_path: Path):
    file = tmp_path / "ledger.jsonl"
    one, lost = Call("gsm8k/kept", "a", 0), Call("gsm8k/kept", "b", 0)

    async def first() -> None:
        with Ledger(file, 2.0) as ledger:
            await ledger.begin(one, 1.0, 2.0)
            ledger.end(one, 0.25, REPLY)
            await ledger.begin(lost, 1.0, 2.0)
            assert ledger.usd() == 1.25

    asyncio.run(first())
    with file.open("a") as out:
        out.write('{"call": "torn')
    with Ledger(file, 2.0) as again:
        assert again.reply(one) == REPLY and again.reply(lost) is None
        assert again.usd() == 1.25 and again.spent("gsm8k/kept").calls == 2
        assert again.usd("gsm8k/best ") == 0.0
        # the lost one may have been charged for: asked again, it is paid for besides
        asyncio.run(again.begin(lost, 0.5, 2.0))
        again.end(lost, 0.4, REPLY)
        assert again.usd() == pytest.approx(1.65) and again.spent("gsm8k/kept").calls == 2
        with pytest.raises(OutOfMoney, match=r"of up to \$1.0000 does not fit: \$0.3500 is left"):
            asyncio.run(again.begin(Call("gsm8k/best", "a", 0), 1.0, 2.0))


def test_no_number_of_sittings_that_were_killed_sends_more_than_the_cap_pays_for(tmp_path: Path):
    file = tmp_path / "ledger.jsonl"

    async def sitting() -> int:
        sent = 0
        with Ledger(file, 1.0) as ledger, suppress(OutOfMoney):
            for key in ("a", "b"):
                await ledger.begin(Call("gsm8k/kept", key, 0), 0.4, 1.0)
                sent += 1
        return sent  # killed here: the provider has what was begun

    sent = sum(asyncio.run(sitting()) for _ in range(10))
    with Ledger(file, 1.0) as ledger:
        assert (sent, ledger.usd()) == (2, pytest.approx(0.8))


def test_a_second_comparison_beside_the_first_is_refused_and_spends_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    words = ["--model", "openai/gpt-4o-mini", "--usd", "1", "--no-gepa", "--sets", "gsm8k"]
    words += ["--data", str(write_data(tmp_path / "data")), "--keep", str(tmp_path / "live")]
    words += ["--cases", "20", "--fresh", "5"]
    monkeypatch.setattr(sys, "argv", ["bench.live", *words])
    with ModelServer([]) as server, Ledger(tmp_path / "live" / "ledger.jsonl", 1.0):
        monkeypatch.setenv("OPENAI_BASE_URL", server.v1)
        monkeypatch.setenv("OPENAI_API_KEY", "sk-test-test")
        with pytest.raises(SystemExit) as ended:
            command.main()
        assert not server.log
    shown = capsys.readouterr().err
    assert ended.value.code == 2
    assert f"is being written by process {os.getpid()}" in shown
    assert "two at once would spend the cap twice" in shown
    with Ledger(tmp_path / "live" / "ledger.jsonl", 1.0) as after:
        assert after.usd() == 0.0, "the first is over, and lets the next one in"


def test_a_call_that_broke_off_is_paid_for_and_so_is_the_next_try(tmp_path: Path):
    one = Call("gsm8k/kept", "a", 0)

    async def scene(ledger: Ledger) -> None:
        for _ in range(2):
            await ledger.begin(one, 0.4, 1.0)
            ledger.end(one, 0.4, None)
        with pytest.raises(OutOfMoney):
            await ledger.begin(one, 0.4, 1.0)

    with Ledger(tmp_path / "ledger.jsonl", 1.0) as ledger:
        asyncio.run(scene(ledger))
    with Ledger(tmp_path / "ledger.jsonl", 1.0) as again:
        assert again.usd() == pytest.approx(0.8)


def test_a_call_waits_for_those_under_way_and_no_scope_has_more_than_its_allowance(tmp_path: Path):
    async def scene() -> float:
        calls = [Call("gsm8k/kept", "a", n) for n in range(3)]
        with Ledger(tmp_path / "ledger.jsonl", 1.0) as ledger:
            await ledger.begin(calls[0], 0.7, 1.0)
            waiting = asyncio.create_task(ledger.begin(calls[1], 0.7, 1.0))
            await asyncio.sleep(0.01)
            assert not waiting.done()
            ledger.end(calls[0], 0.1, REPLY)
            await waiting
            ledger.end(calls[1], 0.1, REPLY)
            with pytest.raises(OutOfMoney):
                await ledger.begin(calls[2], 0.2, 0.3)
            return ledger.usd()

    assert asyncio.run(scene()) == pytest.approx(0.2)


PRICE = (100.0, 400.0, 100.0)


@pytest.mark.slow
def test_all_arms_share_the_cap_and_nothing_is_paid_for_twice(tmp_path: Path):
    sample = read_sample(write_data(tmp_path / "data"), "gsm8k", 30, 40)
    assert sample is not None
    terms = Terms(400, 64, PRICE, arms(sys.executable))
    with ModelServer(answer) as server:
        config = ModelConfig(
            provider="openai_compatible",
            model="eggs",
            base_url=server.v1,
            max_tokens=64,
            price=Price(input=PRICE[0], output=PRICE[1]),
        )

        def compare(cap: float):
            folder = tmp_path / "live"
            with Ledger(folder / "ledger.jsonl", cap) as ledger:
                comparison = Comparison(folder, make(config), ledger, terms)
                return asyncio.run(comparison.run([sample])), ledger.usd()

        poor, paid = compare(1.5)
        before = len(server.log)
        assert paid <= 1.5 and all(row.short for row in poor)
        rows, paid = compare(30.0)
        calls = len(server.log)
        assert compare(30.0) == (rows, paid) and len(server.log) == calls
    assert [row.arm for row in rows] == ["kept", "gepa", "best"]
    for row in rows:
        assert row.changed and not row.short, row
        assert row.best.of == 40 and row.best.right > row.seed.right + 10
    assert sum(row.calls for row in rows) + 40 * (1 + 3) == calls > before
    shown = str(report(rows, [sample], paid, 30.0).tables[0])
    assert "| gsm8k | best of N |" in shown and "–" in shown


@pytest.mark.slow
@pytest.mark.kill
def test_a_killed_comparison_goes_on_and_pays_for_nothing_twice(tmp_path: Path):
    keep, out = tmp_path / "live", tmp_path / "out"
    argv = [sys.executable, "-m", "bench.live", "--model", "openai:gpt-4o-mini", "--usd", "0.1"]
    argv += ["--data", str(write_data(tmp_path / "data")), "--sets", "gsm8k", "--no-gepa"]
    argv += ["--cases", "20", "--fresh", "20", "--rollouts", "160", "--max-tokens", "64"]
    argv += ["--keep", str(keep), "--out", str(out)]
    with ModelServer(answer) as server:
        env = child_environment({"OPENAI_BASE_URL": server.v1, "OPENAI_API_KEY": "sk-test-test"})
        quiet, alone = subprocess.DEVNULL, True
        first = subprocess.Popen(argv, cwd=ROOT, env=env, stderr=quiet, start_new_session=alone)
        while len(server.log) < 60 and first.poll() is None:
            time.sleep(0.005)
        os.killpg(first.pid, signal.SIGKILL)
        assert first.wait() == -signal.SIGKILL
        done = subprocess.run(argv, cwd=ROOT, env=env, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        asked = len(server.log)
    lines = [json.loads(line) for line in (keep / "ledger.jsonl").read_text().splitlines()]
    assert len({line["sitting"] for line in lines}) == 2
    assert asked - len({line["call"] for line in lines}) <= WORKERS
    found = json.loads((out / "live.json").read_text())
    assert {row["arm"]: row["best"]["of"] for row in found["rows"]} == {"kept": 20, "best": 20}
    assert 0 < found["usd"] <= 0.1 and "sk-test-test" not in (keep / "ledger.jsonl").read_text()


def test_the_page_of_results_is_empty_and_says_so_until_somebody_runs_it():
    page = (RESULTS / "live.md").read_text(encoding="utf-8")
    ran = (RESULTS / "live.json").exists()
    assert (page == empty_page() and EMPTY in page) is not ran


@pytest.mark.parametrize(
    ("given", "key", "told"),
    [
        (["--model", "openai:gpt-5-mini", "--data", "."], "", "OPENAI_API_KEY is not set"),
        (["--model", "gpt-5-mini"], "x", "`gpt-5-mini` is not a model"),
        (["--model", "openai/nobody-knows-me", "--data", "."], "x", "a cap needs one"),
        (["--model", "openai/gpt-5-mini"], "x", "no data: --data is not given"),
        (["--model", "openai/gpt-5-mini", "--data", "."], "x", "has none of gsm8k, bbh, ifeval"),
        (["--model", "openai/gpt-5-mini", "--price", "1"], "x", "`1` is no price"),
        (["--model", "openai/gpt-5-mini", "--price", "nan,1"], "x", "`nan,1` is no price"),
        (["--model", "local/smollm2"], "x", "is no model behind HTTP"),
    ],
)
def test_what_is_missing_is_told_before_anything_is_spent(
    given: list[str],
    key: str,
    told: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("OPENAI_API_KEY", key)
    monkeypatch.setattr(sys, "argv", ["bench.live", "--usd", "5", *given])
    with pytest.raises(SystemExit) as ended:
        command.main()
    shown = capsys.readouterr().err
    assert ended.value.code == 2 and told in shown and "hint: " in shown
    assert json.dumps([*tmp_path.iterdir()]) == "[]"


@pytest.mark.parametrize(
    ("flag", "told"),
    [
        (["--usd", "nan"], "--usd is what may be spent: more than 0"),
        (["--usd", "inf"], "--usd is what may be spent: more than 0"),
        (["--rollouts", "0"], "--rollouts is 1 or more"),
        (["--max-tokens", "-1"], "--max-tokens is 1 or more"),
    ],
)
def test_a_cap_that_holds_nothing_back_is_refused(
    flag: list[str], told: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    given = ["bench.live", "--model", "openai/gpt-5-mini", "--usd", "5", *flag]
    monkeypatch.setenv("OPENAI_API_KEY", "")
    monkeypatch.setattr(sys, "argv", given)
    with pytest.raises(SystemExit) as ended:
        command.main()
    assert ended.value.code == 2 and told in capsys.readouterr().err


@pytest.mark.slow
def test_an_arm_that_fails_is_told_and_what_was_paid_for_is_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    words = ["--usd", "1", "--no-gepa", "--sets", "gsm8k", "--cases", "20", "--fresh", "5"]
    words += ["--data", str(write_data(tmp_path / "data")), "--keep", str(tmp_path / "live")]
    with ModelServer([], faults=lambda seen: Fault("status", 401, "no such key")) as server:
        monkeypatch.setenv("OPENAI_BASE_URL", server.v1)
        monkeypatch.setenv("OPENAI_API_KEY", "sk-test-test")
        monkeypatch.setattr(sys, "argv", ["bench.live", "--model", "openai/gpt-4o-mini", *words])
        with pytest.raises(SystemExit) as ended:
            command.main()
    shown = capsys.readouterr().err
    assert ended.value.code == 1
    assert "`kept` ended with 1" in shown and "401" in shown and "pays for nothing twice" in shown
