"""What a report says of how a run was scored."""

import asyncio
from pathlib import Path

import pytest

from kept.recipes.task.compile import compile_task
from kept.results.summary import Scoring, scorer_words, scoring_functions
from kept.run import start
from kept.store.home import Home
from kept.store.reader import Run
from kept.ui.report.markdown import markdown
from tests.recipes.task.tasks import TASK, write_task

PYTHON = {"type": "python", "function": "graders:distinct"}
RULES = {"type": "rules", "rules": [{"kind": "lacks"}, {"kind": "tokens"}, {"kind": "lacks"}]}
BOTH = {
    "type": "composite",
    "parts": [{"name": "words", "scorer": PYTHON}, {"name": "style", "scorer": RULES}],
}


@pytest.mark.parametrize(
    ("fact", "words", "functions"),
    [
        ({"command": "sh score.sh"}, "`sh score.sh`", []),
        (PYTHON, "the Python function `graders:distinct`", ["graders:distinct"]),
        (RULES, "rules: lacks, tokens", []),
        (
            BOTH,
            "a weighted mean of words (the Python function `graders:distinct`), "
            "style (rules: lacks, tokens)",
            ["graders:distinct"],
        ),
        ({}, "", []),
        ({"type": "unheard of"}, "", []),
    ],
)
def test_a_scorer_in_words(fact: Scoring, words: str, functions: list[str]):
    assert scorer_words(fact) == words
    assert list(scoring_functions(fact)) == functions


@pytest.mark.slow
def test_a_report_says_that_a_function_scored_and_that_it_has_no_walls(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("JUDGE_KEY", "7")
    scorer = "scorer: {type: python, function: 'graders:key'}"
    text = TASK.replace('scorer: {command: "true"}', scorer) + "sandbox: {env: [JUDGE_KEY]}\n"
    task = write_task(tmp_path, text)
    # at import, too, as clients of models do it
    (tmp_path / "graders.py").write_text(
        "import os\nKEY = os.environ['JUDGE_KEY']\ndef key(output): return int(KEY)\n"
    )
    folder, state = asyncio.run(start(compile_task(task).plan, Home(tmp_path / ".kept")))
    assert state.history[0].verdict.numbers["incumbent"] == 7
    run = Run(folder)
    page = markdown(run)
    run.close()
    assert "| scorer | the Python function `graders:key` |" in page
    assert "No walls are round the Python function that scores, `graders:key`" in page
