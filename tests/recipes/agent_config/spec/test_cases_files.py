"""Cases beside an agent.yaml: YAML and JSON, one bad row and many, names."""

import json
import time
from pathlib import Path

import pytest

from kept.errors import SpecError
from kept.recipes.agent_config.spec.cases import TestCaseSpec, metrics_of
from kept.recipes.agent_config.spec.read import read_agent
from kept.spec.paths import near_file
from tests.recipes.agent_config.spec.agents import FINANCE, write

HEAD = """\
name: x
model: {provider: local, name: smollm2}
instructions: {inline: Answer.}
evaluations: {metrics: [{metric: equality}]}
"""


@pytest.fixture(autouse=True)
def _elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "home").mkdir()
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.chdir(tmp_path)


def cases_of(folder: Path, text: str, name: str = "cases.yaml") -> tuple[TestCaseSpec, ...]:
    path = write(folder, {"agent.yaml": f"{HEAD}test_cases_file: {name}\n", name: text})
    return read_agent(path).cases


def problems(folder: Path, text: str, name: str = "cases.yaml") -> list[str]:
    with pytest.raises(SpecError) as caught:
        cases_of(folder, text, name)
    return [str(found) for found in caught.value.problems]


ROWS = [{"name": "a", "input": "1?"}, {"input": "2?"}, {"turns": [{"input": "x"}, {"input": "y"}]}]


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("cases.yaml", "- {name: a, input: 1?}\n- input: 2?\n- turns: [{input: x}, {input: y}]\n"),
        (
            "cases.yml",
            "test_cases:\n- {name: a, input: 1?}\n- input: 2?\n- turns: [{input: x}, {input: y}]\n",
        ),
        ("cases.json", json.dumps(ROWS)),
        ("data/cases.json", json.dumps({"test_cases": ROWS}, indent=2)),
    ],
)
def test_cases_are_read_from_lists_and_mappings_of_yaml_and_json(
    tmp_path: Path, name: str, text: str
):
    cases = cases_of(tmp_path, text, name)
    assert [case.name for case in cases] == ["a", "case-2", "case-3"]
    assert [[turn.input for turn in case.exchanges] for case in cases] == [
        ["1?"],
        ["2?"],
        ["x", "y"],
    ]


def test_an_unnamed_case_never_takes_the_name_of_another(tmp_path: Path):
    cases = cases_of(tmp_path, "- {input: x}\n- {name: case-1, input: y}\n")
    assert [case.name for case in cases] == ["case-1'", "case-1"]


def test_each_bad_row_is_told_with_its_line_and_its_place(tmp_path: Path):
    text = "- {name: a, input: x}\n- {nam: b, input: y}\n- input: z\n- {name: d}\n- {input: 7}\n"
    assert problems(tmp_path, text) == [
        "cases.yaml:2 test_cases[1].nam: unknown key (hint: did you mean `name`?)",
        "cases.yaml:4 test_cases[3]: give `input`, or `turns`",
        "cases.yaml:5 test_cases[4].input: the number 7, where a text was expected",
    ]


def test_a_bad_row_of_json_is_told_with_its_line_too(tmp_path: Path):
    text = '[\n  {"input": "x"},\n  {\n    "input": "y",\n    "files": 3\n  }\n]\n'
    assert problems(tmp_path, text, "cases.json") == [
        "cases.json:5 test_cases[1].files: the number 3, where a list was expected"
    ]


def test_json_that_is_no_yaml_is_read_all_the_same(tmp_path: Path):
    (case,) = cases_of(tmp_path, '[{"input": "\\ud83d\\ude00"}]', "cases.json")
    assert case.input == "\U0001f600"


@pytest.mark.parametrize(
    ("name", "text", "told"),
    [
        ("cases.yaml", "- {input: x\n", "cases.yaml:2 not YAML: while parsing a flow mapping"),
        ("cases.json", '[\n{"input": }]', "cases.json:2 not JSON: Expecting value"),
        (
            "cases.yaml",
            "hello\n",
            "agent.yaml:5 test_cases_file: `cases.yaml` is the text `hello`, not a list of cases",
        ),
        ("cases.yaml", "cases: []\n", "cases.yaml:1 cases: unknown key"),
        ("cases.yaml", "[]\n", "agent.yaml:5 test_cases_file: `cases.yaml` holds no cases"),
        ("cases.yaml", "", "agent.yaml:5 test_cases_file: `cases.yaml` holds no cases"),
        (
            "cases.yaml",
            "- {name: a, input: x}\n- {name: b, input: x}\n- {name: a, input: y}\n",
            "cases.yaml:3 test_cases[2].name: the name `a` stands twice, first in cases.yaml:1",
        ),
        (
            "cases.yaml",
            "- {input: x, files: [{path: a.csv, type: csv}]}\n",
            "cases.yaml:1 test_cases[0].files[0].path: there is no file `a.csv`",
        ),
        (
            "cases.yaml",
            "- turns: [{input: x}, {input: y, files: [{path: a.csv, type: csv}]}]\n",
            "cases.yaml:1 test_cases[0].turns[1].files[0].path: there is no file `a.csv`",
        ),
        (
            "cases.yaml",
            "- turns: []\n",
            "cases.yaml:1 test_cases[0].turns: empty, where at least one was expected",
        ),
        (
            "cases.yaml",
            "- input: x\n  input: y\n",
            "cases.yaml:2 test_cases[0].input: the key stands twice, first in line 1",
        ),
        (
            "cases.yaml",
            "- input: ${NO_SUCH_NAME}\n",
            "cases.yaml:1 test_cases[0].input: the variable `NO_SUCH_NAME` is not set",
        ),
    ],
)
def test_what_is_wrong_with_a_file_as_a_whole_is_told(
    tmp_path: Path, name: str, text: str, told: str
):
    found = problems(tmp_path, text, name)
    assert found[-1].startswith(told), found
    assert len(found) == (2 if "cases: []" in text else 1)


def test_a_file_that_is_not_there_is_told_with_the_one_that_may_be_meant(tmp_path: Path):
    path = write(
        tmp_path, {"agent.yaml": f"{HEAD}test_cases_file: case.yaml\n", "cases.yaml": "[]"}
    )
    with pytest.raises(SpecError) as caught:
        read_agent(path)
    assert str(caught.value) == (
        "agent.yaml:5 test_cases_file: cannot read `case.yaml`: No such file or directory"
        " (hint: did you mean `cases.yaml`?)"
    )


def test_problems_of_the_agent_and_of_its_cases_are_told_together(tmp_path: Path):
    files = {
        "agent.yaml": f"{HEAD}test_cases_file: cases.yaml\nx: 1\n",
        "cases.yaml": "- {input: 1}\n",
    }
    with pytest.raises(SpecError) as caught:
        read_agent(write(tmp_path, files))
    assert [problem.path for problem in caught.value.problems] == ["x", "test_cases[0].input"]


def test_paths_of_files_in_cases_begin_at_the_agent(tmp_path: Path):
    (tmp_path / "table.csv").write_text("a,b\n")
    (case,) = cases_of(
        tmp_path, "- {input: x, files: [{path: table.csv, type: csv}]}\n", "data/cases.yaml"
    )
    assert case.files[0].path == "table.csv"


def test_turns_have_their_own_config_tools_and_metrics(tmp_path: Path):
    read = read_agent(write(tmp_path, FINANCE))
    first, second = read.cases
    assert [turn.turn_config and turn.turn_config["turn_program"] for turn in first.exchanges] == [
        "206588",
        "subtract(206588, 181001)",
        "subtract(206588, 181001), divide(#0, 181001)",
    ]
    subtract = next(iter(first.exchanges[1].expected_tools or ()))
    assert (subtract.args["a"].kind, subtract.args["a"].value) == ("literal", 206588)
    assert (subtract.args["b"].kind, subtract.args["b"].value) == ("fuzzy", "181,001")
    divide = next(iter(first.exchanges[2].expected_tools or ()))
    assert (divide.args["a"].kind, divide.match, divide.count) == ("regex", "exact", 1)
    agent = read.agent.spec.metrics
    keys = [[metric.key for metric in metrics_of(agent, first, turn)] for turn in first.exchanges]
    assert keys == [["numeric", "same_program"], ["numeric", "same_program"], ["numeric"]]
    assert [m.key for m in metrics_of(agent, second, second.exchanges[0])] == ["equality"]
    assert second.name == "case-2"


def test_five_hundred_cases_are_read_in_a_moment(tmp_path: Path):
    text = "".join(
        f"- name: c{n}\n  input: what is {n} over the year, in percent of the total?\n"
        f"  ground_truth: '{n}.5'\n  expected_tools: [{{name: add, args: {{a: {n}, b: 2}}}}, add]\n"
        for n in range(500)
    )
    began = time.process_time()
    assert len(cases_of(tmp_path, text)) == 500
    # 0.2 s here; libyaml left out, it is 1.5 s
    assert time.process_time() - began < 1.0


def test_a_file_that_is_alike_in_its_ending_alone_is_not_meant(tmp_path: Path):
    (tmp_path / "agent.yaml").touch()
    assert near_file(tmp_path / "no.yaml") is None
    assert near_file(tmp_path / "agents.yml") == "did you mean `agent.yaml`?"
