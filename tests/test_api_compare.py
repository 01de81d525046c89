"""`kept.compare` says whether a text is better, for programs."""

import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

import kept
from kept.ui.cli.main import cli
from tests.test_public_api import UNUSED

CASES = [{"id": f"c{n}", "n": n} for n in range(24)]
A, B = "plain", "good"


def passes(candidate: kept.Candidate, case: dict[str, Any]) -> float:
    """A third of the cases pass; `good` has another third pass, and `bad` none."""
    text, n = candidate.text, case["n"]
    return float((n % 3 == 0 and "bad" not in text) or (n % 3 == 1 and "good" in text))


def compare(home: Path, b: Any = B, evaluate: Any = passes, **more: Any) -> kept.Compared:
    given: dict[str, Any] = {"cases": CASES, "bounds": (0, 1), **more}
    return kept.compare(A, b, evaluate, home=home, **given)


def test_what_is_better_is_said_to_be_with_its_interval(tmp_path: Path):
    compared = compare(tmp_path)
    (answer,) = compared.answers
    assert (answer.answer, compared.better) == ("better", True)
    assert (answer.seed_value, answer.value) == (pytest.approx(1 / 3), pytest.approx(2 / 3))
    assert answer.difference == pytest.approx(1 / 3)
    assert answer.low is not None
    assert answer.high is not None
    assert 0 < answer.low < 1 / 3 < answer.high < 1
    assert compared.spend.rollouts <= 2 * 2 * len(CASES), "values do not vary"
    assert str(compared).startswith("B is better than A for cases like these: +0.333 (+")
    assert str(compared).endswith(f"run {compared.folder}")


def test_each_challenger_has_an_answer_of_its_own_and_less_may_be_better(tmp_path: Path):
    def misses(candidate: kept.Candidate, case: dict[str, Any]) -> float:
        return 1 - passes(candidate, case)

    compared = compare(
        tmp_path, ["good", "bad", "plain too"], misses, direction="minimize", least=0.2
    )
    answers = [(one.label, one.answer, one.difference) for one in compared.answers]
    assert answers == [
        ("B", "better", pytest.approx(-1 / 3)),
        ("C", "worse", pytest.approx(1 / 3)),
        ("D", "not better", pytest.approx(0)),
    ]
    assert "D is not better than A by more than 0.2 for cases like these" in str(compared)


def test_that_it_cannot_tell_is_an_answer_too(tmp_path: Path):
    def one_more(candidate: kept.Candidate, case: dict[str, Any]) -> float:
        return float(case["n"] % 3 == 0 or (case["n"] == 1 and "good" in candidate.text))

    compared = compare(tmp_path, evaluate=one_more)
    (answer,) = compared.answers
    assert (answer.answer, compared.better) == ("cannot tell", False)
    assert answer.low is not None
    assert answer.high is not None
    assert answer.low < 0 < answer.high
    assert "Cannot tell with these 24 cases whether B is better than A" in str(compared)


def test_passes_are_not_offered_where_answers_do_not_vary(tmp_path: Path):
    gains = {3: 0.1, 11: 0.1, 17: 0.2, 23: 0.1}

    def slightly(candidate: kept.Candidate, case: int) -> float:
        return 0.5 + (gains.get(case, 0.0) if "good" in candidate.text else 0.0)

    said = str(compare(tmp_path, evaluate=slightly, cases=range(30)))
    assert "it would take about 29 more cases (118 rollouts in all) to find" in said
    assert "Answers do not vary, so repeats would show nothing." in said
    assert "passes over these" not in said


def test_that_every_rollout_crashed_is_an_answer_too(tmp_path: Path):
    def crashes(candidate: kept.Candidate, case: dict[str, Any]) -> float:
        if "good" in candidate.text:
            raise ValueError("no")
        return passes(candidate, case)

    (answer,) = compare(tmp_path, evaluate=crashes).answers
    assert (answer.answer, answer.crashed) == ("failed", True)


def test_files_are_called_by_their_names_and_stand_for_each_other(tmp_path: Path):
    for name, text in (("prompt.md", A), ("new.md", B)):
        (tmp_path / name).write_text(text)
    new = tmp_path / "new.md"
    compared = kept.compare(
        tmp_path / "prompt.md", new, passes, CASES, bounds=(0, 1), home=tmp_path / "home"
    )
    (answer,) = compared.answers
    assert (answer.label, answer.answer) == (str(new), "better")
    assert (tmp_path / "prompt.md").read_text() == A, "a comparison changes nothing"


def test_it_is_a_run_like_any_other(tmp_path: Path):
    compared = compare(tmp_path)
    with kept.read_run(compared.folder) as run:
        assert run.status == "finished"
    shown = CliRunner().invoke(cli, ["report", str(compared.folder)])
    assert shown.exit_code == 0, shown.output
    assert "B is better than A" in shown.stdout
    again = CliRunner().invoke(cli, ["resume", str(compared.folder)])
    assert again.exit_code == 2
    assert f'call kept.compare(..., resume="{compared.run}") there' in again.stderr
    calls: list[object] = []

    def sit(resume: str | None = None) -> kept.Compared:
        def evaluate(candidate: kept.Candidate, case: dict[str, Any]) -> float:
            calls.append(case)
            return passes(candidate, case)

        limit = kept.Budget(max_rollouts=96, max_minutes=1 if resume else 1e-9)
        return compare(tmp_path / "cut", evaluate=evaluate, budget=limit, resume=resume)

    cut = sit()
    assert (cut.answers[0].answer, cut.stopped.kind) == ("open", "minutes")
    page = CliRunner().invoke(cli, ["report", str(cut.folder)]).stdout
    assert "`kept.compare(..., budget=kept.Budget(max_minutes=2e-09), resume=" in page
    whole = sit("last")
    assert whole.run == cut.run
    assert whole.answers[0].answer == "better"
    assert len(calls) == whole.spend.rollouts


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"b": A}, "`A` and `B` are the same text: nothing to compare"),
        ({"b": []}, "there is nothing to compare with: `b` is empty"),
        ({"b": {"prompt.md": "x"}}, "`A` and `B` are not the same files"),
        ({"b": 3}, "`b` is 3, not a text"),
        ({"b": [B, "bad", 3]}, r"`b\[2\]` is 3, not a text"),
        ({"cases": None}, "a comparison needs `cases`"),
        ({"cases": CASES[:5]}, "5 cases cannot show anything for others like them"),
        ({"budget": 5}, "`budget` is 5, not a kept.Budget: a comparison has no steps"),
        (
            {"budget": kept.Budget(max_iterations=5)},
            "`budget` has `max_iterations`: a comparison has no steps",
        ),
        (
            {"budget": kept.Budget(max_rollouts=99, max_failures=2)},
            "`budget` has `max_failures`: a comparison has no steps",
        ),
        ({"budget": kept.Budget(max_usd=1)}, "a money budget needs to know what one evaluation"),
        (
            {"budget": kept.Budget(max_rollouts=40)},
            "room for 40 rollouts, and one .* takes 48",
        ),
        ({"least": 0}, "`least` is 0, not a gain"),
        ({"least": float("inf")}, "`least` is inf, not a gain"),
        ({"passes": 0.5}, "`passes` is 0.5, not a whole number"),
        ({"evaluate": lambda: 1.0}, r"`evaluate` takes \(\), not a candidate and a case"),
    ],
)
def test_what_cannot_be_compared_is_refused_before_anything_runs(
    tmp_path: Path, given: dict[str, Any], message: str
):
    with pytest.raises(kept.SetupError, match=message):
        compare(tmp_path, **given)
    assert not (tmp_path / "runs").exists()


def test_a_budget_that_is_too_small_says_in_python_how_to_give_more(tmp_path: Path):
    with pytest.raises(kept.SetupError) as told:
        compare(tmp_path, budget=kept.Budget(max_rollouts=40))
    assert told.value.hint == "give kept.Budget(max_rollouts=48) or more"


def test_a_challenger_that_was_written_for_the_cases_is_warned_of(tmp_path: Path):
    text = "where is the parcel that was sent a week ago from the old harbour of Bremen"
    cases = [{"id": f"c{n}", "n": n, "q": f"{text} {n}"} for n in range(24)]
    compared = compare(tmp_path, f"good: {text} 3", cases=cases)
    assert any(words.startswith("`B`: ") for words in compared.warnings), compared.warnings


@dataclass
class Question:
    """A case that is no JSON."""

    n: int


def tagged(n: int) -> dict[str, set[int]]:
    return {"tags": {n}}


@pytest.mark.parametrize("make", [Question, tagged])
def test_cases_that_are_no_json_are_not_called_copies_of_each_other(
    tmp_path: Path, make: Callable[[int], Any]
):
    def evaluate(candidate: kept.Candidate, case: Any) -> float:
        return passes(candidate, {"n": case.n if isinstance(case, Question) else min(case["tags"])})

    compared = compare(tmp_path, evaluate=evaluate, cases=[make(n) for n in range(24)])
    assert compared.answers[0].answer == "better"
    assert compared.warnings == ()


def test_copies_among_the_cases_are_told_before_anything_is_paid_for(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
):
    told_first: list[list[str]] = []

    def evaluate(candidate: kept.Candidate, case: int) -> float:
        told_first.append(list(caplog.messages))
        return passes(candidate, {"n": case})

    compared = compare(tmp_path, evaluate=evaluate, cases=[7] * 12 + list(range(8, 20)))
    assert told_first[0] == [
        "11 cases are copies of others, and count as cases of their own: `0001` of `0000`; "
        "`0002` of `0000`; `0003` of `0000`; and 8 more"
    ]
    assert tuple(told_first[0]) == compared.warnings


def test_importing_it_loads_no_more_than_optimize_does(tmp_path: Path):
    script = (
        "import sys\nfrom kept import compare\n"
        f"print([name for name in {(*UNUSED, 'kept.gates.compare')!r} if name in sys.modules])\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], cwd=tmp_path, capture_output=True, text=True, check=True
    )
    assert done.stdout == "[]\n"


def test_last_is_the_last_of_its_sort(tmp_path: Path):
    def longest(candidate: kept.Candidate, case: str) -> float:
        return float(len(candidate.text))

    def go_on(resume: str | None) -> kept.Result:
        texts = ["aaa"] if resume is None else ["aaa", "aaaa"]
        return kept.optimize(
            *("a", longest, ["x", "y"]),
            proposers=texts,
            gate="strict",
            home=tmp_path,
            resume=resume,
        )

    first = go_on(None)
    compared = compare(tmp_path)
    assert compared.folder.parent == first.folder.parent
    assert go_on("last").run == first.run
    assert compare(tmp_path, resume="last").run == compared.run
