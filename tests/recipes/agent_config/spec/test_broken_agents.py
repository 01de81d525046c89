"""Every way to get an agent.yaml wrong, and what Kept says about it."""
# ruff: noqa: E501 # a row of a table reads better than it wraps

from pathlib import Path

import pytest

from kept.errors import SetupError, SpecError
from kept.recipes.agent_config.spec.read import read_agent
from tests.recipes.agent_config.spec.agents import AGENT, write_agent


@pytest.fixture(autouse=True)
def _elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "home").mkdir()
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("NOT_SET", raising=False)


def problems(folder: Path, text: str, *overrides: str, **files: str) -> list[str]:
    path = write_agent(folder, text, **files)
    with pytest.raises(SpecError) as caught:
        read_agent(path, overrides)
    return [str(found) for found in caught.value.problems]


def test_the_agent_that_is_broken_below_is_in_order(tmp_path: Path):
    read = read_agent(write_agent(tmp_path))
    assert [case.name for case in read.cases] == ["one"]
    assert len(read.agent.spec.tools) == 4
    assert read.warnings == ()


# fmt: off
BROKEN = [
    ("name: desk\n", "", "agent.yaml:1 name: missing"),
    ("name: desk", "name: '  '", "agent.yaml:1 name: blank, where a text was expected"),
    ("name: desk", "name: desk\nauthr: me", "agent.yaml:2 authr: unknown key (hint: did you mean `author`?)"),
    ("execution:", "exectuion:", "agent.yaml:13 exectuion: unknown key (hint: did you mean `execution`?)"),
    ("model: {provider: openai, name: gpt-5-mini}\n", "", "agent.yaml:1 model: missing"),
    ("provider: openai, ", "", "agent.yaml:2 model.provider: missing"),
    ("provider: openai", "provider: openia", "agent.yaml:2 model.provider: `openia` is no provider of models; did you mean `openai`?"),
    (", name: gpt-5-mini", "", "agent.yaml:2 model.name: missing"),
    ("name: gpt-5-mini", "name: x, temperature: 2.5", "agent.yaml:2 model.temperature: the number 2.5, where 2 or less was expected"),
    ("name: gpt-5-mini", "name: x, max_tokens: 0", "agent.yaml:2 model.max_tokens: the number 0, where 1 or more was expected"),
    ("name: gpt-5-mini", "name: x, top_p: 1.1", "agent.yaml:2 model.top_p: the number 1.1, where 1 or less was expected"),
    ("name: gpt-5-mini", "name: x, temprature: 1", "agent.yaml:2 model.temprature: unknown key (hint: did you mean `temperature`?)"),
    ("name: gpt-5-mini", "name: x, api_version: v", "agent.yaml:2 model: `api_version` goes with `provider: azure_openai`"),
    ("name: gpt-5-mini", "name: x, auth_provider: vertex", "agent.yaml:2 model: `auth_provider` goes with `provider: anthropic`"),
    ("name: gpt-5-mini", "name: x, api_key: sk-abcdefghijkl", "agent.yaml:2 model.api_key: a key is kept in the environment, not in a file; write ${NAME} for it"),
    ("name: gpt-5-mini", "name: x, api_key: '${NOT_SET}'", "agent.yaml:2 model.api_key: the variable `NOT_SET` is not set (hint: export NOT_SET=...)"),
    ("name: gpt-5-mini", "name: '${NOT_SET}'", "agent.yaml:2 model.name: the variable `NOT_SET` is not set (hint: export NOT_SET=...)"),
    ("provider: openai", "provider: azure_openai", "agent.yaml:2 model: `endpoint` is missing: it says where your Azure resource is"),
    ("{inline: Answer in one word.}", "{}", "agent.yaml:3 instructions: give `file` or `inline`"),
    ("{inline: Answer in one word.}", "{inline: a, file: tools.py}", "agent.yaml:3 instructions: give `file` or `inline`, not both"),
    ("{inline: Answer in one word.}", "Answer.", "agent.yaml:3 instructions: the text `Answer.`, where a mapping was expected"),
    ("{inline: Answer in one word.}", "{file: tolls.py}", "agent.yaml:3 instructions.file: cannot read `tolls.py`: No such file or directory (hint: did you mean `tools.py`?)"),
    ("tools:\n", "response_format: 7\ntools:\n", "agent.yaml:4 response_format: the number 7, where a JSON schema or the path of one was expected"),
    ("tools:\n", "response_format: docs/a.md\ntools:\n", "agent.yaml:4 response_format: `docs/a.md` holds the text `Text.`, not a JSON schema"),
    ("type: function, ", "", "agent.yaml:5 tools[0].type: missing"),
    ("type: function", "type: fucntion", "agent.yaml:5 tools[0].type: the text `fucntion`, where one of `function`, `vectorstore`, `hierarchical_document`, `mcp`, `prompt` was expected (hint: did you mean `function`?)"),
    ("name: add,", "name: add-up,", "agent.yaml:5 tools[0].name: `add-up` is not a name of a tool: letters, digits and _ make one"),
    ("name: books", "name: add", "agent.yaml:6 tools[1].name: the name `add` stands twice, first in agent.yaml:5"),
    ("file: tools.py", "file: gone.py", "agent.yaml:5 tools[0].file: there is no file `gone.py`"),
    ("file: tools.py", "file: docs", "agent.yaml:5 tools[0].file: `docs` is a folder, where a file was expected"),
    ("file: tools.py", "fille: tools.py, file: tools.py", "agent.yaml:5 tools[0].fille: unknown key (hint: did you mean `file`?)"),
    ("source: docs", "source: dosc", "agent.yaml:6 tools[1].source: there is no file `dosc` (hint: did you mean `docs`?)"),
    ("source: docs", "source: 'docs/*.txt'", "agent.yaml:6 tools[1].source: `docs/*.txt` matches nothing"),
    ("source: docs", "source: 's3://bucket/x'", "agent.yaml:6 tools[1].source: a source is a file or a folder of this machine"),
    ("source: docs", "source: docs, semantic_weight: 0.8", "agent.yaml:6 tools[1]: weights of a hybrid search sum to 1; 0.8 + 0.3 + 0.2 is 1.3"),
    ("source: docs", "source: docs, semantic_weight: 0, keyword_weight: 0, exact_weight: 1", "agent.yaml:6 tools[1]: a hybrid search needs `semantic_weight` or `keyword_weight`"),
    ("source: docs", "source: docs, top_k: 101", "agent.yaml:6 tools[1].top_k: the number 101, where 100 or less was expected"),
    ("source: docs", "source: docs, max_chunk_tokens: 50", "agent.yaml:6 tools[1].max_chunk_tokens: the number 50, where 100 or more was expected"),
    ("source: docs", "source: docs, enable_reranking: true", "agent.yaml:6 tools[1]: `enable_reranking` needs a `reranker_model`"),
    ("source: docs", "source: docs, search_mode: hybird", "agent.yaml:6 tools[1].search_mode: the text `hybird`, where `semantic`, `keyword`, `exact` or `hybrid` was expected (hint: did you mean `hybrid`?)"),
    ("source: docs", "source: docs, database: shelf", "agent.yaml:6 tools[1].database: there is no vectorstore `shelf` (hint: a config.yaml has `vectorstores`)"),
    ("source: docs", "source: docs, database: {provider: oracle}", "agent.yaml:6 tools[1].database.provider: the text `oracle`, where `in-memory`, `qdrant`, `postgres`, `azure-ai-search`, `weaviate`, `chromadb`, `faiss`, `azure-cosmos-mongo`, `azure-cosmos-nosql`, `sql-server` or `pinecone` was expected"),
    ("command: npx, ", "", "agent.yaml:7 tools[2]: `transport: stdio` needs a `command`"),
    ("command: npx", "command: bash", "agent.yaml:7 tools[2].command: the text `bash`, where `npx`, `node`, `uvx`, `docker`, `python` or `python3` was expected"),
    ("command: npx", "transport: http", "agent.yaml:7 tools[2]: `transport: http` needs a `url`"),
    ("command: npx", "transport: http, url: 'http://example.org/mcp'", "agent.yaml:7 tools[2].url: an address of another machine begins with https://"),
    ("command: npx", "command: npx, env: {TOKEN: '${NOT_SET}'}", "agent.yaml:7 tools[2].env.TOKEN: the variable `NOT_SET` is not set (hint: export NOT_SET=...)"),
    ('template: "{{text}}", ', "", "agent.yaml:8 tools[3]: give `template` or `file`"),
    ("parameters: {text: {type: string}}", "parameters: {}", "agent.yaml:8 tools[3].parameters: empty, where at least one was expected"),
    ("metrics: [{type: standard, metric: equality}]", "metrics: []", "agent.yaml:10 evaluations.metrics: empty, where at least one was expected"),
    ("metric: equality", "metric: f1_score", "agent.yaml:10 evaluations.metrics[0].metric: the text `f1_score`, where `groundedness`, `relevance`, `coherence`, `fluency`, `bleu`, `rouge`, `meteor`, `equality` or `numeric` was expected"),
    ("metric: equality", "metric: equality, tolerance: 1", "agent.yaml:10 evaluations.metrics[0].tolerance: unknown key (hint: known keys: enabled, fail_on_error, type, metric, threshold, scale, model, retry_on_failure, timeout_ms, custom_prompt, case_insensitive, strip_whitespace, strip_punctuation, absolute_tolerance, relative_tolerance, accept_percent, accept_thousands_separators, response_path)"),
    ("metric: equality", "metric: equality, retry_on_failure: 4", "agent.yaml:10 evaluations.metrics[0].retry_on_failure: the number 4, where 3 or less was expected"),
    ("metric: equality", "metric: equality, response_path: 'a..b'", "agent.yaml:10 evaluations.metrics[0].response_path: `a..b` is not a path into an answer; write it as in a.b[0].c"),
    ("type: standard, metric: equality", "type: geval, name: X", "agent.yaml:10 evaluations.metrics[0].criteria: missing"),
    ("type: standard, metric: equality", "type: geval, name: X, criteria: y, evaluation_params: [output]", "agent.yaml:10 evaluations.metrics[0].evaluation_params[0]: the text `output`, where `input`, `actual_output`, `expected_output`, `context` or `retrieval_context` was expected"),
    ("type: standard, metric: equality", "type: rag, metric_type: faithfullness", "agent.yaml:10 evaluations.metrics[0].metric_type: the text `faithfullness`, where `faithfulness`, `contextual_relevancy`, `contextual_precision`, `contextual_recall` or `answer_relevancy` was expected (hint: did you mean `faithfulness`?)"),
    ("type: standard, metric: equality", "type: rag, metric_type: faithfulness, threshold: 3", "agent.yaml:10 evaluations.metrics[0].threshold: the number 3, where 1 or less was expected"),
    ("type: standard, metric: equality", "type: code, grader: graders.py", "agent.yaml:10 evaluations.metrics[0].grader: `graders.py` is not a grader; write module:function, as in graders.money:near"),
    ("input: 1 + 1?, ", "", "agent.yaml:12 test_cases[0]: give `input`, or `turns`"),
    ("input: 1 + 1?, ground_truth: '2', expected_tools: [add]", "turns: [{input: x}], input: y", "agent.yaml:12 test_cases[0]: `input` belongs to a turn, where there are `turns`"),
    ("ground_truth: '2'", "ground_truth: 2", "agent.yaml:12 test_cases[0].ground_truth: the number 2, where a text was expected"),
    ("ground_truth: '2'", "ground_thruth: '2'", "agent.yaml:12 test_cases[0].ground_thruth: unknown key (hint: did you mean `ground_truth`?)"),
    ("expected_tools: [add]", "expected_tools: [{name: add, count: 0}]", "agent.yaml:12 test_cases[0].expected_tools[0].count: the number 0, where 1 or more was expected"),
    ("expected_tools: [add]", "expected_tools: [{name: add, match: near}]", "agent.yaml:12 test_cases[0].expected_tools[0].match: the text `near`, where `exact` or `contains` was expected"),
    ("expected_tools: [add]", "expected_tools: [{name: add, args: {a: {regex: '('}}}]", "agent.yaml:12 test_cases[0].expected_tools[0].args.a: `(` is not a regular expression: missing ), unterminated subpattern at position 0"),
    ("expected_tools: [add]", "expected_tools: [{name: add, args: {a: {fuzzy: 3}}}]", "agent.yaml:12 test_cases[0].expected_tools[0].args.a: an argument is a value, or `fuzzy: TEXT`, or `regex: TEXT`"),
    ("expected_tools: [add]", "expected_tools: [{name: add, arg: {a: 3}}]", "agent.yaml:12 test_cases[0].expected_tools[0].arg: unknown key (hint: did you mean `args`?)"),
    ("expected_tools: [add]", "files: [{type: pdf}]", "agent.yaml:12 test_cases[0].files[0]: give `path` or `url`"),
    ("expected_tools: [add]", "files: [{type: pdf, path: gone.pdf}]", "agent.yaml:12 test_cases[0].files[0].path: there is no file `gone.pdf`"),
    ("expected_tools: [add]", "files: [{type: movie, path: tools.py}]", "agent.yaml:12 test_cases[0].files[0].type: the text `movie`, where `image`, `pdf`, `text`, `excel`, `word`, `powerpoint` or `csv` was expected"),
    ("expected_tools: [add]", "files: [" + ", ".join(["{type: text, path: tools.py}"] * 11) + "]", "agent.yaml:12 test_cases[0].files: at most 10 expected, 11 given"),
    ("test_cases:\n", "test_cases:\n- {name: one, input: again}\n", "agent.yaml:13 test_cases[1].name: the name `one` stands twice, first in agent.yaml:12"),
    ("execution:", "test_cases_file: cases.yaml\nexecution:", "agent.yaml:1 give `test_cases` or `test_cases_file`, not both"),
    ("llm_timeout: 20", "llm_timeout: 0", "agent.yaml:13 execution.llm_timeout: the number 0, where more than 0 was expected"),
    ("llm_timeout: 20", "parallel_test_cases: 0", "agent.yaml:13 execution.parallel_test_cases: the number 0, where 1 or more was expected"),
    ("llm_timeout: 20", "cache_dirs: x", "agent.yaml:13 execution.cache_dirs: unknown key (hint: did you mean `cache_dir`?)"),
    ("execution:", "openai: {max_turns: 0}\nexecution:", "agent.yaml:13 openai.max_turns: the number 0, where 1 or more was expected"),
    ("execution:", "claude: {efort: low}\nexecution:", "agent.yaml:13 claude.efort: unknown key (hint: did you mean `effort`?)"),
    ("execution:", "deployment: {runtim: x}\nexecution:", "agent.yaml:13 deployment.runtim: unknown key (hint: did you mean `runtime`?)"),
    ("execution:", "observability: {enabled: 1}\nexecution:", "agent.yaml:13 observability.enabled: the number 1, where true or false was expected"),
]
# fmt: on


@pytest.mark.parametrize(("part", "by", "told"), BROKEN)
def test_a_broken_agent_is_told(tmp_path: Path, part: str, by: str, told: str):
    assert AGENT.count(part) >= 1
    assert problems(tmp_path, AGENT.replace(part, by, 1)) == [told]


def test_all_problems_are_told_at_once_from_top_to_bottom(tmp_path: Path):
    text = AGENT.replace("gpt-5-mini", "x, temperature: 9").replace("inline: ", "inlin: ")
    text = text.replace("source: docs", "source: gone, rrf_k: 0")
    text = text.replace("ground_truth: '2'", "ground_truth: 2").replace(
        "metric: equality", "metric: x"
    )
    assert [told.split(":", 2)[1].split(" ")[1] for told in problems(tmp_path, text)] == [
        "model.temperature",
        "instructions.inlin",
        "tools[1].rrf_k",
        "evaluations.metrics[0].metric",
        "test_cases[0].ground_truth",
    ]


def test_too_many_tools_and_cases_are_told(tmp_path: Path):
    tools = "".join(
        f"- {{type: function, name: t{n}, description: d, file: tools.py, function: add}}\n"
        for n in range(51)
    )
    cases = "".join(f"- {{input: q{n}}}\n" for n in range(1001))
    text = "name: x\nmodel: {provider: openai, name: y}\ninstructions: {inline: z}\n"
    assert problems(tmp_path, f"{text}tools:\n{tools}test_cases:\n{cases}") == [
        "agent.yaml:4 tools: at most 50 expected, 51 given",
        "agent.yaml:56 test_cases: at most 1000 expected, 1001 given",
    ]


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("", "agent.yaml:1 the file is empty"),
        ("- a\n", "agent.yaml:1 the file is a list, not a mapping of keys"),
        (
            "name: [a\n",
            "agent.yaml:2 not YAML: while parsing a flow sequence, expected ',' or ']', but got '<stream end>'",
        ),
        (
            "name: x\nmodel: {api_key: ${KEY}}\n",
            "agent.yaml:2 not YAML: while parsing a flow mapping, expected ',' or '}', but got '{' (hint: put quotes round `${NAME}` where it stands inside brackets)",
        ),
    ],
)
def test_a_file_that_is_no_mapping_is_told(tmp_path: Path, text: str, told: str):
    assert problems(tmp_path, text) == [told]


def test_a_file_that_is_not_there_is_told(tmp_path: Path):
    with pytest.raises(SetupError, match=r"cannot read agent\.yaml: No such file"):
        read_agent(tmp_path / "agent.yaml")


def test_a_value_that_came_from_a_flag_is_told_by_the_flag(tmp_path: Path):
    assert problems(tmp_path, AGENT, "model.temperature=5") == [
        "--set model.temperature=5 model.temperature: the number 5, where 2 or less was expected"
    ]
