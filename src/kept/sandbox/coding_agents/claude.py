"""`claude -p` of `@anthropic-ai/claude-code`: Anthropic messages, one JSON object per line."""

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from kept.core.untyped import is_list
from kept.models.protocol import Taken, mapping, maps
from kept.sandbox.coding_agents.definition import TRIES, Cli, Event, Target, Told
from kept.sandbox.coding_agents.result import block, blocks, counts, status_in, status_of, text

_TOOLS = ("Bash", "Edit", "Glob", "Grep", "NotebookEdit", "Read", "Skill", "TodoWrite", "Write")
"""Tools that it may use without asking, since no user is present."""

_SAID = ("command", "file_path", "path", "pattern", "skill", "url", "query", "description")
"""Most telling fields of a tool's input; the first one present is shown."""


def _home(target: Target) -> Mapping[str, str]:
    # otherwise it would start its onboarding
    return {".claude.json": json.dumps({"hasCompletedOnboarding": True})}


def _environment(target: Target) -> Mapping[str, str]:
    return {
        "ANTHROPIC_BASE_URL": target.base_url.removesuffix("/v1"),
        "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
        "CLAUDE_CODE_MAX_RETRIES": str(TRIES),
        "DISABLE_AUTOUPDATER": "1",
    }


def _words(target: Target, session: str) -> list[str]:
    words = ["claude", "-p", "--output-format", "stream-json", "--verbose"]
    words += ["--model", target.model, "--permission-mode", "acceptEdits"]
    words += ["--allowedTools", ",".join(_TOOLS)]
    words += ["--effort", target.effort] if target.effort else []
    return [*words, "--resume", session] if session else words


def _listen(events: Iterable[Event]) -> Told:
    told = Told()
    used: dict[str, str] = {}
    for event in events:
        told.session = str(event.get("session_id") or told.session)
        match event.get("type"):
            case "assistant":
                for part in _blocks(event):
                    _said(told, part, used)
            case "user":
                for part in _blocks(event):
                    _given_back(told, part, used)
            case "system" if event.get("subtype") == "api_retry":
                told.wait(f"{event.get('error_status') or ''} {event.get('error', '')}".strip())
            case "result":
                _result(told, event)
            case _:
                pass
    # tool calls without a result, such as at a timeout
    for what in used.values():
        told.use(what, failed="did not end")
    return told


def _blocks(event: Event) -> Iterator[dict[str, Any]]:
    message = block(event, "message")
    # its own text about a provider error is no message of a model
    if message.get("model") == "<synthetic>":
        return
    # the content of a user message may be a plain text, which `maps` skips
    yield from maps(message.get("content"))


def _said(told: Told, part: dict[str, Any], used: dict[str, str]) -> None:
    match part.get("type"):
        case "text":
            told.say(text(part, "text"))
        case "thinking":
            told.think(text(part, "thinking"))
        case "tool_use":
            name, given = str(part.get("name")), block(part, "input")
            if name == "Bash":
                use = f"$ {given.get('command', '')}"
            else:
                main = next((str(given[key]) for key in _SAID if key in given), "")
                use = f"{name} {main or json.dumps(given, ensure_ascii=False)}"
            used[str(part.get("id"))] = use
        case _:
            pass


def _given_back(told: Told, part: dict[str, Any], used: dict[str, str]) -> None:
    if part.get("type") != "tool_result":
        return
    what = used.pop(str(part.get("tool_use_id")), "a tool")
    content = part.get("content")
    if isinstance(content, str):
        output = content
    else:
        rows = blocks(part, "content")
        output = "\n".join(str(row.get("text", f"[{row.get('type')}]")) for row in rows)
    told.use(what, output, "failed" if part.get("is_error") else "")


def _result(told: Told, event: Event) -> None:
    told.taken = _taken(block(event, "usage"))
    result = text(event, "result")
    if event.get("stop_reason") == "refusal":
        told.stop = "refusal"
    elif not event.get("is_error"):
        told.final = result.strip()
    elif str(event.get("subtype", "")).startswith("error_max"):
        told.stop = str(event["subtype"])
    else:
        errors: object = event.get("errors") or event.get("subtype")
        listed = errors if is_list(errors) else [errors]
        told.error = result or "; ".join(map(str, listed))
        told.status = status_of(event.get("api_error_status")) or status_in(told.error)


def _taken(usage: Event) -> Taken | None:
    names = ("input_tokens", "cache_read_input_tokens", "cache_creation_input_tokens")
    found = counts(usage, *names, "output_tokens")
    if found is None:
        return None
    fresh, read, written, said = found
    return Taken(fresh + read + written, said, read, written)


def _ends_step(line: Event) -> bool:
    """True if a line of a session ends a step, as the events count them."""
    wanted = {"assistant": "text", "user": "tool_result"}.get(str(line.get("type")))
    message = mapping(line.get("message"))
    return any(part.get("type") == wanted for part in maps(message.get("content")))


def _session_file(session: str, cwd: str) -> str:
    return f"{re.sub('[^A-Za-z0-9]', '-', cwd)}/{session}.jsonl"


CLAUDE = Cli(
    name="claude_code_exec",
    program="claude",
    package="@anthropic-ai/claude-code",
    providers=("anthropic",),
    efforts=("low", "medium", "high"),
    key="ANTHROPIC_API_KEY",
    shell="CLAUDE_ENV_FILE",
    short="claude",
    instructions="CLAUDE.md",
    skills=".claude/skills",
    sessions=".claude/projects",
    home=_home,
    environment=_environment,
    words=_words,
    listen=_listen,
    session_file=_session_file,
    ends_step=_ends_step,
)
