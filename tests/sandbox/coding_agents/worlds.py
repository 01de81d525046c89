"""Scripted models for the real CLIs: each is told which of its tools to use, as a model would."""

import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from zlib import crc32

from kept.core.llm import ModelReply, ToolCall
from kept.core.rollout import Failure, Rollout
from kept.models.providers import ModelConfig
from kept.sandbox.coding_agents.definition import Cli, Errand, program_of
from kept.sandbox.coding_agents.run import CLIS, Harness
from kept.sandbox.command import Command, View
from kept.sandbox.workspace import Scratch
from kept.testing.server import Fault, ModelServer, Seen

KEYS = {
    "codex_exec": "OPENAI_API_KEY",
    "claude_code_exec": "ANTHROPIC_API_KEY",
    "opencode_exec": "OPENAI_COMPATIBLE_API_KEY",
}
"""Where the key of the provider that a test uses is looked for."""

_SHELLS = {
    "codex_exec": ("exec_command", "cmd"),
    "claude_code_exec": ("Bash", "command"),
    "opencode_exec": ("bash", "command"),
}

Line = str | ModelReply | Fault


def shell(name: str, line: str, text: str = "") -> ModelReply:
    """A reply that asks for a shell command, after some words."""
    tool, key = _SHELLS[name]
    given = json.dumps({key: line, "description": "what it does"})
    return ModelReply(text, tool_calls=(ToolCall(f"call_{crc32(line.encode())}", tool, given),))


def script(*lines: Line) -> Callable[[Seen], Line]:
    """Replies by how many tools gave something back in the conversation; the last for all more.

    Requests without tools are for titles and the like.
    """

    def reply(seen: Seen) -> Line:
        if not seen.tools:
            return "a title"
        return lines[min(len(seen.tool_results), len(lines) - 1)]

    return reply


def config(name: str, server: ModelServer) -> ModelConfig:
    if name == "claude_code_exec":
        return ModelConfig(provider="anthropic", model="claude-sonnet-4-5", base_url=server.url)
    provider = "openai" if name == "codex_exec" else "openai_compatible"
    return ModelConfig(provider=provider, model="gpt-5-mini", base_url=server.v1)


def harness(
    name: str, server: ModelServer, tree: Path, *, seconds: float = 60, walls: bool = True
) -> Harness:
    program = program_of(CLIS[name])
    seen = program.folders if program else ()
    view = View(tree, hidden=(tree,), seen=seen, network="on", bare=True, walls=walls)
    command = Command("", tree, seconds, view=view)
    return Harness(CLIS[name], config(name, server), command, Scratch())


def cli_of(name: str) -> Cli:
    return CLIS[name]


async def send(made: Harness, errand: Errand) -> Rollout | Failure:
    try:
        return await made.run(errand)
    finally:
        made.scratch.close()


def roles(rollout: Rollout) -> Sequence[str]:
    return [item.role for item in rollout.trace]


def data(**files: str) -> Mapping[str, bytes]:
    return {name.replace("_", "."): text.encode() for name, text in files.items()}
