"""An agent.yaml that is in order, to be broken in one place, and agents like the ones in public."""
# ruff: noqa: E501 # a row of a table reads better than it wraps

from collections.abc import Mapping
from pathlib import Path

AGENT = """\
name: desk
model: {provider: openai, name: gpt-5-mini}
instructions: {inline: Answer in one word.}
tools:
- {type: function, name: add, description: Adds., file: tools.py, function: add}
- {type: hierarchical_document, name: books, description: Finds., source: docs}
- {type: mcp, name: files, description: Files., command: npx, args: [server]}
- {type: prompt, name: sum_up, description: Sums up., template: "{{text}}", parameters: {text: {type: string}}}
evaluations:
  metrics: [{type: standard, metric: equality}]
test_cases:
- {name: one, input: 1 + 1?, ground_truth: '2', expected_tools: [add]}
execution: {llm_timeout: 20}
"""


def write(folder: Path, files: Mapping[str, str]) -> Path:
    """The files of an agent; the path of its agent.yaml."""
    for name, text in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    return folder / "agent.yaml"


def write_agent(folder: Path, text: str = AGENT, **others: str) -> Path:
    """An agent with all that it names."""
    named = {name.replace("__", "/").replace("_dot_", "."): said for name, said in others.items()}
    return write(
        folder,
        {
            "agent.yaml": text,
            "tools.py": "def add(a, b):\n    return a + b\n",
            "docs/a.md": "# One\n\nText.\n",
            **named,
        },
    )


ROUTER = {
    "agent.yaml": """\
name: mail-desk
description: Sends each message to the right people.
author: Kept
model:
  provider: azure_openai
  name: gpt-5
  endpoint: ${DESK_ENDPOINT}
  api_key: ${DESK_KEY}
  api_version: "2024-10-21"
  temperature: 0.1
instructions: {file: instructions/desk.md}
response_format:
  type: object
  properties:
    category: {type: string, enum: [billing, technical]}
    urgency: {type: string}
  required: [category]
tools:
- name: handbook
  type: vectorstore
  description: Finds rules for routing.
  source: data/handbook.md
  database: shelf
  top_k: 3
embedding_provider: {provider: openai, name: text-embedding-3-small}
evaluations:
  model: {provider: openai, name: gpt-5-mini, temperature: 0.0}
  metrics:
  - {type: standard, metric: equality, response_path: category, case_insensitive: true}
  - type: geval
    name: Urgency
    criteria: The urgency fits what was written.
    evaluation_params: [input, actual_output, expected_output]
    threshold: 0.7
  - {type: rag, metric_type: faithfulness, threshold: 0.6}
test_cases:
- {name: refund, input: I was charged twice., ground_truth: billing, expected_tools: [handbook]}
- {name: crash, input: It stops at start., ground_truth: technical}
execution: {parallel_test_cases: 4, llm_timeout: 90}
observability:
  enabled: true
  exporters: {otlp: {endpoint: "${NOBODY_SETS_THIS}", headers: {x: "${NOR_THIS}"}}}
deployment:
  runtime: container
  registry: {url: ghcr.io, repository: x/y}
  target: {provider: aws, aws: {region: eu-west-1}}
  environment: {KEY: "${NOT_HERE_EITHER}"}
openai: {max_turns: 7, effort: max}
""",
    "config.yaml": """\
vectorstores:
  shelf: {provider: postgresql, connection_string: "${SHELF}", options: {schema_name: desk}}
execution: {llm_timeout: 30, file_timeout: 11}
""",
    "instructions/desk.md": "---\nversion: '2.1'\nauthor: A\ntags: [x]\n---\nSort the mail.\n",
    "data/handbook.md": "# Rules\n",
}

FINANCE = {
    "agent.yaml": """\
name: ledger
model: {provider: local, name: smollm2, temperature: 0.0, max_tokens: 64}
instructions: {file: prompt.md}
tools:
- type: function
  name: subtract
  description: a minus b
  file: evaluators/tools/arithmetic.py
  function: subtract
  parameters: {a: {type: number}, b: {type: number}}
- {type: function, name: divide, description: a by b, file: evaluators/tools/arithmetic.py, function: divide}
evaluations:
  metrics:
  - {type: standard, metric: numeric, accept_percent: true, accept_thousands_separators: true, relative_tolerance: 0.01}
  - {type: code, grader: "graders.program:same_program", threshold: 0.5}
test_cases_file: data/cases.yaml
""",
    "prompt.md": "Use the tools for every number.\n",
    "evaluators/tools/arithmetic.py": "def subtract(a, b): return a - b\ndef divide(a, b): return a / b\n",
    "graders/program.py": "def same_program(ctx): return True\n",
    "data/cases.yaml": """\
test_cases:
- name: revenue-2019
  turns:
  - input: |
      The report says: revenue was 206588 in 2019 and 181001 in 2018.
      What was it in 2019?
    ground_truth: '206588'
    turn_config: {turn_program: "206588", ops: []}
  - input: And the change over the year?
    ground_truth: '25587'
    expected_tools:
    - name: subtract
      args: {a: 206588, b: {fuzzy: "181,001"}}
    turn_config: {turn_program: "subtract(206588, 181001)", ops: [subtract]}
  - input: What is that in percent?
    ground_truth: 14.1%
    expected_tools:
    - {name: divide, args: {a: {regex: '2558[67](\\.0)?'}, b: 181001}, count: 1}
    evaluations: [{type: standard, metric: numeric, absolute_tolerance: 0.1, accept_percent: true}]
    turn_config: {turn_program: "subtract(206588, 181001), divide(#0, 181001)"}
- turns:
  - {input: Is it more than 5%?, ground_truth: 'yes'}
  evaluations: [{metric: equality, case_insensitive: true}]
""",
}
