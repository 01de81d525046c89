"""`opencode run` of `opencode-ai`: chat completions or messages, one JSON object per line."""

import json
from collections.abc import Iterable, Mapping
from typing import Any

from kept.models.protocol import Taken
from kept.sandbox.coding_agents.definition import Cli, Event, Target, Told
from kept.sandbox.coding_agents.result import block, counts, status_in, status_of, text

_KEY = "KEPT_AGENT_KEY"

_PACKAGES = {"anthropic": "@ai-sdk/anthropic", "openai": "@ai-sdk/openai"}
"""npm package for each provider's protocol; all others use the OpenAI-compatible one."""


def _home(target: Target) -> Mapping[str, str]:
    url = target.base_url
    if target.provider == "anthropic":
        url = f"{url.removesuffix('/v1')}/v1"
    provider: dict[str, Any] = {
        "npm": _PACKAGES.get(target.provider, "@ai-sdk/openai-compatible"),
        "options": {"baseURL": url, "apiKey": f"{{env:{_KEY}}}"},
        "models": {target.model: {}},
    }
    config: dict[str, Any] = {
        "provider": {"kept": provider},
        "model": f"kept/{target.model}",
        "small_model": f"kept/{target.model}",
        "autoupdate": False,
        "share": "disabled",
        "permission": {"edit": "allow", "bash": "allow", "webfetch": "deny"},
    }
    return {".config/opencode/opencode.json": json.dumps(config)}


def _environment(target: Target) -> Mapping[str, str]:
    return {
        "OPENCODE_DISABLE_AUTOUPDATE": "1",
        "OPENCODE_DISABLE_LSP_DOWNLOAD": "1",
        "OPENCODE_DISABLE_MODELS_FETCH": "1",
    }


def _words(target: Target, session: str) -> list[str]:
    words = ["opencode", "run", "--format", "json", "--model", f"kept/{target.model}"]
    return [*words, "--session", session] if session else words


def _listen(events: Iterable[Event]) -> Told:
    told = Told()
    for event in events:
        told.session = str(event.get("sessionID") or told.session)
        part = block(event, "part")
        match event.get("type"):
            case "text":
                told.say(text(part, "text"))
            case "reasoning":
                told.think(text(part, "text"))
            case "tool_use":
                _used(told, part)
            case "step_finish":
                told.taken = _more(told.taken, block(part, "tokens"))
            case "error":
                error = block(event, "error")
                data = block(error, "data")
                told.error = str(data.get("message") or error.get("name") or "an error")
                told.status = status_of(data.get("statusCode")) or status_in(told.error)
            case _:
                pass
    return told


def _used(told: Told, part: dict[str, Any]) -> None:
    state = block(part, "state")
    given = block(state, "input")
    name = str(part.get("tool", ""))
    if "command" in given:
        what = f"$ {given['command']}"
    else:
        main = next(
            (str(given[key]) for key in ("filePath", "path", "pattern") if key in given), ""
        )
        what = f"{name} {main or json.dumps(given, ensure_ascii=False)}"
    failed = str(state.get("error", "")) if state.get("status") == "error" else ""
    code = block(state, "metadata").get("exit")
    told.use(what, text(state, "output"), failed or (f"exit {code}" if code else ""))


def _more(taken: Taken | None, tokens: Event) -> Taken | None:
    cached = counts(block(tokens, "cache"), "read", "write")
    counted = counts(tokens, "input", "output", "reasoning")
    # one impossible count makes the total unknown
    if taken is None or cached is None or counted is None:
        return None
    # `input` excludes cached tokens, and `output` excludes reasoning
    (read, written), (fresh, said, thought) = cached, counted
    out = said + thought
    return Taken(
        taken.tokens_in + fresh + read + written,
        taken.tokens_out + out,
        taken.cached + read,
        taken.written + written,
    )


OPENCODE = Cli(
    name="opencode_exec",
    program="opencode",
    package="opencode-ai",
    providers=("openai_compatible", "openai", "anthropic", "ollama"),
    efforts=(),
    key=_KEY,
    shell="BASH_ENV",
    short="opencode",
    instructions="AGENTS.md",
    skills=".claude/skills",
    sessions="",
    home=_home,
    environment=_environment,
    words=_words,
    listen=_listen,
)
