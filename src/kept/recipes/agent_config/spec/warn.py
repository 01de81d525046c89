"""What is in order in an agent.yaml, and may not be what was meant."""

from collections.abc import Iterator, Sequence
from urllib.parse import urlsplit

from kept.core.words import count
from kept.models.config import REFERENCE
from kept.models.providers import PROVIDERS
from kept.recipes.agent_config.spec.agent import AgentSpec
from kept.recipes.agent_config.spec.cases import ExpectedToolSpec, TestCaseSpec
from kept.recipes.agent_config.spec.llm import NEVER_ASKED, LlmSpec
from kept.recipes.agent_config.spec.metrics import is_judged
from kept.recipes.agent_config.spec.tools import AnyToolSpec, DatabaseSpec, McpToolSpec
from kept.settings import names_secret, variable


def warnings_of(spec: AgentSpec, cases: Sequence[TestCaseSpec]) -> Iterator[str]:
    """What to tell about an agent and its cases."""
    if spec.model.auth_provider in NEVER_ASKED:
        yield _other_key(spec.model)
    own = [
        m.key for m in spec.metrics if m.enabled and is_judged(m) and spec.judge_of(m) is spec.model
    ]
    if own:
        names = ", ".join(f"`{key}`" for key in own)
        yield f"the agent's own model judges {names}: name another in `evaluations.model`"
    yield from _open_secrets(spec)
    yield from _never_used(spec, cases)


def _other_key(model: LlmSpec) -> str:
    """That Kept needs a key where the file has another way to be let in."""
    said = f"`model.auth_provider: {model.auth_provider}` is not used: Kept asks Anthropic with"
    if model.api_key is not None:
        return f"{said} `model.api_key`"
    name = PROVIDERS[model.provider].key_variable or ""
    lacks = ", which is not set: set it before a run" if variable(name) is None else ""
    return f"{said} {name}{lacks}"


def _open_secrets(spec: AgentSpec) -> Iterator[str]:
    """Secrets that stand in the file itself, and so in every record of a run."""
    for number, tool in enumerate(spec.tools):
        for key, value in _secret_places(tool):
            if isinstance(value, str) and not REFERENCE.search(value):
                place = f"tools[{number}].{key}"
                yield f"`{place}` holds a secret for all to read: write ${{NAME}} for it"


def _secret_places(tool: AnyToolSpec) -> Iterator[tuple[str, object]]:
    if isinstance(tool, McpToolSpec):
        for name, held in (("env", tool.env), ("headers", tool.headers)):
            for key, value in (held or {}).items():
                if names_secret(key):
                    yield f"{name}.{key}", value
    database = getattr(tool, "database", None)
    if isinstance(database, DatabaseSpec):
        for key, value in database.options.items():
            if names_secret(key):
                yield f"database.{key}", value
        if urlsplit(database.connection_string or "").password:
            yield "database.connection_string", database.connection_string


def _never_used(spec: AgentSpec, cases: Sequence[TestCaseSpec]) -> Iterator[str]:
    """Tools that cases expect and the agent has not; a server tells its own when it is asked."""
    if any(isinstance(tool, McpToolSpec) for tool in spec.tools):
        return
    names = [tool.name for tool in spec.tools]
    lacking: dict[str, int] = {}
    for case in cases:
        expected = [e for turn in case.exchanges for e in turn.expected_tools or ()]
        for name in {e.name for e in expected if not _is_there(e, names)}:
            lacking[name] = lacking.get(name, 0) + 1
    for name, number in lacking.items():
        verb = "expects" if number == 1 else "expect"
        yield f"the agent has no tool `{name}`, which {count(number, 'case')} {verb} to be used"


def _is_there(expected: ExpectedToolSpec, names: Sequence[str]) -> bool:
    if expected.match == "contains":
        return any(expected.name in name for name in names)
    return expected.name in names
