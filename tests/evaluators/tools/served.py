"""Tools of a server, however it is reached: what the tests of pipes and of HTTP have in common."""

from abc import abstractmethod
from collections.abc import Mapping

from kept.core.llm import ToolAnswer
from kept.core.ports import Tool
from kept.engine.replay import JournalScope
from kept.evaluators.tools.mcp import McpServer, McpTool
from kept.testing import MemoryJournal, ToolSuite


def scope() -> JournalScope:
    return JournalScope(MemoryJournal(), "scope")


async def tools_of(server: McpServer) -> dict[str, McpTool]:
    tools = await server.tools()
    assert isinstance(tools, tuple), tools
    return {tool.name: tool for tool in tools}


async def answer(tool: Tool, **arguments: object) -> ToolAnswer:
    answered = await tool.use(arguments, scope())
    assert isinstance(answered, ToolAnswer), answered
    return answered


class ServedSuite(ToolSuite):
    """The suite of tools for a server that has `echo` and `hang`."""

    _server: McpServer | None = None

    @abstractmethod
    def server(self) -> McpServer:
        """The server, not yet opened."""

    async def _open(self, name: str) -> Tool:
        self._server = self._server or self.server()
        return (await tools_of(self._server))[name]

    async def open_tool(self) -> Tool:
        return await self._open("echo")

    async def open_hanging_tool(self) -> Tool | None:
        return await self._open("hang")

    async def close(self) -> None:
        assert self._server is not None
        await self._server.close()

    def arguments(self) -> Mapping[str, object]:
        return {"text": "hello"}
