"""A process that has tools open and uses them, to be killed: `python kill_target.py FOLDER`."""

import asyncio
import sys
from pathlib import Path

from kept.engine.replay import JournalScope
from kept.evaluators.tools.function import FunctionConfig, FunctionTools
from kept.evaluators.tools.mcp import McpConfig, McpServer
from kept.testing import MemoryJournal

PLAIN = Path(__file__).with_name("plain_server.py")


async def main(folder: Path) -> None:
    (folder / "slow.py").write_text("import time\ndef wait(): time.sleep(300)\n")
    functions = FunctionTools(FunctionConfig("wait", "slow.py", "wait", folder))
    words = (str(PLAIN), str(folder / "server"), "--with-child")
    server = McpServer(McpConfig("shop", folder, command="python", args=words))
    waits, found = await functions.tools(), await server.tools()
    assert isinstance(waits, tuple) and isinstance(found, tuple), (waits, found)
    (folder / "function").write_text(str(functions._pool._idle[0]._process.pid))
    hangs = {tool.name: tool for tool in found}["hang"]
    scope = JournalScope(MemoryJournal(), "scope")
    uses = asyncio.gather(waits[0].use({}, scope), hangs.use({}, scope))
    await asyncio.sleep(0.2)
    (folder / "ready").write_text("1")
    await uses


if __name__ == "__main__":
    asyncio.run(main(Path(sys.argv[1])))
