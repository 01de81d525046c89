"""Schema of the tools in an agent.yaml."""

import math
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Annotated, Any, ClassVar, Literal, NamedTuple
from urllib.parse import urlsplit

from pydantic import AfterValidator, ConfigDict, Field

from kept.core.ports import Tool
from kept.models.providers import is_ours
from kept.recipes.agent_config.spec.common import LlmSpec, Loose, Share, Words, one_of
from kept.settings import names_secret
from kept.spec.components import Registry
from kept.spec.validate import Count, OneOrMore, Seconds, SpecModel, Text, Texts

MAX_TOOLS = 50

WEIGHTS = ("semantic_weight", "keyword_weight", "exact_weight")
"""Weights of a hybrid search, which sum to 1."""

_KINDS = "kept.recipes.agent_config.tools"

_KEY_IN_ADDRESS = re.compile(r"://[^/?]*@|[?&]api_key=")

Transport = Literal["stdio", "sse", "http", "websocket"]
Command = Literal["npx", "node", "uvx", "docker", "python", "python3"]
"""Programs that start an MCP server; `python` is not in HoloDeck."""

DatabaseProvider = Literal[
    "in-memory",
    "qdrant",
    "postgres",
    "azure-ai-search",
    "weaviate",
    "chromadb",
    "faiss",
    "azure-cosmos-mongo",
    "azure-cosmos-nosql",
    "sql-server",
    "pinecone",
]
Domain = Literal[
    "none", "us_legislative", "au_legislative", "academic", "technical", "legal_contract"
]


Parameters = dict[str, Loose]
"""Parameters of a tool: JSON schema by name."""


def _name(text: str) -> str:
    if not re.fullmatch(r"[0-9A-Za-z_]+", text):
        raise ValueError(f"`{text}` is not a name of a tool: letters, digits and _ make one")
    return text


def _address(text: str) -> str:
    where = urlsplit(text)
    if where.scheme == "http" and not is_ours(text):
        raise ValueError("an address of another machine begins with https://")
    if where.scheme not in ("http", "https", "ws", "wss") or not where.hostname:
        raise ValueError("not an address: it begins with https://, wss:// or ws://")
    return text


def _any(parameters: Parameters) -> Parameters:
    if not parameters:
        raise ValueError("empty, where at least one was expected")
    return parameters


def _local(text: str) -> str:
    if "://" in text:
        raise ValueError("a source is a file or a folder of this machine")
    return text


Source = Annotated[Words, AfterValidator(_local)]


class ToolFile(NamedTuple):
    """A file or folder that a tool names."""

    key: str
    path: str
    is_folder: bool = False
    decides: bool = True
    """True if answers depend on it, so that a resume compares it."""


class Range(NamedTuple):
    """A tunable number, with the ends of a suggested range."""

    key: str
    now: float
    low: float
    high: float


class ToolSpec(SpecModel):
    """Fields common to all tools."""

    per_query: ClassVar[tuple[str, ...]] = ()
    """Keys that apply to each call, so that candidates may differ in them."""
    retrieves: ClassVar[bool] = False
    """True if its answers count as retrieved passages."""
    is_server: ClassVar[bool] = False
    """True if it names and describes its tools itself."""
    has_template: ClassVar[bool] = False
    """True if a separate model answers a template."""
    why_fixed: ClassVar[str] = ""
    """Reason why its other keys are the same for all candidates."""

    name: Annotated[Text, AfterValidator(_name)]
    description: Words
    """Description for the model."""
    defer_loading: bool = True
    """Not used: Kept offers every tool at once."""

    @property
    def gives_passages(self) -> bool:
        """True if its answers count as retrieved passages."""
        return self.retrieves

    @property
    def stores(self) -> tuple[str, ...]:
        """Providers of the stores that it names."""
        return ()

    @property
    def words(self) -> tuple[str, ...]:
        """Arguments of its program, which may be file names."""
        return ()

    def files(self) -> Iterator[ToolFile]:
        """Files that the tool names."""
        return iter(())

    def secrets(self) -> Iterator[tuple[str, object]]:
        """Values that may be secrets, by key."""
        return iter(())

    def ranges(self) -> Iterator[Range]:
        """Numbers that are worth tuning."""
        return iter(())

    @property
    def template_file(self) -> str | None:
        """File of the template that a separate model answers."""
        return None

    def template_text(self, read: Callable[[str], str | None]) -> str | None:
        """Template that a separate model answers; `read` gives the text of a file."""
        return None


class FunctionToolSpec(ToolSpec):
    """A function of a Python file."""

    type: Literal["function"]
    file: Words
    function: Words
    parameters: Parameters | None = None

    def files(self) -> Iterator[ToolFile]:
        """File of the function."""
        yield ToolFile("file", self.file)


class DatabaseSpec(SpecModel):
    """Store of an index; keys specific to a provider are accepted unchanged."""

    model_config = ConfigDict(extra="allow", frozen=True, strict=True)

    provider: DatabaseProvider
    connection_string: Words | None = None
    """May contain `${NAME}`, which is resolved when connecting."""

    @property
    def options(self) -> Mapping[str, Any]:
        """Keys specific to the provider."""
        return self.model_extra or {}


class KeywordIndexSpec(SpecModel):
    """Store of a keyword index; not used, as Kept's own is in memory."""

    model_config = ConfigDict(extra="allow", frozen=True, strict=True)

    provider: Literal["in-memory", "opensearch"] = "in-memory"


class SearchToolSpec(ToolSpec):
    """Fields common to searches over documents."""

    retrieves = True
    why_fixed = (
        "an index is taken in once for all candidates, and this would have it taken in again"
    )

    source: Source
    top_k: Annotated[int, Field(ge=1, le=100)] = 5
    embedding_model: Words | None = None
    database: DatabaseSpec | None = None

    @property
    def stores(self) -> tuple[str, ...]:
        """Providers of the stores that it names."""
        return () if self.database is None else (self.database.provider,)

    def files(self) -> Iterator[ToolFile]:
        """Documents to search."""
        yield ToolFile("source", self.source, is_folder=True)

    def secrets(self) -> Iterator[tuple[str, object]]:
        """Secrets of its store."""
        database = self.database
        if database is None:
            return
        for key, value in database.options.items():
            if names_secret(key):
                yield f"database.{key}", value
        if _KEY_IN_ADDRESS.search(database.connection_string or ""):
            yield "database.connection_string", database.connection_string

    def ranges(self) -> Iterator[Range]:
        """Number of passages."""
        yield Range("top_k", self.top_k, 3, 20)


class VectorstoreToolSpec(SearchToolSpec):
    """A search over documents by meaning."""

    per_query = ("top_k", "min_similarity_score")

    type: Literal["vectorstore"]
    vector_field: OneOrMore | None = None
    meta_fields: Texts | None = None
    chunk_size: Count | None = None
    chunk_overlap: Annotated[int, Field(ge=0)] | None = None
    embedding_dimensions: Annotated[int, Field(ge=1, le=10_000)] | None = None
    min_similarity_score: Share | None = None
    record_path: Text | None = None
    record_prefix: str | None = None
    meta_prefix: str | None = None
    id_field: Text | None = None
    field_separator: str = "\n"
    delimiter: Text | None = None


class HierarchicalDocumentToolSpec(SearchToolSpec):
    """A search over structured documents: by meaning, by words, or both."""

    per_query = ("search_mode", "top_k", "min_score", "rrf_k", *WEIGHTS)

    type: Literal["hierarchical_document"]
    chunking_strategy: Literal["structure", "token"] = "structure"
    max_chunk_tokens: Annotated[int, Field(ge=100, le=2000)] = 800
    chunk_overlap: Annotated[int, Field(ge=0, le=200)] = 50
    document_domain: Domain = "none"
    max_subsection_depth: Count | None = None
    search_mode: Literal["semantic", "keyword", "exact", "hybrid"] = "hybrid"
    top_k: Annotated[int, Field(ge=1, le=100)] = 10
    min_score: Share | None = None
    semantic_weight: Share = 0.5
    keyword_weight: Share = 0.3
    exact_weight: Share = 0.2
    rrf_k: Count = 60
    contextual_embeddings: bool = True
    context_max_tokens: Annotated[int, Field(ge=50, le=200)] = 100
    context_concurrency: Annotated[int, Field(ge=1, le=50)] = 10
    extract_definitions: bool = True
    extract_cross_references: bool = True
    enable_reranking: bool = False
    reranker_model: LlmSpec | None = None
    context_model: LlmSpec | None = None
    keyword_index: KeywordIndexSpec | None = None

    @property
    def stores(self) -> tuple[str, ...]:
        """Providers of the stores that it names."""
        words = () if self.keyword_index is None else (self.keyword_index.provider,)
        return (*super().stores, *words)

    def ranges(self) -> Iterator[Range]:
        """Number of passages; for a hybrid search also the weight of meaning."""
        yield from super().ranges()
        if self.search_mode == "hybrid" and self.keyword_weight + self.exact_weight > 0:
            yield Range("semantic_weight", self.semantic_weight, 0.2, 0.8)

    @classmethod
    def faults(cls, said: Mapping[str, Any]) -> Iterator[str]:
        """Report weights that do not sum to 1, and a missing model."""
        if said.get("search_mode") == "hybrid" and said.keys() >= set(WEIGHTS):
            total = math.fsum(said[name] for name in WEIGHTS)
            if abs(total - 1) > 1e-6:
                sum_of = " + ".join(f"{said[name]:g}" for name in WEIGHTS)
                yield f"weights of a hybrid search sum to 1; {sum_of} is {total:g}"
            elif said["semantic_weight"] + said["keyword_weight"] == 0:
                yield "a hybrid search needs `semantic_weight` or `keyword_weight`"
        if said.get("enable_reranking") and said.get("reranker_model", "") is None:
            yield "`enable_reranking` needs a `reranker_model`"


class McpToolSpec(ToolSpec):
    """A server of the Model Context Protocol, whose tools are offered to the model."""

    is_server = True
    why_fixed = "a server is opened once for all candidates"

    type: Literal["mcp"]
    transport: Transport = "stdio"
    command: Command | None = None
    args: Annotated[tuple[str, ...], Field(strict=False)] = ()
    env: dict[str, str] | None = None
    """May contain `${NAME}`, which is resolved when the server starts."""
    env_file: Words | None = None
    encoding: Text = "utf-8"
    url: Annotated[Text, AfterValidator(_address)] | None = None
    headers: dict[str, str] | None = None
    """May contain `${NAME}`, which is resolved when connecting."""
    timeout: Seconds | None = None
    sse_read_timeout: Seconds | None = None
    terminate_on_close: bool | None = None
    config: Loose | None = None
    load_tools: bool = True
    load_prompts: bool = True
    request_timeout: Seconds = 60
    is_retrieval: bool = False
    """True if its results count as retrieved passages."""
    registry_name: Text | None = None

    @property
    def gives_passages(self) -> bool:
        """Value of `is_retrieval`."""
        return self.is_retrieval

    @property
    def words(self) -> tuple[str, ...]:
        """Arguments of the server."""
        return self.args

    def files(self) -> Iterator[ToolFile]:
        """File with environment variables."""
        if self.env_file is not None:
            yield ToolFile("env_file", self.env_file, decides=False)

    def secrets(self) -> Iterator[tuple[str, object]]:
        """Secrets in variables and headers."""
        for name, held in (("env", self.env), ("headers", self.headers)):
            for key, value in (held or {}).items():
                if names_secret(key):
                    yield f"{name}.{key}", value

    @classmethod
    def faults(cls, said: Mapping[str, Any]) -> Iterator[str]:
        """Report keys that a transport needs."""
        transport = said.get("transport")
        if transport == "stdio" and said.get("command", "") is None:
            yield "`transport: stdio` needs a `command`"
        if transport not in (None, "stdio") and said.get("url", "") is None:
            yield f"`transport: {transport}` needs a `url`"


class PromptToolSpec(ToolSpec):
    """A prompt that a model answers."""

    has_template = True

    type: Literal["prompt"]
    template: Words | None = None
    file: Words | None = None
    parameters: Annotated[Parameters, AfterValidator(_any)]
    model: LlmSpec | None = None
    """Default: the agent's own model."""

    @property
    def template_file(self) -> str | None:
        """File of the template."""
        return self.file

    def template_text(self, read: Callable[[str], str | None]) -> str | None:
        """Template from the spec or from its file."""
        return self.template if self.file is None else read(self.file)

    @classmethod
    def faults(cls, said: Mapping[str, Any]) -> Iterator[str]:
        """Report a missing or second source of the template."""
        fault = one_of(said, ("template", "file"))
        if fault:
            yield fault


TOOLS: Registry[Sequence[Tool]] = Registry(
    "kept.tools",
    {
        "function": f"{_KINDS}:FunctionToolComponent",
        "vectorstore": f"{_KINDS}:VectorstoreToolComponent",
        "hierarchical_document": f"{_KINDS}:HierarchicalDocumentToolComponent",
        "mcp": f"{_KINDS}:McpToolComponent",
        "prompt": f"{_KINDS}:PromptToolComponent",
    },
)
AnyToolSpec = Annotated[ToolSpec, TOOLS]
