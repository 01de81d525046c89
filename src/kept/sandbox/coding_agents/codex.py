"""`codex exec` of `@openai/codex`: OpenAI responses protocol, one JSON object per line."""

import json
import shlex
from collections.abc import Iterable, Mapping
from typing import Any

from kept.models.protocol import Taken, mapping
from kept.sandbox.coding_agents.definition import TRIES, Cli, Event, Target, Told
from kept.sandbox.coding_agents.result import block, blocks, counts, status_in, text

_KEY = "OPENAI_API_KEY"

# `inherit = "core"`: tools get only harmless variables, and so not the key
_CONFIG = """\
model = {model}
model_provider = "kept"
{effort}check_for_update_on_startup = false

[model_providers.kept]
name = "kept"
base_url = {url}
wire_api = "responses"
env_key = "{key}"
request_max_retries = {tries}
stream_max_retries = {tries}

[shell_environment_policy]
inherit = "core"

[analytics]
enabled = false

[history]
persistence = "none"
"""


def _home(target: Target) -> Mapping[str, str]:
    effort = f"model_reasoning_effort = {json.dumps(target.effort)}\n" if target.effort else ""
    # a JSON string is also a valid TOML string
    model, url = json.dumps(target.model), json.dumps(target.base_url)
    text = _CONFIG.format(model=model, url=url, effort=effort, key=_KEY, tries=TRIES)
    return {".codex/config.toml": text}


def _environment(target: Target) -> Mapping[str, str]:
    return {}


def _words(target: Target, session: str) -> list[str]:
    # its own sandbox does not work inside ours, and is not needed
    words = ["codex", "exec", "--json", "--skip-git-repo-check"]
    words += ["--dangerously-bypass-approvals-and-sandbox"]
    return [*words, "resume", session, "-"] if session else [*words, "-"]


def _listen(events: Iterable[Event]) -> Told:
    told = Told()
    begun: dict[str, str] = {}
    for event in events:
        item = block(event, "item")
        match event.get("type"):
            case "thread.started":
                told.session = str(event.get("thread_id", ""))
            case "item.started" if item.get("type") == "command_execution":
                begun[str(item.get("id"))] = _asked(str(item.get("command", "")))
            case "item.completed":
                begun.pop(str(item.get("id")), None)
                _item(told, item)
            case "turn.completed":
                found = counts(block(event, "usage"), *_COUNTS)
                told.taken = None if found is None else Taken(*found)
            case "turn.failed":
                told.error = text(block(event, "error"), "message")
                told.status = status_in(told.error)
            case "error":
                message = text(event, "message")
                # any other error ends the turn and is reported by `turn.failed`
                if message.startswith("Reconnecting"):
                    told.wait(message)
            case _:
                pass
    for command in begun.values():
        told.use(f"$ {command}", failed="did not end")
    return told


def _item(told: Told, item: dict[str, Any]) -> None:
    match item.get("type"):
        case "agent_message":
            told.say(text(item, "text"))
        case "reasoning":
            told.think(text(item, "text"))
        case "command_execution":
            code = item.get("exit_code")
            failed = "" if code == 0 else f"exit {code}" if code is not None else "no exit code"
            output = text(item, "aggregated_output")
            told.use(f"$ {_asked(text(item, 'command'))}", output, failed)
        case "file_change":
            changes = blocks(item, "changes")
            parts = [f"{change.get('kind', '')} {change.get('path', '')}" for change in changes]
            failed = "" if item.get("status") == "completed" else str(item.get("status", ""))
            told.use(f"edit {', '.join(parts)}", failed=failed)
        case "mcp_tool_call":
            name = f"{item.get('server', '')}.{item.get('tool', '')}"
            error = block(item, "error")
            given = json.dumps(item.get("arguments"), ensure_ascii=False)
            told.use(f"{name} {given}", failed=text(error, "message"))
        case "web_search":
            told.use(f"search {item.get('query', '')}")
        case "error":
            told.note(text(item, "message"))
        case _:
            pass


def _asked(command: str) -> str:
    """Command that the model wanted, without the shell around it."""
    try:
        words = shlex.split(command)
    except ValueError:
        return command
    shell = len(words) == 3 and words[1] in ("-lc", "-c")
    return words[2] if shell else command


_COUNTS = ("input_tokens", "output_tokens", "cached_input_tokens", "cache_write_input_tokens")


def _ends_step(line: Event) -> bool:
    """True if a line of a session ends a step, as the events count them."""
    payload = mapping(line.get("payload"))
    if line.get("type") != "response_item":
        return False
    kind = str(payload.get("type", ""))
    message = kind == "message" and payload.get("role") == "assistant"
    return message or kind.endswith("_call_output")


def _session_file(session: str, cwd: str) -> str:
    # it searches for the id, so any date will do
    return f"2000/01/01/rollout-2000-01-01T00-00-00-{session}.jsonl"


CODEX = Cli(
    name="codex_exec",
    program="codex",
    package="@openai/codex",
    providers=("openai", "openai_compatible"),
    efforts=("minimal", "low", "medium", "high"),
    key=_KEY,
    shell="",
    short="codex",
    instructions="AGENTS.md",
    skills=".agents/skills",
    sessions=".codex/sessions",
    home=_home,
    environment=_environment,
    words=_words,
    listen=_listen,
    session_file=_session_file,
    ends_step=_ends_step,
)
