"""Models that propose in a call from Python."""

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import kept
from kept.testing.server import ModelServer, Seen

WISHES = ["brief", "kind", "cite", "steps", "limits", "json"]
CASES = [{"id": f"c{n}", "wish": WISHES[n % 6], "answer": f"secret-{n}"} for n in range(40)]


def evaluate(candidate: kept.Candidate, case: dict[str, str]) -> tuple[float, str]:
    found = case["wish"] in candidate.text.split()
    return float(found), f"looked for `{case['wish']}`"


def reply(seen: Seen) -> str:
    """One more wish with every request."""
    edit = {"op": "append", "path": "text", "target": "", "text": f" {WISHES[seen.number % 6]}"}
    said = {"why": "a wish", "cases": list[str](), "edits": [edit]}
    if "First the diagnosis" in seen.lines[0].text:
        said["diagnosis"] = [{"case": "c0", "cause": "a word is missing"}]
    return json.dumps(said)


@pytest.fixture
def server() -> Iterator[ModelServer]:
    with ModelServer(reply) as made:
        yield made


def block(server: ModelServer) -> dict[str, Any]:
    return {"provider": "openai_compatible", "model": "m", "base_url": server.v1, "cache": False}


@pytest.mark.parametrize("kind", ["edit", "reflect"])
def test_a_model_proposes_by_a_short_form(kind: str, server: ModelServer, tmp_path: Path):
    make = {"edit": kept.edit, "reflect": kept.reflect}[kind]
    result = kept.optimize(
        "Answer.",
        evaluate,
        CASES,
        proposers=[make(model=block(server), fields=["wish"])],
        bounds=(0, 1),
        budget=4,
        width=1,
        home=tmp_path,
    )
    assert result.improved
    assert {step.turn.proposer for step in result.state.history} >= {kind}
    asked = "\n".join(line.text for seen in server.log for line in seen.lines)
    # what evaluate told, and the field that was named; no other, which may hold the answer
    assert "looked for `" in asked
    assert '"wish"' in asked or "wish" in asked
    assert "secret-" not in asked


def test_several_models_take_turns(server: ModelServer, tmp_path: Path):
    writers = [kept.edit(block(server)), kept.edit(block(server), name="second", cases=2)]
    result = kept.optimize(
        "Answer.", evaluate, CASES, proposers=writers, bounds=(0, 1), budget=4, home=tmp_path
    )
    assert {step.turn.proposer for step in result.state.history} >= {"edit", "second"}


def test_the_model_of_the_environment_is_asked_where_none_is_named(
    monkeypatch: pytest.MonkeyPatch,
):
    monkeypatch.setenv("KEPT_MODEL", "ollama/m")
    assert kept.simplify().name == "simplify"
    monkeypatch.delenv("KEPT_MODEL")
    with pytest.raises(kept.SetupError, match=r"kept\.rewrite has no model"):
        kept.rewrite()


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"model": "gpt-5"}, "`model` of kept.edit: `gpt-5` is not a model"),
        ({"model": "opnai/m"}, "did you mean `openai`?"),
        ({"model": "openai/m"}, "OPENAI_API_KEY is not set"),
        ({"model": "ollama/m", "case": 3}, "kept.edit has no `case`"),
        ({"model": "ollama/m", "batch": 3}, "kept.edit has no `batch`"),
        ({"model": "ollama/m", "cases": "many"}, "`cases` of kept.edit: "),
        ({"model": "ollama/m", "prompt": "nowhere.md"}, "cannot read nowhere.md"),
        ({"model": {"provider": "ollama"}}, "`model.model` of kept.edit: "),
    ],
)
def test_a_slip_is_told_by_the_name_of_its_argument(
    arguments: dict[str, Any], words: str, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    with pytest.raises(kept.SetupError) as caught:
        kept.edit(**arguments)
    assert words in str(caught.value)


def test_the_bare_word_is_refused_for_it_would_be_a_text_to_try():
    with pytest.raises(kept.SetupError, match=r"write kept\.edit\(model="):
        kept.optimize("Answer.", evaluate, CASES, proposers=["edit"])


def test_money_is_limited_only_where_a_call_has_a_worst_case(server: ModelServer):
    def run(model: dict[str, Any]) -> None:
        kept.optimize(
            "Answer.",
            evaluate,
            CASES,
            proposers=[kept.edit(model)],
            budget=kept.Budget(max_iterations=1, max_usd=1),
            usd_per_rollout=0.0,
        )

    endless = {**block(server), "price": {"input": 1, "output": 1}}
    with pytest.raises(kept.SetupError, match="`max_usd` could not be kept"):
        run(endless)
    assert not server.log


def test_what_proposes_is_imported_at_its_use_only():
    code = "import sys, kept; print([m for m in sys.modules if m.startswith('kept.')])"
    told = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert told.stdout.strip() == "[]"


def test_a_function_that_makes_proposers_is_to_be_called():
    with pytest.raises(kept.SetupError, match=r"kept\.reflect makes a proposer"):
        kept.optimize("Answer.", evaluate, CASES, proposers=[kept.reflect])


def test_a_field_that_no_case_has_is_refused_before_anything_is_paid(server: ModelServer):
    with pytest.raises(kept.SetupError) as caught:
        kept.optimize(
            "Answer.", evaluate, CASES, proposers=[kept.edit(block(server), fields=["w"])]
        )
    assert "`edit` is to see `w`, which no train case has" in str(caught.value)
    assert "`wish`" in str(caught.value)
    assert not server.log


def test_a_result_says_why_nothing_was_judged(tmp_path: Path):
    said = {
        "why": "x",
        "cases": [],
        "edits": [{"op": "append", "path": "no.md", "target": "", "text": "x"}],
    }
    with ModelServer(lambda _: json.dumps(said)) as server:
        result = kept.optimize(
            "Answer.",
            evaluate,
            CASES,
            proposers=[kept.edit(block(server))],
            budget=2,
            home=tmp_path,
        )
    assert str(result).startswith("nothing was judged (")
    assert "no.md" in str(result).splitlines()[0]


def test_an_outage_is_told_with_how_to_go_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("kept.engine.stop.LONGEST", 0.0)

    def away(candidate: kept.Candidate, case: object) -> float:
        raise ConnectionError("nobody there")

    with pytest.raises(kept.RunError) as caught:
        kept.optimize("Answer.", away, CASES, proposers=["x"], home=tmp_path, workers=2)
    assert str(caught.value).startswith("nothing answers: ")
    assert "once it answers, resume='" in str(caught.value)


def test_advice_on_repeated_proposals_fits_who_proposes(tmp_path: Path):
    """`kept.edit` has no `brief` to draw by."""
    edit = {"op": "append", "path": "/text", "target": "", "text": " useless"}
    said = json.dumps({"why": "x", "cases": [], "edits": [edit]})
    with ModelServer(lambda _: said) as server:
        result = kept.optimize(
            "Answer.",
            evaluate,
            CASES,
            proposers=[kept.edit(block(server))],
            budget=6,
            width=1,
            home=tmp_path,
        )
    words = next(one for one in result.warnings if "had been made before" in one)
    assert "show the model more train cases (`cases=`)" in words
    assert "brief.seed" not in words
