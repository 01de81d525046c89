"""The tools of an agent, from what its file says to what a model may use.

What tools have open (processes, servers, indexes) is opened once for a run, and shared by all
candidates. What a candidate may change (descriptions, numbers of a search) is looked up each time.
"""

from collections.abc import Iterator, Sequence
from dataclasses import fields
from pathlib import Path
from typing import Any

from kept.core.ports import Embedder, Model, Tool
from kept.core.rollout import Failure
from kept.errors import SetupError
from kept.evaluators.tools.function import FunctionConfig, FunctionTools, PromptConfig, PromptTool
from kept.evaluators.tools.mcp import McpConfig, McpServer, told_apart
from kept.evaluators.tools.retrieval.config import (
    STORES,
    Database,
    HierarchicalDocument,
    IndexConfig,
    VectorStore,
)
from kept.evaluators.tools.retrieval.ranking import unanswered
from kept.evaluators.tools.retrieval.tool import (
    Indexes,
    needs_embedder,
    problems,
    unsupported,
    without_embedder,
)
from kept.models.embeddings import USUAL, embeds, make_embedder
from kept.models.providers import ModelConfig
from kept.models.roles import connect_uncached
from kept.recipes.agent_config.spec.agent import AgentSpec
from kept.recipes.agent_config.spec.common import LlmSpec
from kept.recipes.agent_config.spec.config import filled
from kept.recipes.agent_config.spec.read import ParsedAgent
from kept.recipes.agent_config.spec.tools import (
    FunctionToolSpec,
    HierarchicalDocumentToolSpec,
    McpToolSpec,
    PromptToolSpec,
    VectorstoreToolSpec,
)
from kept.spec.yaml import Loc

IndexSpec = VectorstoreToolSpec | HierarchicalDocumentToolSpec


class Toolbox:
    """What the tools of one run have open."""

    def __init__(self, folder: Path, *, force: bool = False) -> None:
        self._folder = folder
        self._functions: dict[str, FunctionTools] = {}
        self._servers: dict[str, McpServer] = {}
        self._models: dict[ModelConfig, Model] = {}
        self._indexes = Indexes(force=force)
        self._embedders: dict[tuple[ModelConfig, int | None], Embedder] = {}

    async def tools(self, agent: ParsedAgent) -> tuple[Tool, ...] | Failure:
        """The tools of an agent as a candidate has it, ready to be used."""
        found: list[Tool] = []
        for spec in agent.spec.tools:
            made = await self._made(spec, agent)
            if isinstance(made, Failure):
                return made
            found += made
        # servers name their tools themselves, and two may choose the same name
        return told_apart(found)

    async def close(self) -> None:
        """Close all of it."""
        for functions in self._functions.values():
            await functions.close()
        for server in self._servers.values():
            await server.close()
        self._functions.clear()
        self._servers.clear()
        await self._indexes.close()

    async def _made(self, spec: object, agent: ParsedAgent) -> Sequence[Tool] | Failure:
        match spec:
            case FunctionToolSpec():
                return await self._function(spec).tools(spec.description)
            case VectorstoreToolSpec() | HierarchicalDocumentToolSpec():
                config = index_config(spec, self._folder)
                try:
                    return (self._indexes.tool(config, self._embedder(spec, agent.spec)),)
                except SetupError as error:
                    return Failure("harness", "infrastructure", error.message)
            case McpToolSpec():
                return await self._server(spec).tools()
            case PromptToolSpec():
                return self._prompt(spec, agent)
            case _:
                raise AssertionError(f"{spec} is a tool of no kind")

    def _server(self, spec: McpToolSpec) -> McpServer:
        if spec.name not in self._servers:
            # what the file leaves out has its default
            known = {one.name for one in fields(McpConfig)}
            said = spec.model_dump(exclude_none=True)
            given = {name: said[name] for name in said if name in known}
            self._servers[spec.name] = McpServer(McpConfig(folder=self._folder, **given))
        return self._servers[spec.name]

    def _prompt(self, spec: PromptToolSpec, agent: ParsedAgent) -> Sequence[Tool] | Failure:
        llm = spec.model or agent.spec.model
        config = llm.config(self._folder, timeout=agent.spec.execution.llm_timeout)
        if config not in self._models:
            self._models[config] = connect_uncached(config)
        told = PromptConfig(
            spec.name, agent.prompts[spec.name], spec.description, dict(spec.parameters)
        )
        try:
            return (PromptTool(told, self._models[config]),)
        except SetupError as error:
            return Failure("crash", "candidate", error.message)

    def _function(self, spec: FunctionToolSpec) -> FunctionTools:
        known = f"{spec.name} {spec.file} {spec.function} {spec.parameters}"
        if known not in self._functions:
            self._functions[known] = FunctionTools(function_config(spec, self._folder))
        return self._functions[known]

    def _embedder(self, spec: IndexSpec, agent: AgentSpec) -> Embedder | None:
        config = embedding_config(spec, agent, self._folder)
        if config is None:
            return None
        dimensions = getattr(spec, "embedding_dimensions", None)
        if (config, dimensions) not in self._embedders:
            self._embedders[config, dimensions] = make_embedder(config, dimensions)
        return self._embedders[config, dimensions]


def function_config(spec: FunctionToolSpec, folder: Path) -> FunctionConfig:
    """A function as its process is started."""
    return FunctionConfig(
        spec.name,
        spec.file,
        spec.function,
        folder,
        spec.description,
        spec.parameters,
    )


def index_config(spec: IndexSpec, folder: Path) -> IndexConfig:
    """An index as it is taken in and searched; what the file leaves out has its default."""
    made: Any = VectorStore if isinstance(spec, VectorstoreToolSpec) else HierarchicalDocument
    known = {one.name for one in fields(made)}
    # what the file does not say is left to the index: nobody is to be warned of a default
    told = spec.model_dump(exclude={"database", "keyword_index"}, exclude_unset=True)
    said = {name: value for name, value in told.items() if value is not None and name in known}
    if spec.database is not None and spec.database.provider in STORES:
        said["database"] = Database(
            provider=spec.database.provider,
            connection_string=filled(spec.database.connection_string),
            options=filled(spec.database.options),
        )
    return made(**said, folder=folder)


def embedding_config(spec: IndexSpec, agent: AgentSpec, folder: Path) -> ModelConfig | None:
    """The model that turns texts into vectors: the agent's, else one of its model's provider."""
    llm = _embedding_llm(spec, agent)
    return llm and llm.config(folder, timeout=agent.execution.llm_timeout)


def _embedding_llm(spec: IndexSpec, agent: AgentSpec) -> LlmSpec | None:
    provider = agent.embedding_provider or (agent.model if embeds(agent.model.provider) else None)
    if provider is None:
        return None
    named = agent.embedding_provider.name if agent.embedding_provider else None
    name = spec.embedding_model or named or USUAL.get(provider.provider)
    return None if name is None else provider.model_copy(update={"name": name})


def tool_models(agent: AgentSpec, folder: Path) -> Iterator[tuple[Loc, LlmSpec]]:
    """Models that the tools of an agent ask, each with the tool that does."""
    for number, spec in enumerate(agent.tools):
        llm: LlmSpec | None = None
        if isinstance(spec, PromptToolSpec):
            llm = spec.model
        elif isinstance(spec, IndexSpec) and needs_embedder(index_config(spec, folder)):
            llm = _embedding_llm(spec, agent)
        if llm is not None:
            yield ("tools", number), llm


def tool_problems(agent: AgentSpec, folder: Path) -> Iterator[tuple[int, str, str | None]]:
    """What is wrong with tools that only looking at them tells: number, problem, hint."""
    for number, spec in enumerate(agent.tools):
        if isinstance(spec, IndexSpec):
            config = index_config(spec, folder)
            yield from ((number, problem, None) for problem in problems(config))
            lacks = embedding_config(spec, agent, folder) is None and needs_embedder(config)
            if lacks and without_embedder(config) is None:
                yield (
                    number,
                    "a search by meaning needs a model that turns texts into vectors",
                    "name an `embedding_provider`, or set `search_mode: keyword`",
                )


def _replaced_stores(agent: AgentSpec) -> Iterator[str]:
    """Warn once of all stores that an agent names and Kept does not connect to."""
    used: dict[str, list[str]] = {}
    for spec in agent.tools:
        if isinstance(spec, IndexSpec):
            stores = (spec.database, getattr(spec, "keyword_index", None))
            names = dict.fromkeys(store.provider for store in stores if store is not None)
            for name in names:
                if name not in STORES:
                    used.setdefault(name, []).append(f"`{spec.name}`")
    if used:
        named = ", ".join(f"`{store}` ({', '.join(tools)})" for store, tools in used.items())
        yield f"Kept's built-in index is used instead of {named}: nothing is sent to such a store"


def _silent_servers(agent: AgentSpec, folder: Path) -> Iterator[str]:
    """Warn of each Qdrant server that does not answer now."""
    asked: list[Database] = []
    for spec in agent.tools:
        if not isinstance(spec, IndexSpec):
            continue
        config = index_config(spec, folder)
        if config.database in (None, *asked) or problems(config):
            continue
        asked.append(config.database)
        if why := unanswered(config.database):
            yield f"tool `{spec.name}`: {why}; searches fail until it answers"


def tool_warnings(agent: AgentSpec, folder: Path) -> Iterator[str]:
    """What should be known of tools before a run."""
    yield from _replaced_stores(agent)
    yield from _silent_servers(agent, folder)
    for spec in agent.tools:
        if isinstance(spec, FunctionToolSpec):
            yield from FunctionTools(function_config(spec, folder)).warnings
        if isinstance(spec, IndexSpec):
            config = index_config(spec, folder)
            yield from (f"tool `{spec.name}`: {words}" for words in unsupported(config))
            lacks = embedding_config(spec, agent, folder) is None and needs_embedder(config)
            if lacks and (words := without_embedder(config)):
                yield f"tool `{spec.name}`: {words}"
