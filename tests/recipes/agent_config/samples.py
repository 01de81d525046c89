"""Agents of the same structure as the 15 that HoloDeck publishes; every word of them is ours.

Four desks for three providers each, two analysts who compute, and a reader of one long document.
"""

from collections.abc import Mapping
from pathlib import Path

from tests.recipes.agent_config.spec.agents import write

VARIABLES = (
    "AZURE_OPENAI_API_KEY",
    "AZURE_OPENAI_DEPLOYMENT_NAME",
    "AZURE_OPENAI_EMBEDDING_DEPLOYMENT_NAME",
    "AZURE_OPENAI_ENDPOINT",
    "CLAUDE_CODE_OAUTH_TOKEN",
    "OPENAI_API_KEY",
    "OPENSEARCH_PASSWORD",
    "OTEL_EXPORTER_OTLP_ENDPOINT",
    "QDRANT_REMOTE_URL",
    "QDRANT_URL",
)
"""What the files ask the environment for."""

_AZURE = "  endpoint: ${AZURE_OPENAI_ENDPOINT}\n  api_key: ${AZURE_OPENAI_API_KEY}\n"
MODELS: Mapping[str, str] = {
    "azure-openai": f"  provider: azure_openai\n  name: gpt-4o\n{_AZURE}",
    "ollama": "  provider: ollama\n  name: gpt-oss:20b\n  endpoint: http://localhost:11434\n",
    "openai": "  provider: openai\n  name: gpt-4o\n",
}
EMBEDDERS: Mapping[str, str] = {
    "azure-openai": "text-embedding-ada-002",
    "ollama": "nomic-embed-text:latest",
    "openai": "text-embedding-3-small",
}
CONFIGS: Mapping[str, str] = {
    "azure-openai": f"  provider: azure_openai\n  name: gpt-4o\n{_AZURE}"
    "  api_version: 2024-02-15-preview\n",
    "ollama": MODELS["ollama"],
    "openai": "  provider: openai\n  name: gpt-4o\n  api_key: ${OPENAI_API_KEY}\n",
}
STORES = """\
vectorstores:
  chromadb:
    provider: chromadb
    connection_string: http://localhost:8000
"""
EXECUTION = """\
execution:
  llm_timeout: 120
  file_timeout: 60
"""
OBSERVABILITY = """\
observability:
  enabled: true
  service_name: desk
  traces: {enabled: true, sample_rate: 1.0, capture_content: false}
  metrics: {enabled: true, export_interval_ms: 5000}
  logs: {enabled: true, level: INFO}
  exporters:
    otlp: {enabled: true, endpoint: http://localhost:4317, protocol: grpc, insecure: true}
"""
PROMPT = {"instructions/system-prompt.md": "# Desk\n\nLook things up before you answer.\n"}


def _text(name: str, of: str) -> str:
    """A vectorstore over a text."""
    return f"""\
  - name: {name}
    type: vectorstore
    description: Searches the {name}.
    database: chromadb
    embedding_model: {EMBEDDERS[of]}
    top_k: 5
    min_similarity_score: 0.7
    source: data/{name}.md
"""


def _records(name: str, of: str, fields: str, meta: str, id_field: str = "id") -> str:
    """A vectorstore over records."""
    return f"""\
  - type: vectorstore
    name: {name}
    description: Searches the {name}.
    source: data/{name}.json
    embedding_model: {EMBEDDERS[of]}
    database: chromadb
    top_k: 3
    chunk_size: 512
    chunk_overlap: 64
    min_similarity_score: 0.1
    id_field: {id_field}
    vector_field: {fields}
    meta_fields: {meta}
"""


def _server(name: str, *args: str) -> str:
    rows = "".join(f"      - '{arg}'\n" for arg in ("-y", *args))
    return (
        f"  - type: mcp\n    name: {name}\n    description: Serves {name}.\n"
        f"    command: npx\n    args:\n{rows}    request_timeout: 30\n"
    )


def _geval(name: str, params: str = "") -> str:
    given = f"      evaluation_params: {params}\n" if params else ""
    return f"""\
    - type: geval
      name: {name}
      threshold: 0.8
      criteria: |
        Say whether the answer is right.
        Look at every part of it.
      evaluation_steps:
        - Read the answer
        - Hold it against the rules
{given}"""


def _rag(kind: str) -> str:
    return f"    - type: rag\n      metric_type: {kind}\n      threshold: 0.7\n"


def _desk(of: str, body: str, metrics: str, cases: str) -> str:
    model = MODELS[of].replace("  ", "    ")
    return (
        f"# a desk\nname: desk\ndescription: Answers at a desk.\n\nmodel:\n{MODELS[of]}"
        "  temperature: 0.1  # little chance\n  max_tokens: 1000\n\n"
        f"instructions:\n  file: instructions/system-prompt.md\n\n{body}\n"
        f"evaluations:\n  model:\n{model}    temperature: 0.0\n  metrics:\n{metrics}\n"
        f"test_cases:\n{cases}\n{OBSERVABILITY}"
    )


def _config(of: str, more: str = "") -> str:
    key = {"azure-openai": "azure_openai"}.get(of, of)
    block = CONFIGS[of].replace("  ", "    ")
    return f"providers:\n  {key}:\n{block}{STORES}{more}"


def _case(text: str, truth: str, tools: str = "", name: str = "") -> str:
    rows = [f"input: {text}", f"ground_truth: '{truth}'"]
    rows = [f"name: {name}", *rows] if name else rows
    rows += [f"expected_tools: {tools}"] if tools else []
    return "  - " + "\n    ".join(rows) + "\n"


DECISION = """\
response_format:
  type: object
  properties:
    decision: {type: string, enum: [approve, remove], description: What is done}
    violations:
      type: array
      items:
        type: object
        properties: {category: {type: string, description: Which rule}}
      description: What was broken
    confidence_score: {type: number, minimum: 0, maximum: 1, description: From 0 to 1}
  required: [decision, violations, confidence_score]
"""
SUMMARY = """\
response_format:
  type: object
  properties:
    summary: {type: string, description: In two sentences}
    parties:
      type: array
      items: {type: object, properties: {name: {type: string}, role: {type: string}}}
      description: Who signs
  required: [summary, parties]
tools:
"""
ROUTE = """\
response_format:
  type: object
  properties:
    category: {type: string, enum: [billing, technical], description: The kind of ticket}
    reasoning: {type: string, description: Why}
  required: [category, reasoning]
  additionalProperties: false
tools:
"""


def _moderation(of: str) -> dict[str, str]:
    meta = "[category_name, examples, description]"
    tools = "tools:\n" + _text("moderation_rules", of)
    tools += _records("category_definitions", of, "description", meta, "subcategory_id")
    metrics = _geval("Accuracy") + _geval("Reasoning") + _rag("faithfulness")
    verdict = '{"decision": "approve", "violations": []}'
    cases = "".join(_case(f"Post number {n}", verdict) for n in range(6))
    row = '{"subcategory_id": "a", "category_name": "A", "examples": "b", "description": "c"}'
    return {
        "agent.yaml": _desk(of, DECISION + tools, metrics, cases),
        "config.yaml": _config(of),
        "data/moderation_rules.md": "# Rules\n\nBe kind.\n",
        "data/category_definitions.json": f"[{row}]",
    }


def _support(of: str) -> dict[str, str]:
    tools = "tools:\n" + _text("knowledge_base", of)
    tools += _records("faq", of, "[question, answer]", "[category, question]")
    tools += _records("product_catalog", of, "content", "[type, name, price]")
    tools += _server("memory", "@modelcontextprotocol/server-memory")
    metrics = "".join(map(_rag, ("faithfulness", "answer_relevancy", "contextual_relevancy")))
    metrics += _geval("Helpfulness", "[input, actual_output]") + _geval("Tone", "[actual_output]")
    called = "[faq, knowledge_base]"
    cases = "".join(_case(f"Question {n}?", "an answer", called, f"Q - {n}") for n in range(5))
    # of the three, one says where files are cached, by a name of its own
    more = EXECUTION + "  cache_enabled: true\n  cache_directory: .desk_cache\n"
    row = '{"id": "p", "type": "plan", "name": "Free", "price": "$0", "content": "Free plan."}'
    return {
        "agent.yaml": _desk(of, tools, metrics, cases),
        "config.yaml": _config(of, more if of == "openai" else ""),
        "data/knowledge_base.md": "# Help\n\nPress the button.\n",
        "data/faq.json": '[{"id": "f", "question": "a?", "answer": "b", "category": "c"}]',
        "data/product_catalog.json": f"[{row}]",
    }


def _summaries(of: str) -> dict[str, str]:
    meta = "[type, title, party_a, party_b, key_terms]"
    tools = _text("legal_templates", of)
    tools += _records("sample_contracts", of, "[key_terms, full_text]", meta, "contract_id")
    tools += _server("filesystem", "@modelcontextprotocol/server-filesystem", "./data")
    metrics = "    - {type: standard, metric: rouge, threshold: 0.6}\n"
    metrics += "    - {type: standard, metric: bleu, threshold: 0.5}\n" + _geval("Completeness")
    metrics += _rag("contextual_precision") + _rag("faithfulness")
    cases = _case("Sum this up.", "short") + _case("And this.", "shorter")
    cases += _case("Last.", "x", "[legal_templates]")
    row = '{"contract_id": "c", "type": "NDA", "title": "t", "party_a": "a", "party_b": "b", '
    row += '"key_terms": "k", "full_text": "f"}'
    return {
        "agent.yaml": _desk(of, SUMMARY + tools, metrics, cases),
        "config.yaml": _config(of),
        "data/legal_templates.md": "# Clauses\n\nNobody tells.\n",
        "data/sample_contracts.json": f"[{row}]",
    }


def _routing(of: str) -> dict[str, str]:
    tools = _records("ticket_categories", of, "content", "[name, sla_hours, keywords]")
    both = "[actual_output, expected_output]"
    metrics = _geval("Classification", both) + _geval("Urgency", both) + _rag("faithfulness")
    routed = '{"category": "billing", "reasoning": "money"}'
    called = "[ticket_categories]"
    cases = "".join(_case(f"Ticket {n}", routed, called, f"T{n}") for n in range(3))
    row = '{"id": "billing", "name": "Billing", "sla_hours": 24, "keywords": "money", '
    row += '"content": "Invoices, refunds."}'
    return {
        "agent.yaml": _desk(of, ROUTE + tools, metrics, cases),
        "config.yaml": _config(of, EXECUTION),
        "data/ticket_categories.json": f"[{row}]",
        "data/sample_tickets.json": "[]",
    }


ARCHIVE = """\
embedding_provider:
  provider: azure_openai
  name: ${AZURE_OPENAI_EMBEDDING_DEPLOYMENT_NAME}
  endpoint: ${AZURE_OPENAI_ENDPOINT}
  api_key: ${AZURE_OPENAI_API_KEY}
instructions:
  file: instructions/system-prompt.md
tools:
  - name: subtract
    type: function
    description: "The first less the second, as texts (\\"1,234.5\\")."
    file: tools/money.py
    function: subtract
  - name: divide
    type: function
    description: The first by the second.
    file: tools/money.py
    function: divide
  - name: archive
    type: hierarchical_document
    description: >-
      Searches reports of many years.
      Use it for other years.
    source: data/reports.md
    document_domain: none
    search_mode: hybrid
    max_chunk_tokens: 1500
    semantic_weight: 0.2
    keyword_weight: 0.8
    exact_weight: 0.0
    min_score: 0.5
    top_k: 8
    contextual_embeddings: false
    context_model:
      provider: azure_openai
      name: ${AZURE_OPENAI_DEPLOYMENT_NAME}
      endpoint: ${AZURE_OPENAI_ENDPOINT}
      api_key: ${AZURE_OPENAI_API_KEY}
      temperature: 0.0
      max_tokens: 4000
    database:
      provider: qdrant
      connection_string: ${QDRANT_URL}
evaluations:
  metrics:
    - type: standard
      metric: numeric
      response_path: answer
      relative_tolerance: 0.01
      absolute_tolerance: 1.0e-6
      accept_percent: true
      accept_thousands_separators: true
execution:
  parallel_test_cases: 4
  file_timeout: 180
  llm_timeout: 180
observability:
  enabled: true
  exporters:
    otlp: {enabled: true, endpoint: "${OTEL_EXPORTER_OTLP_ENDPOINT}", protocol: grpc}
test_cases_file: data/turns.yaml
deployment:
  port: 8080
  protocol: ag-ui
  platform: linux/amd64
  registry: {url: ghcr.io, repository: a/b, tag_strategy: git_sha}
  target: {provider: azure, azure: {resource_group: rg, cpu: 1.0, memory: 2Gi}}
  environment:
    CLAUDE_CODE_OAUTH_TOKEN: ${CLAUDE_CODE_OAUTH_TOKEN}
    QDRANT_URL: ${QDRANT_REMOTE_URL}
"""
CLAUDE = """\
name: analyst
model:
  provider: anthropic
  name: claude-sonnet-4-6
  temperature: 0.0
  auth_provider: oauth_token
claude:
  session_memory_estimate_mib: 500
"""
GPT = """\
name: analyst
model:
  provider: azure_openai
  name: ${AZURE_OPENAI_DEPLOYMENT_NAME}
  endpoint: ${AZURE_OPENAI_ENDPOINT}
  api_key: ${AZURE_OPENAI_API_KEY}
  temperature: 0.0
openai:
  max_turns: 20
  effort: high
response_format:
  type: object
  additionalProperties: false
  required: [answer]
  properties:
    answer:
      description: A number, or a text with %.
      anyOf:
        - type: number
        - {type: string, pattern: '^-?\\d+%?$'}
"""
TURNS = """\
- name: one/2014/page_1.pdf
  turns:
    - input: What was the revenue of 2014?
      ground_truth: '206588'
      turn_config: {program: '206588'}
    - input: And how did it change?
      ground_truth: '0.14'
      expected_tools: [subtract, {name: divide, args: {b: {fuzzy: '181,001'}}}]
      turn_config: {program: 'subtract(206588, 181001), divide(#0, 181001)'}
"""
MONEY = """\
def subtract(a: str, b: str) -> str:
    return str(float(a) - float(b))


def divide(a: str, b: str) -> str:
    return str(float(a) / float(b))
"""

READER = """\
name: reader
model:
  provider: anthropic
  name: claude-sonnet-4-6
  temperature: 0.1
  max_tokens: 20000
  auth_provider: oauth_token
embedding_provider:
  provider: azure_openai
  name: text-embedding-3-small
  endpoint: ${AZURE_OPENAI_ENDPOINT}
  api_key: ${AZURE_OPENAI_API_KEY}
claude:
  permission_mode: acceptAll
  max_turns: 10
  web_search: true
execution:
  llm_timeout: 3600
instructions:
  file: instructions/system-prompt.md
tools:
  - name: act_search
    type: hierarchical_document
    description: Searches the act.
    source: ./data/act.md
    document_domain: us_legislative
    search_mode: hybrid
    semantic_weight: 0.5
    keyword_weight: 0.5
    exact_weight: 0.0
    top_k: 5
    contextual_embeddings: true
    context_model:
      provider: azure_openai
      name: ${AZURE_OPENAI_DEPLOYMENT_NAME}
      endpoint: ${AZURE_OPENAI_ENDPOINT}
      api_key: ${AZURE_OPENAI_API_KEY}
      temperature: 1
      max_tokens: 20000
    database:
      provider: chromadb
      connection_string: http://localhost:8000
    keyword_index:
      provider: opensearch
      endpoint: "https://localhost:9200"
      index_name: "act-words"
      username: admin
      password: ${OPENSEARCH_PASSWORD}
      verify_certs: false
      timeout_seconds: 10
  - type: mcp
    name: filesystem
    description: 'Reads files.'
    command: npx
    args: [-y, '@modelcontextprotocol/server-filesystem', './data']
    request_timeout: 60
test_cases:
  - name: "Definitions"
    input: "What is a covered system?"
    expected_tools: [act_search]
  - name: "Sections"
    input: "What does section 3 say?"
    expected_tools: [act_search]
"""


def _analyst(head: str) -> dict[str, str]:
    return {
        "agent.yaml": head + ARCHIVE,
        "data/reports.md": "# 2014\n\nRevenue was 206588.\n",
        "data/turns.yaml": TURNS,
        "tools/money.py": MONEY,
        "graders/__init__.py": "",
    }


def _reader() -> dict[str, str]:
    providers = "providers:\n  openai:\n    provider: openai\n    name: gpt-5-nano\n"
    providers += "    api_key: ${OPENAI_API_KEY}\n"
    return {
        "agent.yaml": READER,
        "config.yaml": STORES + providers,
        "data/act.md": "# Section 3\n\nA covered system is one that learns.\n",
    }


SAMPLES: Mapping[str, Mapping[str, str]] = {
    **{f"content-moderation/{of}": _moderation(of) for of in MODELS},
    **{f"customer-support/{of}": _support(of) for of in MODELS},
    **{f"legal-summarization/{of}": _summaries(of) for of in MODELS},
    **{f"ticket-routing/{of}": _routing(of) for of in MODELS},
    "financial-assistant/claude": _analyst(CLAUDE),
    "financial-assistant/openai": _analyst(GPT),
    "legal-assistant/claude": _reader(),
}


def write_sample(folder: Path, name: str) -> Path:
    """The files of one of them; the path of its agent.yaml."""
    return write(folder, {**SAMPLES[name], **PROMPT})
