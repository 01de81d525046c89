"""What the axes of an agent stand for, and what their edits make of its files."""
# ruff: noqa: E501 # a row of a table reads better than it wraps

import random
import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from kept.core.artifact import Artifact, Candidate, Rules
from kept.core.edit import Edit, apply_edits
from kept.errors import SpecError
from kept.proposers.numeric.space import Choices, Numbers, Point, Space
from kept.proposers.text_units import TextAxis
from kept.recipes.agent_config import search_space
from kept.recipes.agent_config.search_space import Axes
from kept.recipes.agent_config.spec.optimizer import (
    optimizer_of,
    optimizer_warnings,
    starter_block,
    suggest_axes,
)
from kept.recipes.agent_config.spec.read import ParsedAgent, ReadAgent, parse_agent, read_agent
from kept.recipes.agent_config.spec.tools import HierarchicalDocumentToolSpec
from kept.recipes.agent_config.tunable import Found, look
from kept.recipes.agent_config.tune import phases_of
from kept.spec.locate.tree import Part, parse_path
from tests.recipes.agent_config.spec.optimizers import agent_with, read_optimizer, write_optimized

FILE_HEAD = """\
# the desk of the bank
name: desk
model:
  provider: openai
  name: gpt-5-mini  # cheap
  api_key: ${DESK_KEY}
instructions:
  file: ./prompts/desk.md
tools:
- name: books
  type: hierarchical_document
  description: >
    Finds rules
    in books.
  source: docs
- name: sum_up
  type: prompt
  description: Sums up.
  file: prompts/sum.md
  parameters: {text: {type: string, description: what to sum up}}
response_format:
  type: object
  properties:
    answer:
      type: string
      description: one word
"""
PROMPTS = {
    "prompts__desk_dot_md": "---\nversion: '3'\n---\nAnswer in one word.\n",
    "prompts__sum_dot_md": "Sum up: {{text}}\n",
}
INLINE_HEAD = FILE_HEAD.replace(
    "  file: ./prompts/desk.md\n", "  inline: |\n    Answer in one word.\n    Be kind.\n"
)


@pytest.fixture(autouse=True)
def _elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.setenv("DESK_KEY", "key-that-nobody-may-see")
    monkeypatch.chdir(tmp_path)


def agent_of(folder: Path, axes: str, *overrides: str, head: str = FILE_HEAD) -> ReadAgent:
    block = f"loss: {{equality: 1}}\naxes: {axes}\n"
    return read_agent(write_optimized(folder, block, head=head, **PROMPTS), overrides)


def axes_of(read: ReadAgent) -> Axes:
    found = search_space.axes_of(read, read_optimizer(read).axes)
    read.source.check()
    return found


def numeric(folder: Path, *rows: str, head: str = FILE_HEAD) -> tuple[ReadAgent, Space, Point]:
    read = agent_of(folder, f"{{numeric: [{', '.join(rows)}]}}", head=head)
    axes = axes_of(read)
    assert axes.numeric is not None
    return read, axes.numeric, axes.start


def texts_after(read: ReadAgent, edits: tuple[Edit, ...]) -> dict[str, str]:
    texts = read.agent.texts
    rules = Rules({name: Artifact(name) for name in texts})
    made = apply_edits(Candidate(texts), edits, rules, axes_of(read).locate)
    assert {report.fate for report in made.reports} <= {"applied", "no change"}
    return dict(made.candidate.texts)


def agent_after(read: ReadAgent, edits: tuple[Edit, ...]) -> ParsedAgent:
    agent = parse_agent(read.place, texts_after(read, edits))
    assert isinstance(agent, ParsedAgent), agent
    return agent


def told(folder: Path, axes: str, *overrides: str, head: str = FILE_HEAD) -> list[str]:
    with pytest.raises(SpecError) as caught:
        axes_of(agent_of(folder, axes, *overrides, head=head))
    return [str(problem) for problem in caught.value.problems]


def test_values_have_the_type_of_what_they_stand_for(tmp_path: Path):
    _, space, start = numeric(
        tmp_path,
        "{path: model.temperature, range: [0, 1]}",
        "{path: model.max_tokens, range: [100, 2000]}",
        '{path: "tools[name=books].top_k", range: [3, 20]}',
        '{path: "tools[0].rrf_k", range: [10, 100], step: 10}',
        "{path: openai.max_turns, range: [1, 30]}",
        "{path: model.name, choices: [gpt-5, gpt-5-mini]}",
        '{path: "tools[name=books].search_mode", type: categorical, range: [keyword, hybrid]}',
        '{path: "tools[name=books].min_score", range: [0, 0.5]}',
    )
    kinds = [a.domain.whole if isinstance(a.domain, Numbers) else None for a in space.axes]
    assert kinds == [False, True, True, True, True, None, None, False]
    assert start == (0.3, 1000, 10, 60, 20, "gpt-5-mini", "hybrid", 0.0)
    assert space.axes[5].domain == Choices(("gpt-5", "gpt-5-mini"))


def test_every_point_of_a_space_is_an_agent_and_comes_to_it(tmp_path: Path):
    read, space, _ = numeric(
        tmp_path,
        "{path: model.temperature, range: [0, 2]}",
        "{path: model.top_p, range: [0.5, 1]}",
        '{path: "tools[name=books].semantic_weight", range: [0, 1]}',
        '{path: "tools[name=books].top_k", range: [1, 100], log: true}',
        "{path: openai.max_turns, range: [1, 30]}",
    )
    chance = random.Random(3)
    for _ in range(25):
        point = space.draw(chance)
        agent = agent_after(read, space.edits(point))
        got = [look(agent.spec, _parts(axis.path)) for axis in space.axes]
        assert tuple(found.value for found in got if isinstance(found, Found)) == point
        assert space.read(agent.texts) == point


def _parts(path: str) -> tuple[Part, ...]:
    parts = parse_path(path)
    assert not isinstance(parts, str)
    return parts


def test_a_weight_carries_the_others_along_in_their_shares(tmp_path: Path):
    read, space, start = numeric(
        tmp_path, '{path: "tools[name=books].semantic_weight", range: [0.2, 0.8]}'
    )
    assert start == (0.5,)
    tool = agent_after(read, space.edits((0.8,))).spec.tools[0]
    assert isinstance(tool, HierarchicalDocumentToolSpec)
    assert (tool.semantic_weight, tool.keyword_weight, tool.exact_weight) == (0.8, 0.12, 0.08)


def test_two_weights_leave_the_rest_to_the_third(tmp_path: Path):
    read, space, _ = numeric(
        tmp_path,
        '{path: "tools[name=books].semantic_weight", range: [0.2, 0.6]}',
        '{path: "tools[name=books].keyword_weight", range: [0.1, 0.4]}',
    )
    tool = agent_after(read, space.edits((0.6, 0.1))).spec.tools[0]
    assert isinstance(tool, HierarchicalDocumentToolSpec)
    assert (tool.semantic_weight, tool.keyword_weight, tool.exact_weight) == (0.6, 0.1, 0.3)


def test_comments_order_and_variables_stay_where_values_are_put_in(tmp_path: Path):
    read, space, _ = numeric(
        tmp_path,
        "{path: model.temperature, range: [0, 1]}",
        '{path: "tools[name=books].top_k", range: [3, 20]}',
    )
    before = read.agent.texts["agent.yaml"]
    after = texts_after(read, space.edits((0.7, 4)))["agent.yaml"]
    lines = after.splitlines()
    added = [line for line in lines if line not in before.splitlines()]
    assert added == ["  temperature: 0.7", "  top_k: 4"]
    assert [line for line in lines if line not in added] == before.splitlines()
    assert "api_key: ${DESK_KEY}" in after
    assert "key-that-nobody-may-see" not in after


@pytest.mark.parametrize("path", ["instructions", "instructions.inline", "instructions.file"])
@pytest.mark.parametrize(
    ("head", "file", "key", "text"),
    [
        (FILE_HEAD, "prompts/desk.md", "", "Answer in one word.\n"),
        (INLINE_HEAD, "agent.yaml", "instructions.inline", "Answer in one word.\nBe kind.\n"),
    ],
)
def test_instructions_are_an_axis_of_file_and_inline_agents_by_any_of_their_names(
    tmp_path: Path, path: str, head: str, file: str, key: str, text: str
):
    read = agent_of(tmp_path, f"{{textual: [{{path: {path}, max_chars: 400}}]}}", head=head)
    (axis,) = axes_of(read).textual
    assert axis == TextAxis(path, file, key, 400)
    assert axis.read(read.agent.texts) == text == read.agent.instructions.text
    agent = agent_after(read, axis.edits(read.agent.texts, "Say why.\n\nThen answer.\n"))
    assert agent.instructions.text == "Say why.\n\nThen answer.\n"
    # the agent has its instructions in one place, as before
    assert agent.spec.instructions == read.agent.spec.instructions or file == "agent.yaml"
    if not key:
        assert agent.instructions.version == "3"


@pytest.mark.parametrize(
    ("path", "text"),
    [
        ("tools[name=books].description", "Finds rules in books.\n"),
        ("tools[name=sum_up].description", "Sums up."),
        ("tools[name=sum_up].template", "Sum up: {{text}}\n"),
        ("tools[name=sum_up].file", "Sum up: {{text}}\n"),
        ("tools[name=sum_up].parameters.text.description", "what to sum up"),
        ("response_format.properties.answer.description", "one word"),
    ],
)
def test_what_else_a_model_reads_may_be_rewritten(tmp_path: Path, path: str, text: str):
    read = agent_of(tmp_path, f"{{textual: [{{path: '{path}', max_chars: 99}}]}}")
    (axis,) = axes_of(read).textual
    assert axis.read(read.agent.texts) == text
    new = "Other: words,\nof {several} lines # so"
    after = texts_after(read, axis.edits(read.agent.texts, new))
    assert axis.read(after) == new
    assert isinstance(parse_agent(read.place, after), ParsedAgent)


def test_examples_have_a_text_to_go_to(tmp_path: Path):
    axes = axes_of(agent_of(tmp_path, "{demos: {max_demos: 2}}"))
    assert axes.demos == TextAxis("instructions", "prompts/desk.md", "", 16000)
    assert (axes.numeric, axes.start, axes.textual) == (None, (), ())


@pytest.mark.parametrize(
    ("row", "problem"),
    [
        (
            "{path: model.temperature, range: [0, 9]}",
            "range: the number 9.0 cannot be: model.temperature: the number 9.0, where 2 or less was expected",
        ),
        (
            "{path: 'tools[name=books].top_k', range: [-7, 20]}",
            "range: the number -7 cannot be: tools[0].top_k: the number -7, where 1 or more was expected",
        ),
        (
            "{path: 'tools[name=books].top_k', range: [5.5, 20]}",
            "numeric[0]: `tools[name=books].top_k` takes whole numbers: its range, and its step if it has one, are whole",
        ),
        (
            "{path: 'tools[name=books].exact_weight', range: [0, 1]}",
            "range: the number 1.0 cannot be: tools[0]: a hybrid search needs `semantic_weight` or `keyword_weight`",
        ),
        (
            "{path: 'tools[name=books].search_mode', choices: [hybrid, fuzzy]}",
            "choices: the text `fuzzy` cannot be: tools[0].search_mode: the text `fuzzy`, where `semantic`, `keyword`, `exact` or `hybrid` was expected",
        ),
    ],
)  # fmt: skip
def test_an_axis_that_would_write_what_no_agent_may_have_is_refused(
    tmp_path: Path, row: str, problem: str
):
    (line,) = told(tmp_path, f"{{numeric: [{row}]}}")
    assert line.endswith(problem)
    assert " evaluations.optimizer.axes.numeric[0]" in line


def test_an_axis_that_a_flag_stands_over_is_refused(tmp_path: Path):
    (line,) = told(
        tmp_path,
        "{numeric: [{path: model.temperature, range: [0, 1]}]}",
        "model.temperature=0.4",
    )
    assert "does not come to the agent, because `--set model.temperature=0.4` counts" in line
    (line,) = told(
        tmp_path, "{textual: [{path: instructions}]}", "instructions.inline=Be.", head=INLINE_HEAD
    )
    assert "a text that is written there does not come to the agent" in line


def test_what_is_suggested_can_be_used(tmp_path: Path):
    read = agent_of(tmp_path, "{demos: {}}")
    block = "\n".join(f"    {line}" for line in suggest_axes(read).splitlines())
    text = agent_with("loss: {equality: 1}\n", head=FILE_HEAD)
    text = text.replace("    loss: {equality: 1}\n", f"    loss: {{equality: 1}}\n{block}\n")
    (tmp_path / "agent.yaml").write_text(text)
    found = axes_of(read_agent(tmp_path / "agent.yaml"))
    assert found.numeric is not None
    assert [axis.path for axis in found.numeric.axes] == [
        "model.temperature",
        "model.top_p",
        "tools[name=books].top_k",
        "tools[name=books].semantic_weight",
    ]
    assert [axis.path for axis in found.textual] == [
        "instructions",
        "tools[name=books].description",
        "tools[name=sum_up].description",
    ]
    assert found.demos is not None


EXAMPLES = Path(__file__).parents[3] / "examples" / "agents"


@pytest.mark.parametrize("name", ["content-moderator", "finance", "support", "ticket-router"])
def test_what_is_suggested_for_an_agent_of_the_examples_can_be_used(tmp_path: Path, name: str):
    folder = tmp_path / name
    shutil.copytree(EXAMPLES / name, folder)
    path = folder / "agent.yaml"
    shown = starter_block(read_agent(path))
    text = path.read_text()
    assert text.count("\nevaluations:\n") == 1
    path.write_text(text.replace("\nevaluations:\n", f"\n{shown}\n"))
    read = read_agent(path)
    axes = axes_of(read)
    assert axes.numeric is not None
    assert axes.numeric.read(read.agent.texts) == axes.start
    assert axes.textual[0].read(read.agent.texts) == read.agent.instructions.text
    assert axes.demos is not None
    spec = optimizer_of(read)
    assert spec is not None
    assert [*optimizer_warnings(spec)] == []
    for phase in phases_of(spec, axes):
        # a patience that is longer than the phase would never end it
        assert max(phase.least, phase.patience) < phase.max_trials, phase.name


@pytest.mark.parametrize(
    ("cases", "split"), [(7, "2:5:0"), (9, "1:8:0"), (15, "7:8:0"), (16, "3:5:2")]
)
def test_what_is_suggested_leaves_enough_cases_to_decide_by(cases: int, split: str):
    read = read_agent(EXAMPLES / "ticket-router" / "agent.yaml")
    many = (read.cases * cases)[:cases]
    assert f'split: "{split}"' in starter_block(replace(read, cases=many))
