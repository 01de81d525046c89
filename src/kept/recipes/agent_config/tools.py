"""Tools of an agent as components: from the spec to tools that a model can use.

Resources (processes, servers, indexes) are opened once for a run and shared by all candidates.
Values that a candidate may change (descriptions, numbers of a search) are looked up each time.
"""

from collections.abc import Callable, Hashable, Iterator, Sequence
from dataclasses import fields
from pathlib import Path
from typing import Any, Protocol, TypeVar, cast

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
    TOOLS,
    FunctionToolSpec,
    HierarchicalDocumentToolSpec,
    McpToolSpec,
    PromptToolSpec,
    SearchToolSpec,
    ToolSpec,
    VectorstoreToolSpec,
)
from kept.spec.components import Component
from kept.spec.yaml import Loc

S = TypeVar("S", bound=ToolSpec)
SearchT = TypeVar("SearchT", bound=SearchToolSpec)


class Closing(Protocol):
    """Object with an open resource."""

    async def close(self) -> None:
        """Release the resource."""
        ...


C = TypeVar("C", bound=Closing)


class Toolbox:
    """Open resources of the tools of one run."""

    def __init__(self, folder: Path, *, force: bool = False) -> None:
        self.folder = folder
        self.indexes = Indexes(force=force)
        self._shared: dict[Hashable, Closing] = {}
        self._models: dict[ModelConfig, Model] = {}
        self._embedders: dict[tuple[ModelConfig, int | None], Embedder] = {}

    async def tools(self, agent: ParsedAgent) -> tuple[Tool, ...] | Failure:
        """Tools of a candidate's agent, ready to be used."""
        found: list[Tool] = []
        for spec in agent.spec.tools:
            made = await _component(spec).open(spec, self, agent)
            if isinstance(made, Failure):
                return made
            found += made
        # servers name their tools themselves, and two servers may choose the same name
        return told_apart(found)

    def shared(self, key: Hashable, make: Callable[[], C]) -> C:
        """Resource shared by all candidates: made at first use, closed with the toolbox."""
        if key not in self._shared:
            self._shared[key] = make()
        return cast("C", self._shared[key])

    def model(self, config: ModelConfig) -> Model:
        """Model of a config, without a cache unless the config asks for one."""
        if config not in self._models:
            self._models[config] = connect_uncached(config)
        return self._models[config]

    def embedder(self, config: ModelConfig, dimensions: int | None) -> Embedder:
        """Embedding model of a config, with vectors of the given dimensions."""
        if (config, dimensions) not in self._embedders:
            self._embedders[config, dimensions] = make_embedder(config, dimensions)
        return self._embedders[config, dimensions]

    async def close(self) -> None:
        """Close all resources."""
        for one in self._shared.values():
            await one.close()
        self._shared.clear()
        await self.indexes.close()


class ToolComponent(Component[S, Sequence[Tool]]):
    """One kind of tool. A subclass names its `Spec`, and defines `open`."""

    async def open(self, spec: S, toolbox: Toolbox, agent: ParsedAgent) -> Sequence[Tool] | Failure:
        """Open the tools of a spec; their resources are in the toolbox."""
        raise NotImplementedError

    def model(self, spec: S, agent: AgentSpec, folder: Path) -> LlmSpec | None:
        """Model of the tool, besides the agent's own."""
        return None

    def problems(self, spec: S, agent: AgentSpec, folder: Path) -> Iterator[tuple[str, str | None]]:
        """Problems found by inspecting files or programs, each with a hint."""
        return iter(())

    def index(self, spec: S, folder: Path) -> IndexConfig | None:
        """Index that the tool searches."""
        return None

    def notes(self, spec: S, agent: AgentSpec, folder: Path) -> Iterator[str]:
        """Warnings before a run."""
        return iter(())


class FunctionToolComponent(ToolComponent[FunctionToolSpec]):
    """A function of a Python file."""

    Spec = FunctionToolSpec

    async def open(
        self, spec: FunctionToolSpec, toolbox: Toolbox, agent: ParsedAgent
    ) -> Sequence[Tool] | Failure:
        """Open the function, in processes shared by all candidates."""
        known = f"{spec.name} {spec.file} {spec.function} {spec.parameters}"
        made = toolbox.shared(known, lambda: FunctionTools(self._config(spec, toolbox.folder)))
        return await made.tools(spec.description)

    def notes(self, spec: FunctionToolSpec, agent: AgentSpec, folder: Path) -> Iterator[str]:
        """Warnings about the function's signature."""
        return iter(FunctionTools(self._config(spec, folder)).warnings)

    def _config(self, spec: FunctionToolSpec, folder: Path) -> FunctionConfig:
        return FunctionConfig(
            spec.name, spec.file, spec.function, folder, spec.description, spec.parameters
        )


class McpToolComponent(ToolComponent[McpToolSpec]):
    """A server of the Model Context Protocol, whose tools are offered to the model."""

    Spec = McpToolSpec

    async def open(
        self, spec: McpToolSpec, toolbox: Toolbox, agent: ParsedAgent
    ) -> Sequence[Tool] | Failure:
        """Tools of the server, which all candidates share."""
        # keys missing in the file have defaults
        known = {one.name for one in fields(McpConfig)}
        said = spec.model_dump(exclude_none=True)
        given = {name: said[name] for name in said if name in known}
        key = (McpServer, spec.name)
        server = toolbox.shared(key, lambda: McpServer(McpConfig(folder=toolbox.folder, **given)))
        return await server.tools()


class PromptToolComponent(ToolComponent[PromptToolSpec]):
    """A prompt that a model answers."""

    Spec = PromptToolSpec

    async def open(
        self, spec: PromptToolSpec, toolbox: Toolbox, agent: ParsedAgent
    ) -> Sequence[Tool] | Failure:
        """Build the tool, with its own model or the agent's."""
        llm = spec.model or agent.spec.model
        config = llm.config(toolbox.folder, timeout=agent.spec.execution.llm_timeout)
        prompt = agent.prompts[spec.name]
        told = PromptConfig(spec.name, prompt, spec.description, dict(spec.parameters))
        try:
            return (PromptTool(told, toolbox.model(config)),)
        except SetupError as error:
            return Failure("crash", "candidate", error.message)

    def model(self, spec: PromptToolSpec, agent: AgentSpec, folder: Path) -> LlmSpec | None:
        """Model of the tool, if it names one."""
        return spec.model


class SearchToolComponent(ToolComponent[SearchT]):
    """A search over documents."""

    made: Any
    """Config class of the index."""

    async def open(
        self, spec: SearchT, toolbox: Toolbox, agent: ParsedAgent
    ) -> Sequence[Tool] | Failure:
        """Build the search tool; the index is built once for all candidates."""
        try:
            embedding = self._embedding(spec, agent.spec, toolbox.folder)
            dimensions: int | None = getattr(spec, "embedding_dimensions", None)
            embedder = embedding and toolbox.embedder(embedding, dimensions)
            return (toolbox.indexes.tool(self.index(spec, toolbox.folder), embedder),)
        except SetupError as error:
            return Failure("harness", "infrastructure", error.message)

    def model(self, spec: SearchT, agent: AgentSpec, folder: Path) -> LlmSpec | None:
        """Embedding model, if the search needs one."""
        return _embedding_llm(spec, agent) if needs_embedder(self.index(spec, folder)) else None

    def problems(
        self, spec: SearchT, agent: AgentSpec, folder: Path
    ) -> Iterator[tuple[str, str | None]]:
        """Problems of the documents, and a missing model."""
        config = self.index(spec, folder)
        yield from ((problem, None) for problem in problems(config))
        if self._lacks_embedder(spec, agent, folder) and without_embedder(config) is None:
            yield (
                "a search by meaning needs a model that turns texts into vectors",
                "name an `embedding_provider`, or set `search_mode: keyword`",
            )

    def notes(self, spec: SearchT, agent: AgentSpec, folder: Path) -> Iterator[str]:
        """Notes on unsupported features, and on a search without an embedding model."""
        config = self.index(spec, folder)
        yield from (f"tool `{spec.name}`: {words}" for words in unsupported(config))
        if self._lacks_embedder(spec, agent, folder) and (words := without_embedder(config)):
            yield f"tool `{spec.name}`: {words}"

    def index(self, spec: SearchT, folder: Path) -> IndexConfig:
        """Config of the index; keys missing in the file have defaults."""
        known = {one.name for one in fields(self.made)}
        # unset keys are left out, because the index warns of unsupported keys that are set
        told = spec.model_dump(exclude={"database", "keyword_index"}, exclude_unset=True)
        said = {name: value for name, value in told.items() if value is not None and name in known}
        if spec.database is not None and spec.database.provider in STORES:
            said["database"] = Database(
                provider=spec.database.provider,
                connection_string=filled(spec.database.connection_string),
                options=filled(spec.database.options),
            )
        return self.made(**said, folder=folder)

    def _embedding(self, spec: SearchT, agent: AgentSpec, folder: Path) -> ModelConfig | None:
        llm = _embedding_llm(spec, agent)
        return llm and llm.config(folder, timeout=agent.execution.llm_timeout)

    def _lacks_embedder(self, spec: SearchT, agent: AgentSpec, folder: Path) -> bool:
        needed = needs_embedder(self.index(spec, folder))
        return needed and self._embedding(spec, agent, folder) is None


class VectorstoreToolComponent(SearchToolComponent[VectorstoreToolSpec]):
    """A search over documents by meaning."""

    Spec = VectorstoreToolSpec
    made = VectorStore


class HierarchicalDocumentToolComponent(SearchToolComponent[HierarchicalDocumentToolSpec]):
    """A search over documents that keeps their structure: by meaning, by words, or both."""

    Spec = HierarchicalDocumentToolSpec
    made = HierarchicalDocument


def _component(spec: ToolSpec) -> ToolComponent[ToolSpec]:
    return cast("ToolComponent[ToolSpec]", TOOLS.of(spec))


def _embedding_llm(spec: SearchToolSpec, agent: AgentSpec) -> LlmSpec | None:
    """Embedding model: the agent's, else one of the provider of its model."""
    provider = agent.embedding_provider or (agent.model if embeds(agent.model.provider) else None)
    if provider is None:
        return None
    named = agent.embedding_provider.name if agent.embedding_provider else None
    name = spec.embedding_model or named or USUAL.get(provider.provider)
    return None if name is None else provider.model_copy(update={"name": name})


def tool_models(agent: AgentSpec, folder: Path) -> Iterator[tuple[Loc, LlmSpec]]:
    """Models of an agent's tools, each with the location of the tool."""
    for number, spec in enumerate(agent.tools):
        llm = _component(spec).model(spec, agent, folder)
        if llm is not None:
            yield ("tools", number), llm


def tool_problems(agent: AgentSpec, folder: Path) -> Iterator[tuple[int, str, str | None]]:
    """Problems found by inspecting the tools: index of the tool, problem, hint."""
    for number, spec in enumerate(agent.tools):
        for problem, hint in _component(spec).problems(spec, agent, folder):
            yield number, problem, hint


def _replaced_stores(agent: AgentSpec) -> Iterator[str]:
    """Warn once about all stores that Kept does not connect to."""
    used: dict[str, list[str]] = {}
    for spec in agent.tools:
        for name in dict.fromkeys(spec.stores):
            if name not in STORES:
                used.setdefault(name, []).append(f"`{spec.name}`")
    if used:
        named = ", ".join(f"`{store}` ({', '.join(tools)})" for store, tools in used.items())
        yield f"Kept's built-in index is used instead of {named}: nothing is sent to such a store"


def _silent_servers(agent: AgentSpec, folder: Path) -> Iterator[str]:
    """Warn about each Qdrant server that does not answer now."""
    asked: list[Database] = []
    for spec in agent.tools:
        config = _component(spec).index(spec, folder)
        if config is None or config.database in (None, *asked) or problems(config):
            continue
        asked.append(config.database)
        if why := unanswered(config.database):
            yield f"tool `{spec.name}`: {why}; searches fail until it answers"


def tool_warnings(agent: AgentSpec, folder: Path) -> Iterator[str]:
    """Warnings about tools before a run."""
    yield from _replaced_stores(agent)
    yield from _silent_servers(agent, folder)
    for spec in agent.tools:
        yield from _component(spec).notes(spec, agent, folder)
