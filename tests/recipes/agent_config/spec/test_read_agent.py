"""What comes of an agent.yaml: samples, texts, variables, secrets, candidates."""
# ruff: noqa: E501 # YAML that is not wrapped

import hashlib
import pickle
from pathlib import Path
from typing import cast

import pytest

from kept.errors import SpecError
from kept.models.providers import expand, key_of
from kept.recipes.agent_config.recipe import RECIPE
from kept.recipes.agent_config.spec.metrics import (
    GEvalMetricSpec,
    RagMetricSpec,
    StandardMetricSpec,
)
from kept.recipes.agent_config.spec.read import ParsedAgent, ReadAgent, parse_agent, read_agent
from kept.recipes.agent_config.spec.tools import (
    HierarchicalDocumentToolSpec,
    McpToolSpec,
    VectorstoreToolSpec,
)
from kept.spec.source import read_source
from tests.recipes.agent_config.spec.agents import AGENT, FINANCE, ROUTER, write, write_agent

HEAD = "name: x\nmodel: {provider: openai, name: gpt-5}\n"


@pytest.fixture(autouse=True)
def _elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "home").mkdir()
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("DESK_ENDPOINT", "https://desk.example")
    monkeypatch.setenv("DESK_KEY", "key-that-nobody-may-see")
    monkeypatch.setenv("SHELF", "postgresql://u:pass-that-nobody-may-see@h/db")


def parsed(read: ReadAgent, **texts: str) -> ParsedAgent | tuple[object, ...]:
    changed = {name.replace("_dot_", "."): text for name, text in texts.items()}
    return parse_agent(read.place, {**read.agent.texts, **changed})


def test_a_ticket_router_is_read(tmp_path: Path):
    read = read_agent(write(tmp_path, ROUTER))
    agent, spec = read.agent, read.agent.spec
    assert (spec.name, spec.author) == ("mail-desk", "Kept")
    assert agent.instructions.text == "Sort the mail.\n"
    assert agent.instructions.version == "2.1"
    assert agent.instructions.about == {"author": "A", "tags": ["x"]}
    assert agent.response_format is not None
    assert agent.response_format["required"] == ["category"]
    (tool,) = spec.tools
    assert isinstance(tool, VectorstoreToolSpec)
    assert (tool.top_k, tool.field_separator, tool.defer_loading) == (3, "\n", True)
    assert tool.database is not None
    assert tool.database.provider == "postgres"
    equality, urgency, faithful = spec.metrics
    assert isinstance(equality, StandardMetricSpec)
    assert (equality.response_path, equality.threshold) == ("category", None)
    assert isinstance(urgency, GEvalMetricSpec)
    assert urgency.evaluation_params == ("input", "actual_output", "expected_output")
    assert isinstance(faithful, RagMetricSpec)
    assert [metric.key for metric in spec.metrics] == ["equality", "Urgency", "faithfulness"]
    assert [case.name for case in read.cases] == ["refund", "crash"]
    assert (spec.execution.llm_timeout, spec.execution.file_timeout) == (90, 11)
    assert (spec.max_turns, spec.effort) == (7, "high")
    assert read.warnings == ()
    assert list(agent.texts) == ["agent.yaml", "instructions/desk.md"]


def test_a_finance_agent_is_read_with_the_embedded_model(tmp_path: Path):
    read = read_agent(write(tmp_path, FINANCE))
    assert read.agent.spec.model.full_name == "local/smollm2"
    assert [metric.key for metric in read.agent.spec.metrics] == ["numeric", "same_program"]
    assert len(read.cases) == 2
    assert read.agent.spec.max_turns == 20


def test_a_support_agent_with_a_server_and_several_indexes_is_read(tmp_path: Path):
    text = """\
name: support
model: {provider: ollama, name: llama3.2, endpoint: "http://localhost:11434"}
instructions: {inline: Help.}
tools:
- {type: vectorstore, name: faq, description: d, source: faq.csv, vector_field: answer, meta_fields: [id]}
- {type: vectorstore, name: notes, description: d, source: notes, vector_field: [title, body]}
- {type: hierarchical_document, name: terms, description: d, source: "notes/*.md", semantic_weight: 0.2, keyword_weight: 0.8, exact_weight: 0}
- {type: mcp, name: memory, description: d, command: npx, args: ["-y", server], env: {TOKEN: "${DESK_KEY}"}, is_retrieval: true}
- {type: mcp, name: remote, description: d, transport: http, url: "https://mcp.example/x", headers: {Authorization: "Bearer ${DESK_KEY}"}}
test_cases: [{input: hi, expected_tools: [read_graph]}]
"""
    files = {"agent.yaml": text, "faq.csv": "id,answer\n", "notes/a.md": "# A\n"}
    read = read_agent(write(tmp_path, files))
    faq, notes, terms, memory, remote = read.agent.spec.tools
    assert isinstance(faq, VectorstoreToolSpec)
    assert isinstance(notes, VectorstoreToolSpec)
    assert (faq.vector_field, notes.vector_field) == (("answer",), ("title", "body"))
    assert isinstance(terms, HierarchicalDocumentToolSpec)
    assert (terms.semantic_weight, terms.top_k, terms.rrf_k) == (0.2, 10, 60)
    assert isinstance(memory, McpToolSpec)
    assert (memory.transport, memory.request_timeout, memory.is_retrieval) == ("stdio", 60, True)
    assert isinstance(remote, McpToolSpec)
    assert remote.headers == {"Authorization": "Bearer ${DESK_KEY}"}
    # a server tells its own tools: `read_graph` may be one
    assert read.warnings == ()
    assert read.agent.model_config(tmp_path).base_url == "http://localhost:11434/v1"


def test_metrics_tell_their_type_by_their_keys(tmp_path: Path):
    text = f"""{HEAD}instructions: {{inline: x}}
evaluations:
  model: {{provider: openai, name: j}}
  optimizer: {{loss: {{bleu: 1}}, whatever: [1]}}
  metrics: [{{metric: bleu}}, {{metric_type: contextual_recall}}, {{name: N, criteria: c}}, {{grader: "g:f"}}]
"""
    spec = read_agent(write(tmp_path, {"agent.yaml": text})).agent.spec
    assert [metric.type for metric in spec.metrics] == ["standard", "rag", "geval", "code"]
    assert [metric.key for metric in spec.metrics] == ["bleu", "contextual_recall", "N", "f"]
    assert spec.evaluations is not None
    assert spec.evaluations.optimizer == {"loss": {"bleu": 1}, "whatever": [1]}


def test_no_secret_is_in_what_was_read(tmp_path: Path):
    text = AGENT.replace("args: [server]", 'env: {DB: "${SHELF}"}, headers: {x: "${DESK_KEY}"}')
    for path in (write(tmp_path, ROUTER), write_agent(tmp_path / "other", text)):
        read = read_agent(path)
        dumped = read.agent.spec.model_dump_json()
        shown = (
            f"{read!r} {read.source.data} {read.agent.texts} {dumped} {pickle.dumps(read.agent)}"
        )
        assert "nobody-may-see" not in shown
        assert "${DESK_KEY}" in dumped


def test_whoever_asks_the_model_gets_the_key(tmp_path: Path):
    read = read_agent(write(tmp_path, ROUTER))
    config = read.agent.model_config(tmp_path)
    assert "nobody-may-see" not in repr(config)
    assert key_of(config) == "key-that-nobody-may-see"
    assert (config.provider, config.model) == ("azure_openai", "gpt-5")
    assert (config.base_url, config.api_version) == ("https://desk.example", "2024-10-21")
    assert (config.temperature, config.max_tokens, config.timeout) == (0.1, 1000, 90)
    assert config.effort == "high"


def test_a_secret_in_the_wrong_place_is_not_told(tmp_path: Path):
    text = f"{HEAD}instructions: {{inline: x}}\nexecution: {{llm_timeout: '${{DESK_KEY}}'}}\n"
    with pytest.raises(SpecError) as caught:
        read_agent(write(tmp_path, {"agent.yaml": text}))
    assert str(caught.value) == (
        "agent.yaml:4 execution.llm_timeout: the text `[secret]`, where a number was expected"
    )


def test_a_key_that_stands_in_the_file_is_refused_and_not_told(tmp_path: Path):
    text = f"{HEAD}instructions: {{inline: x}}\n".replace(
        "gpt-5", "g, api_key: sk-in-the-file-1234"
    )
    with pytest.raises(SpecError) as caught:
        read_agent(write(tmp_path, {"agent.yaml": text}))
    assert "a key is kept in the environment" in str(caught.value)
    assert "sk-in-the-file" not in str(caught.value)


def test_variables_are_filled_in_by_value_and_numbers_stay_numbers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("HEAT", "0.7")
    monkeypatch.setenv("WHO", "Ada: 'x' # no comment")
    monkeypatch.setenv("EMPTY", "")
    text = """\
name: ${WHO}
description: "for ${WHO}${EMPTY}"
model:
  provider: openai
  name: "${HEAT}"
  temperature: ${HEAT}
instructions:
  inline: Say ${not a variable} and $WHO.
"""
    read = read_agent(write(tmp_path, {"agent.yaml": text}))
    spec = read.agent.spec
    assert spec.name == "Ada: 'x' # no comment"
    assert spec.description == "for Ada: 'x' # no comment"
    assert (spec.model.name, spec.model.temperature) == ("0.7", 0.7)
    assert spec.instructions.inline == "Say ${not a variable} and $WHO."
    assert read.agent.texts["agent.yaml"] == text


def test_what_may_be_a_secret_is_filled_in_by_its_user(tmp_path: Path):
    text = AGENT.replace("args: [server]", 'env: {TOKEN: "x-${DESK_KEY}"}')
    tool = read_agent(write_agent(tmp_path, text)).agent.spec.tools[2]
    assert isinstance(tool, McpToolSpec)
    assert tool.env is not None
    assert tool.env == {"TOKEN": "x-${DESK_KEY}"}
    assert expand(tool.env["TOKEN"]) == "x-key-that-nobody-may-see"


@pytest.mark.parametrize(
    ("text", "body", "version"),
    [
        ("Plain.\n", "Plain.\n", None),
        ("---\nversion: 3\n---\n\nBody.\n", "Body.\n", "3"),
        ("---\nauthor: A\n---\nBody.\n", "Body.\n", None),
        ("---\nonly prose\n---\nBody.\n", "---\nonly prose\n---\nBody.\n", None),
        ("---\nno end\n", "---\nno end\n", None),
        ("---\r\nversion: a\r\n---\r\nBody.\r\n", "Body.\n", "a"),
    ],
)
def test_the_head_of_instructions_is_taken_off(
    tmp_path: Path, text: str, body: str, version: str | None
):
    path = write(tmp_path, {"agent.yaml": f"{HEAD}instructions: {{file: p.md}}\n"})
    (tmp_path / "p.md").write_bytes(text.encode())
    found = read_agent(path).agent.instructions
    assert found.text == body
    assert found.version == (version or f"auto-{hashlib.sha256(body.encode()).hexdigest()[:8]}")


def test_a_head_that_is_not_yaml_is_told_where_it_stands(tmp_path: Path):
    text = "---\nversion: 1\nauthor: [x\n---\nBody.\n"
    path = write(tmp_path, {"agent.yaml": f"{HEAD}instructions: {{file: p.md}}\n", "p.md": text})
    with pytest.raises(SpecError) as caught:
        read_agent(path)
    assert str(caught.value).startswith(
        "p.md:4 the head is not YAML: while parsing a flow sequence"
    )


def test_instructions_with_nothing_below_the_head_are_told(tmp_path: Path):
    files = {
        "agent.yaml": f"{HEAD}instructions: {{file: p.md}}\n",
        "p.md": "---\nversion: 1\n---\n",
    }
    with pytest.raises(SpecError, match=r"`p\.md` says nothing"):
        read_agent(write(tmp_path, files))


@pytest.mark.parametrize("name", ["schema.json", "schema.yaml"])
def test_a_response_format_may_be_a_file(tmp_path: Path, name: str):
    text = f"{HEAD}instructions: {{inline: x}}\nresponse_format: ./{name}\n"
    files = {"agent.yaml": text, name: '{"type": "object"}'}
    agent = read_agent(write(tmp_path, files)).agent
    assert agent.response_format == {"type": "object"}
    assert list(agent.texts) == ["agent.yaml", name]


def test_templates_of_prompt_tools_are_texts_of_the_agent(tmp_path: Path):
    text = AGENT.replace('template: "{{text}}"', "file: prompts/sum.md")
    read = read_agent(write_agent(tmp_path, text, prompts__sum_dot_md="Sum {{text}} up."))
    assert read.agent.prompts == {"sum_up": "Sum {{text}} up."}
    changed = parse_agent(read.place, {**read.agent.texts, "prompts/sum.md": "Shorter."})
    assert isinstance(changed, ParsedAgent)
    assert changed.prompts == {"sum_up": "Shorter."}


def test_a_text_outside_the_folder_is_read_and_is_no_part_of_the_candidate(tmp_path: Path):
    (tmp_path / "shared.md").write_text("Shared.\n")
    path = write(tmp_path / "in", {"agent.yaml": f"{HEAD}instructions: {{file: ../shared.md}}\n"})
    agent = read_agent(path).agent
    assert agent.instructions.text == "Shared.\n"
    assert list(agent.texts) == ["agent.yaml"]


def test_a_candidate_is_read_from_its_texts_by_the_same_rules(tmp_path: Path):
    read = read_agent(write(tmp_path, ROUTER))
    other = parse_agent(read.place, {**read.agent.texts, "instructions/desk.md": "Sort.\n"})
    assert isinstance(other, ParsedAgent)
    assert other.instructions.text == "Sort.\n"
    assert other.spec == read.agent.spec.model_copy(update={"test_cases": None})
    yaml = read.agent.texts["agent.yaml"]
    hot = parsed(read, agent_dot_yaml=yaml.replace("temperature: 0.1", "temperature: 3"))
    assert isinstance(hot, tuple)
    assert list(map(str, hot)) == [
        "agent.yaml:10 model.temperature: the number 3, where 2 or less was expected"
    ]
    broken = parsed(read, agent_dot_yaml="name: [")
    assert isinstance(broken, tuple)
    assert "not YAML" in str(broken[0])


def test_a_candidate_cannot_change_the_cases(tmp_path: Path):
    read = read_agent(write_agent(tmp_path))
    easy = AGENT.replace("input: 1 + 1?", "input: 2")
    other = parsed(read, agent_dot_yaml=easy)
    assert isinstance(other, ParsedAgent)
    assert other.spec.test_cases is None
    assert [case.input for case in read.cases] == ["1 + 1?"]


def test_a_candidate_cannot_have_the_environment_told_to_a_model(tmp_path: Path):
    read = read_agent(write(tmp_path, ROUTER))
    text = read.agent.texts["agent.yaml"]
    spied = text.replace("Sends each", "${DESK_KEY} ${HOME} each")
    found = parsed(read, agent_dot_yaml=spied)
    assert isinstance(found, tuple)
    assert list(map(str, found)) == [
        f"agent.yaml:2 description: the agent does not ask for the variable `{name}` here"
        for name in ("DESK_KEY", "HOME")
    ]
    # what it asked for all along it may ask for
    assert isinstance(
        parsed(read, agent_dot_yaml=text.replace("top_k: 3", "top_k: 4")), ParsedAgent
    )


def test_a_tool_that_cases_expect_and_the_agent_has_not_is_warned_of(tmp_path: Path):
    text = """\
name: x
model: {provider: openai, name: y}
instructions: {inline: z}
tools: [{type: function, name: add_up, description: d, file: t.py, function: f}]
test_cases:
- {input: a, expected_tools: [add_up, add]}
- {input: b, expected_tools: [add, {name: add, match: contains}]}
"""
    read = read_agent(write(tmp_path, {"agent.yaml": text, "t.py": ""}))
    assert read.warnings == ("the agent has no tool `add`, which 2 cases expect to be used",)


def test_a_judge_that_judges_itself_is_warned_of(tmp_path: Path):
    metrics = "[{metric: bleu}, {metric: fluency}, {metric: coherence, enabled: false}, {name: G, criteria: c}]"
    text = f"{HEAD}instructions: {{inline: z}}\nevaluations: {{metrics: {metrics}}}\n"
    (told,) = read_agent(write(tmp_path, {"agent.yaml": text})).warnings
    assert told == (
        "the agent's own model judges `fluency`, `G`: name another in `evaluations.model`"
    )


def test_a_way_in_that_kept_has_not_is_warned_of(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    model = "{provider: anthropic, name: y, auth_provider: bedrock}"
    text = f"name: x\nmodel: {model}\ninstructions: {{inline: z}}\nclaude: {{max_turns: 3}}\n"
    path = write(tmp_path, {"agent.yaml": text})
    told = "`model.auth_provider: bedrock` is not used: Kept asks Anthropic with"
    monkeypatch.delenv("ANTHROPIC_API_KEY", raising=False)
    read = read_agent(path)
    assert read.agent.spec.max_turns == 3
    assert read.warnings == (f"{told} ANTHROPIC_API_KEY, which is not set: set it before a run",)
    monkeypatch.setenv("ANTHROPIC_API_KEY", "dummy")
    assert read_agent(path).warnings == (f"{told} ANTHROPIC_API_KEY",)
    path.write_text(text.replace("bedrock", "bedrock, api_key: '${ANTHROPIC_API_KEY}'"))
    assert read_agent(path).warnings == (f"{told} `model.api_key`",)


@pytest.mark.parametrize(
    ("text", "agent"),
    [
        (AGENT, True),
        (ROUTER["agent.yaml"], True),
        ("model: {provider: x}\n", True),
        ("instructions: {}\n", True),
        ("test_cases: []\n", True),
        ("artifacts: {}\nmodel: {}\ninstructions: x\n", False),
        ("runner: {}\nscorer: {}\n", False),
        ("prompts: [a]\nproviders: [b]\ntests: []\n", False),
        ("name: x\nmodel: gpt\n", False),
    ],
)
def test_an_agent_is_told_from_other_specs(tmp_path: Path, text: str, agent: bool):
    path = write(tmp_path, {"agent.yaml": text})
    assert RECIPE.detect(cast("dict[str, object]", read_source(path).data)) is agent


def test_the_sum_of_weights_may_be_off_by_a_rounding(tmp_path: Path):
    weights = "semantic_weight: 0.1, keyword_weight: 0.2, exact_weight: 0.7"
    text = AGENT.replace("source: docs", f"source: docs, {weights}")
    assert read_agent(write_agent(tmp_path, text)).warnings == ()
    keyword = AGENT.replace("source: docs", "source: docs, search_mode: keyword, exact_weight: 1")
    assert read_agent(write_agent(tmp_path, keyword)).warnings == ()


def test_a_secret_that_stands_in_the_file_is_warned_of(tmp_path: Path):
    text = AGENT.replace(
        "args: [server]", "env: {API_TOKEN: abc, HOME: x}, headers: {Auth: 'a ${DESK_KEY}'}"
    )
    base = "source: docs, database: {provider: qdrant, url: 'http://h', "
    one = text.replace("source: docs", f"{base}api_key: '${{DESK_KEY}}'}}")
    other = text.replace("source: docs", f"{base}api_key: abc, connection_string: 'a://u:p@h'}}")
    told = "` holds a secret for all to read: write ${NAME} for it"
    env = f"`tools[2].env.API_TOKEN{told}"
    assert read_agent(write_agent(tmp_path, one)).warnings == (env,)
    assert read_agent(write_agent(tmp_path, other)).warnings == (
        f"`tools[1].database.api_key{told}",
        f"`tools[1].database.connection_string{told}",
        env,
    )
    address = text.replace(
        "source: docs", f"{base}connection_string: 'http://h:6333?api_key=abc'}}"
    )
    told = f"`tools[1].database.connection_string{told}"
    assert read_agent(write_agent(tmp_path, address)).warnings == (told, env)
