"""Evaluators in Python: the text they are given, and bugs of theirs that end a run at once."""

import os
import re
import subprocess
import sys
from dataclasses import dataclass
from email.message import Message
from importlib import import_module
from io import BytesIO, TextIOWrapper
from pathlib import Path
from typing import Any
from urllib.error import HTTPError

import pytest

import kept

CASES = [{"q": n} for n in range(30)]


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def longer(brief: kept.Brief) -> str:
    return brief.incumbent.text + "!"


def code(brief: kept.Brief) -> str:
    return "x = 1"


def optimize(evaluate: Any, artifact: Any = "be brief", **given: Any) -> kept.Result:
    given = {"proposers": [longer], "budget": 1, **given}
    return kept.optimize(artifact, evaluate, CASES, **given)


def test_a_candidate_with_one_text_prints_as_that_text():
    candidate = kept.Candidate({"text": "be brief"})
    assert f"{candidate}\n\n{candidate:>10}" == "be brief\n\n  be brief"
    assert str(candidate) == "be brief"


def test_a_candidate_with_several_texts_does_not_print_and_names_them():
    candidate = kept.Candidate({"a": "x", "b": "y"})
    for printed in (str, format):
        with pytest.raises(ValueError, match=re.escape("2 texts (a, b): name one")):
            printed(candidate)


def test_a_function_that_takes_a_str_is_given_the_text():
    seen: set[type] = set()

    def evaluate(prompt: str, case: object) -> float:
        seen.add(type(prompt))
        return float(len(prompt))

    def quoted(prompt: "str", case: object) -> float:
        seen.add(type(prompt))
        return 1.0

    optimize(evaluate)
    optimize(quoted)
    assert seen == {str}


def test_a_function_that_takes_a_str_is_refused_where_there_are_several_texts():
    def evaluate(prompt: str, case: object) -> float:
        return 1.0

    with pytest.raises(kept.SetupError, match="takes a `str`, and the artifact has several texts"):
        optimize(evaluate, {"a": "x", "b": "y"}, proposers=[longer])


def adds_a_number(candidate: Any, case: object) -> float:
    return candidate + 1


def reads_no_number(candidate: Any, case: object) -> float:
    return float("n/a")


def prints_two_texts(candidate: Any, case: object) -> float:
    return float(len(f"{candidate}"))


def asks_for_nothing(candidate: Any, case: object) -> float:
    raise HTTPError("http://127.0.0.1:1/v1/nothing", 404, "Not Found", Message(), None)


def needs_a_variable(candidate: Any, case: object) -> float:
    return len(os.environ["KEPT_TESTS_NO_SUCH_KEY"])  # noqa: TID251 # a function of a user


def imports_by_name(candidate: Any, case: object) -> float:
    return import_module("no_such_module_at_all").score(candidate)


def decodes(candidate: Any, case: object) -> float:
    with TextIOWrapper(BytesIO(b"\xff"), encoding="utf-8") as file:
        return len(file.read())


@dataclass
class Sample:
    text: str

    def __post_init__(self) -> None:
        raise LookupError("no such sample")


def makes_a_dataclass(candidate: Any, case: object) -> float:
    return len(Sample("x").text)


_TYPED_IN: dict[str, Any] = {}
exec(compile("def typed_in(candidate, case):\n    return [][1]", "<stdin>", "exec"), _TYPED_IN)


def leaves(candidate: Any, case: object) -> float:
    raise SystemExit("usage: evaluate FILE")


@pytest.mark.parametrize(
    ("function", "told"),
    [
        (adds_a_number, "TypeError: unsupported operand"),
        (reads_no_number, "ValueError: could not convert string to float: 'n/a'"),
        (prints_two_texts, "ValueError: the candidate has 2 texts (a, b): name one"),
        (asks_for_nothing, "HTTPError: HTTP Error 404: Not Found"),
        (needs_a_variable, "KeyError: 'KEPT_TESTS_NO_SUCH_KEY'"),
        (imports_by_name, "ModuleNotFoundError: No module named 'no_such_module_at_all'"),
        (decodes, "UnicodeDecodeError: 'utf-8' codec can't decode byte 0xff"),
        (makes_a_dataclass, "LookupError: no such sample"),
        (_TYPED_IN["typed_in"], "IndexError: list index out of range"),
        (leaves, "SystemExit: usage: evaluate FILE"),
    ],
)
def test_a_function_that_raises_on_every_case_of_the_seed_ends_the_run_at_once(
    function: Any, told: str
):
    calls: list[object] = []

    def evaluate(candidate: kept.Candidate, case: object) -> float:
        calls.append(case)
        return function(candidate, case)

    def longer_by_one(brief: kept.Brief) -> dict[str, str]:
        return {"a": brief.incumbent.texts["a"] + "!"}

    with pytest.raises(kept.RunError) as caught:
        optimize(evaluate, {"a": "x", "b": "y"}, proposers=[longer_by_one], budget=20)
    message = str(caught.value)
    assert "`evaluate` raised in every rollout of the seed (" in message
    assert "on the case `0" in message
    assert told in message
    assert "test_api_evaluate.py:" in message
    assert len(calls) <= 2 * len(CASES)


def test_a_function_that_raises_on_some_cases_ends_no_run():
    def evaluate(candidate: kept.Candidate, case: dict[str, int]) -> float:
        if case["q"] % 2:
            raise KeyError("odd")
        return 1.0

    assert optimize(evaluate, bounds=(0, 1)).best_value is not None


@pytest.mark.parametrize("fails", ["exec", "program", "check", "returned"])
def test_a_seed_that_is_at_fault_itself_may_still_be_repaired(fails: str):
    def evaluate(candidate: kept.Candidate, case: object) -> float | kept.Failure:
        if fails == "exec":
            exec(candidate.text, {})  # the artifact is code
        elif fails == "program":
            subprocess.run([sys.executable, "-c", candidate.text], check=True, capture_output=True)
        elif fails == "check":
            assert candidate.text != "broken"
        elif candidate.text == "broken":
            return kept.Failure("crash", "candidate", "broken")
        return 1.0

    seed = "1 / 0" if fails in ("exec", "program") else "broken"
    result = optimize(evaluate, seed, proposers=[code], budget=2)
    assert result.best.text == "x = 1"
