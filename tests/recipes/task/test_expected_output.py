"""What optimizers see of train cases: expected against got, and nothing of holdout or test."""

import json
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from kept.core.case import Case, Labels, assertion_texts, labels_of
from kept.recipes.task.compile import compile_task
from kept.testing.server import ModelServer, Seen
from tests.ui.cli.tasks import kept

ROWS = [
    {"id": f"q{n}", "question": f"Capital of land {n}?", "answer": f"City{n}x"} for n in range(20)
]


class Watching:
    """Answers the target with `Nowhere`, and keeps what optimizers were sent."""

    def __init__(self) -> None:
        self.optimizer: list[str] = []

    def __call__(self, seen: Seen) -> str:
        if "response_format" not in seen.body:
            return "Nowhere"
        self.optimizer.append("\n".join(line.text for line in seen.lines))
        wanted = seen.body["response_format"]["json_schema"]["schema"]["properties"]
        return json.dumps({name: "nothing" if name == "why" else [] for name in wanted})


@pytest.fixture
def watching(monkeypatch: pytest.MonkeyPatch) -> Iterator[Watching]:
    monkeypatch.setenv("KEY", "none")
    said = Watching()
    with ModelServer(said) as server:
        monkeypatch.setenv("OPENAI_BASE_URL", server.v1)
        monkeypatch.setenv("OPENAI_API_KEY", "none")
        yield said


def check_shown(watching: Watching, spec: Path, expected: str) -> None:
    """`expected`, with `{}` for the case's number, is shown of train cases alone."""
    cases = compile_task(spec).plan.cases
    told = "\n".join(watching.optimizer)
    numbers = {
        split: [case.id[1:] for case in cases.of(split)] for split in ("train", "holdout", "test")
    }
    shown = [n for n in numbers["train"] if f"expected: {expected.format(n)}\ngot: Nowhere" in told]
    assert len(shown) == len(numbers["train"]) > 0
    for n in (*numbers["holdout"], *numbers["test"]):
        assert f"City{n}x" not in told, f"case q{n} is not for optimizers"


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["edit", "reflect"])
def test_a_task_made_from_labelled_data_shows_what_was_expected(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, watching: Watching, kind: str
):
    monkeypatch.chdir(tmp_path)
    Path("rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in ROWS))
    made = kept("init", "--from", "rows.jsonl", "mine", "--model", "openai/gpt-5-mini")
    assert made.code == 0, made.stderr
    spec = tmp_path / "mine" / "task.yaml"
    text = spec.read_text()
    start, end = text.index("proposers:"), text.index("cases: {")
    spec.write_text(text[:start] + f"proposers: [{{kind: {kind}}}]\n" + text[end:])
    called = kept("optimize", "mine", "-q", "--set", "budget={max_iterations: 3}")
    assert called.code == 0, called.stderr
    check_shown(watching, spec, "City{}x")


@pytest.mark.slow
def test_assertions_of_promptfoo_show_the_word_that_is_missing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, watching: Watching
):
    monkeypatch.chdir(tmp_path)
    tests = [
        {
            "vars": {"question": row["question"]},
            "assert": [{"type": "icontains", "value": row["answer"]}],
        }
        for row in ROWS
    ]
    config = {"prompts": ["{{question}}"], "providers": ["openai:gpt-5-mini"], "tests": tests}
    Path("promptfooconfig.yaml").write_text(json.dumps(config))
    made = kept("init", "--from", "promptfooconfig.yaml", "mine")
    assert made.code == 0, made.stderr
    spec = tmp_path / "mine" / "task.yaml"
    rows = [json.loads(line) for line in Path("mine/cases.jsonl").read_text().splitlines()]
    for number, row in enumerate(rows):
        row["id"] = f"q{number}"
    Path("mine/cases.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    called = kept("optimize", "mine", "-q", "--set", "budget={max_iterations: 6}")
    assert called.code == 0, called.stderr
    check_shown(watching, spec, "icontains: City{}x")


@pytest.mark.slow
@pytest.mark.sandbox
def test_the_scorer_of_a_new_task_shows_what_was_expected(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, watching: Watching
):
    monkeypatch.chdir(tmp_path)
    assert kept("init", "prompt", "mine").code == 0
    spec = tmp_path / "mine" / "task.yaml"
    text = spec.read_text()
    start, end = text.index("proposers:"), text.index("cases:")
    writing = "models: {optimizer: openai/gpt-5-mini}\nproposers: [{kind: edit}]\n"
    spec.write_text(text[:start] + writing + text[end:])
    called = kept("optimize", "mine", "-q", "--set", "budget={max_iterations: 3}")
    assert called.code == 0, called.stderr
    told = "\n".join(watching.optimizer)
    (*failed,) = re.findall(r"^expected: (\w+)\nfinding: `\w+`, where `\1` was right$", told, re.M)
    assert failed, told


def test_labels_are_found_by_the_names_of_fields():
    from kept.core.case import Cases

    cases = Cases(holdout=(Case("a", {"id": "a", "Text": "hi", "Label": "ham", "assert": []}),))
    labels = labels_of(cases)
    assert labels == Labels(expected="Label")
    assert labels.expected_of(cases.holdout[0]) == "ham"
    assert labels.input_of(Case("a", {"id": "a", "Text": "hi", "Label": "ham"})) == "hi"
    assert labels_of(cases, ("Label",)).expected == "", "what the runner is given is no answer"
    assert labels_of(Cases(holdout=(Case("a", "text"),))).expected_of(Case("a", "text")) == ""


def test_assertions_are_told_with_their_values():
    inner = [{"type": "not-contains", "value": "sorry"}, {"type": "is-json"}]
    rows = [
        {"type": "assert-set", "assert": inner},
        {"type": "levenshtein", "value": "a", "threshold": 3},
    ]
    assert [*assertion_texts(rows)] == [
        "not-contains: sorry",
        "is-json",
        "levenshtein (threshold 3): a",
    ]
