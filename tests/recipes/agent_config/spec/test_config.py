"""What is said in several places: agent.yaml, the environment, config.yaml, ~/.holodeck."""
# ruff: noqa: E501 # a row of a table reads better than it wraps

from pathlib import Path

import pytest

from kept.errors import SpecError
from kept.recipes.agent_config.spec.read import ReadAgent, parse_agent, read_agent
from kept.recipes.agent_config.spec.tools import McpToolSpec, PromptToolSpec, VectorstoreToolSpec
from tests.recipes.agent_config.spec.agents import write

HEAD = "name: x\ninstructions: {inline: Answer.}\n"
MODEL = "model: {provider: openai, name: gpt-5}\n"


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    home = tmp_path / "home"
    (home / ".holodeck").mkdir(parents=True)
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.chdir(tmp_path)
    return home / ".holodeck"


def read(folder: Path, text: str, config: str = "", *overrides: str) -> ReadAgent:
    return read_agent(write(folder, {"agent.yaml": text, "config.yaml": config}), overrides)


def problems(folder: Path, text: str, config: str = "") -> list[str]:
    with pytest.raises(SpecError) as caught:
        read(folder, text, config)
    return [str(found) for found in caught.value.problems]


def test_the_nearest_place_that_says_it_counts(
    tmp_path: Path, home: Path, monkeypatch: pytest.MonkeyPatch
):
    (home / "config.yaml").write_text(
        "execution: {llm_timeout: 1, file_timeout: 1, download_timeout: 1, cache_dir: u, quiet: true}\n"
    )
    project = "execution: {llm_timeout: 2, file_timeout: 2, download_timeout: 2}\n"
    monkeypatch.setenv("HOLODECK_LLM_TIMEOUT", "3")
    monkeypatch.setenv("HOLODECK_FILE_TIMEOUT", "3")
    monkeypatch.setenv("HOLODECK_VERBOSE", "yes")
    agent = f"{HEAD}{MODEL}execution: {{llm_timeout: 4}}\n"
    said = read(tmp_path, agent, project).agent.spec.execution
    assert (said.llm_timeout, said.file_timeout, said.download_timeout) == (4, 3, 2)
    assert (said.cache_dir, said.quiet, said.verbose) == ("u", True, True)
    assert said.parallel_test_cases is None
    flag = read(tmp_path, agent, project, "execution.llm_timeout=5").agent.spec.execution
    assert flag.llm_timeout == 5


def test_a_candidate_is_read_with_the_same_config(tmp_path: Path):
    done = read(
        tmp_path,
        f"{HEAD}{MODEL}",
        "execution: {llm_timeout: 2}\nproviders: {openai: {provider: openai, top_p: 0.5}}\n",
        "model.max_tokens=7",
    )
    changed = done.agent.texts["agent.yaml"].replace("gpt-5", "gpt-6")
    parsed = parse_agent(done.place, {"agent.yaml": changed})
    assert not isinstance(parsed, tuple)
    assert parsed.spec.execution.llm_timeout == 2
    model = parsed.spec.model
    assert (model.name, model.top_p, model.max_tokens) == ("gpt-6", 0.5, 7)


def test_a_provider_of_the_config_says_what_a_model_does_not(tmp_path: Path):
    config = """\
providers:
  mine: {provider: azure_openai, endpoint: https://a.example, api_version: v1, temperature: 0.9}
  openai: {provider: openai, name: judge-1, max_tokens: 5}
"""
    agent = f"""\
{HEAD}model: {{provider: mine, name: gpt-5, temperature: 0.2}}
embedding_provider: {{provider: azure_openai, name: e}}
evaluations:
  model: {{provider: openai}}
  metrics: [{{type: geval, name: G, criteria: c, model: {{provider: openai, name: judge-2}}}}]
test_cases: [{{input: x, evaluations: [{{type: geval, name: H, criteria: c, model: {{provider: openai}}}}]}}]
"""
    done = read(tmp_path, agent, config)
    spec = done.agent.spec
    assert (spec.model.provider, spec.model.name) == ("azure_openai", "gpt-5")
    assert (spec.model.temperature, spec.model.endpoint) == (0.2, "https://a.example")
    assert spec.embedding_provider is not None
    assert spec.embedding_provider.endpoint == "https://a.example"
    assert spec.evaluations is not None
    (metric,) = spec.metrics
    assert (spec.judge_of(metric).name, spec.judge_of(metric).max_tokens) == ("judge-2", 5)
    assert spec.evaluations.model is not None
    assert spec.evaluations.model.name == "judge-1"
    own = next(iter(done.cases[0].evaluations or ()))
    assert spec.judge_of(own).name == "judge-1"


def test_a_database_is_found_by_the_name_that_the_config_has_for_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("SHELF_URL", "postgresql://u:secret-word@h/db")
    (tmp_path / "a.md").write_text("x")
    tool = "tools: [{type: vectorstore, name: t, description: d, source: a.md, database: shelf}]\n"
    config = """\
vectorstores:
  shelf: {provider: postgresql, connection_string: "${SHELF_URL}", options: {schema_name: s}}
"""
    (found,) = read(tmp_path, f"{HEAD}{MODEL}{tool}", config).agent.spec.tools
    assert isinstance(found, VectorstoreToolSpec)
    assert found.database is not None
    assert found.database.provider == "postgres"
    assert found.database.connection_string == "${SHELF_URL}"
    assert found.database.options == {"schema_name": "s"}
    assert problems(tmp_path, f"{HEAD}{MODEL}{tool}".replace("shelf", "shlef"), config) == [
        "agent.yaml:4 tools[0].database: there is no vectorstore `shlef` (hint: there are shelf)"
    ]
    wrong = config.replace("postgresql", "oracle")
    (told,) = problems(tmp_path, f"{HEAD}{MODEL}{tool}", wrong)
    assert told.startswith("config.yaml:2 tools[0].database.provider: the text `oracle`, where")


def test_servers_of_the_config_are_added_to_the_tools(tmp_path: Path):
    tools = "tools: [{type: mcp, name: mine, description: d, command: npx}]\n"
    config = """\
mcp_servers:
- {type: mcp, name: mine, description: other, command: uvx}
- {type: mcp, name: all, description: d, command: uvx, args: [s]}
"""
    found = read(tmp_path, f"{HEAD}{MODEL}{tools}", config).agent.spec.tools
    assert [(tool.name, tool.description) for tool in found] == [("mine", "d"), ("all", "d")]
    assert all(isinstance(tool, McpToolSpec) for tool in found)


def test_a_prompt_tool_says_only_what_is_different_from_the_agents_model(tmp_path: Path):
    tool = (
        "tools: [{type: prompt, name: t, description: d, template: x, parameters: {a: {type: string}},"
        " model: {temperature: 1.5}}]\n"
    )
    (found,) = read(tmp_path, f"{HEAD}{MODEL}{tool}").agent.spec.tools
    assert isinstance(found, PromptToolSpec)
    assert found.model is not None
    assert (found.model.full_name, found.model.temperature) == ("openai/gpt-5", 1.5)


@pytest.mark.parametrize(
    ("config", "told"),
    [
        ("execution: {cache_dirs: x}\n", "config.yaml:1 execution.cache_dirs: unknown key (hint: did you mean `cache_dir`?)"),
        ("provider: {}\n", "config.yaml:1 provider: unknown key (hint: did you mean `providers`?)"),
        ("providers:\n  a: {provider: openai, api_kee: x}\n", "config.yaml:2 providers.a.api_kee: unknown key (hint: did you mean `api_key`?)"),
        ("providers:\n  a: {name: x}\n", "config.yaml:2 providers.a.provider: missing"),
        ("providers:\n  a: {provider: openai, api_key: sk-12345678}\n", "config.yaml:2 providers.a.api_key: a key is kept in the environment, not in a file; write ${NAME} for it"),
        ("vectorstores:\n  a: {connection_string: x}\n", "config.yaml:2 vectorstores.a.provider: missing"),
        ("vectorstores:\n  a: {provider: qdrant, connection_string: '${NO_SUCH}'}\n", "config.yaml:2 vectorstores.a.connection_string: the variable `NO_SUCH` is not set (hint: export NO_SUCH=...)"),
        ("mcp_servers: [{name: a, description: b, type: mcp}]\n", "config.yaml:1 mcp_servers[0]: `transport: stdio` needs a `command`"),
    ],
)  # fmt: skip
def test_a_broken_config_is_told(tmp_path: Path, config: str, told: str):
    assert problems(tmp_path, f"{HEAD}{MODEL}", config) == [told]


def test_what_a_model_got_from_the_config_is_told_where_it_stands(tmp_path: Path):
    config = "providers:\n  openai:\n    provider: openai\n    api_version: v\n"
    (told,) = problems(tmp_path, f"{HEAD}{MODEL}", config)
    assert told == "agent.yaml:3 model: `api_version` goes with `provider: azure_openai`"


def test_a_variable_of_the_environment_that_is_no_number_is_told_by_its_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("HOLODECK_LLM_TIMEOUT", "soon")
    assert problems(tmp_path, f"{HEAD}{MODEL}") == [
        "HOLODECK_LLM_TIMEOUT execution.llm_timeout: the text `soon`, where a number was expected"
    ]


def test_an_empty_config_says_nothing(tmp_path: Path, home: Path):
    (home / "config.yml").write_text("# nothing\n")
    assert read(tmp_path, f"{HEAD}{MODEL}", "\n").agent.spec.execution.llm_timeout == 60
