"""Tunable values and texts of an agent, and validation of edits before a run.

A tunable value changes only the agent's behaviour. Excluded are the measurement, locations,
possible secrets, and values that would rebuild an index or restart a server. Texts are found
in the agent.yaml or in separate files. An edit is validated by applying it and reading the agent
again.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from difflib import get_close_matches
from typing import Any, NamedTuple, cast, get_args

from pydantic import BaseModel

from kept.core.artifact import Artifact, Candidate, NoSpan, Rules
from kept.core.edit import Edit, apply_edits
from kept.proposers.text_units import TextAxis
from kept.recipes.agent_config.spec.agent import AgentSpec
from kept.recipes.agent_config.spec.common import clean
from kept.recipes.agent_config.spec.config import may_be_secret
from kept.recipes.agent_config.spec.optimizer import BLOCK, DemosAxisSpec, TextualAxisSpec
from kept.recipes.agent_config.spec.read import ParsedAgent, ReadAgent, parse_agent
from kept.recipes.agent_config.spec.tools import AnyToolSpec, SearchToolSpec
from kept.recipes.agent_config.tools import tool_problems
from kept.spec.locate.tree import Part, Selector, locate_or_insert, parse_path, show_path
from kept.spec.source import kind_of
from kept.spec.yaml import Loc

TOLD = 3
"""Number of problems that a message shows."""


def try_edits(read: ReadAgent, edits: Sequence[Edit]) -> ParsedAgent | str:
    """Agent after edits, or its problems as text."""
    texts = read.agent.texts
    rules = Rules({name: Artifact(name) for name in texts})
    made = apply_edits(Candidate(texts), edits, rules, locate_or_insert)
    for report in made.reports:
        if report.fate not in ("applied", "no change"):
            return report.detail
    parsed = parse_agent(read.place, made.candidate.texts)
    if isinstance(parsed, tuple):
        return "; ".join(
            f"{one.path}: {one.message}" if one.path else one.message for one in parsed[:TOLD]
        )
    folder = read.place.folder
    # only new problems count: the edits did not cause the others
    before = {*tool_problems(read.agent.spec, folder)}
    new = [problem for problem in tool_problems(parsed.spec, folder) if problem not in before]
    if new:
        return "; ".join(words for _, words, _ in new[:TOLD])
    return parsed


UNSET: Mapping[str, float] = {"top_p": 1.0, "min_score": 0.0, "min_similarity_score": 0.0}
"""Values that are equivalent to leaving these keys out."""

_MODEL = ("temperature", "top_p", "max_tokens", "name")
_ENGINE = ("max_turns", "effort")
_AGAIN = SearchToolSpec.why_fixed
_AWAY = "it leads elsewhere: another place is another agent"
_NOTHING = "nothing that the agent does depends on it"
_TEXT = "it is a text: make it a textual axis"

_MEASURE = ("evaluations", "test_cases", "test_cases_file", "execution")
_ELSEWHERE = (
    *("provider", "endpoint", "api_version", "auth_provider", "database", "connection_string"),
    *("url", "command", "args", "env_file", "transport", "file", "function", "source"),
)
_CARRIED = (
    *("enable_reranking", "reranker_model", "extract_definitions", "extract_cross_references"),
    "defer_loading",
)


class Found(NamedTuple):
    """A value in an agent's spec."""

    value: Any
    kind: object
    """Type of the value in the spec; None if any is allowed."""
    loc: Loc
    """Location of the value, with list items by index."""


def look(spec: AgentSpec, parts: Sequence[Part]) -> Found | str:
    """Find the value of a path, with defaults; a message if there is none."""
    found = Found(spec, AgentSpec, ())
    for at, part in enumerate(parts):
        below = _below(found, part)
        if below is None:
            return _missing(found, part, show_path(tuple(parts[:at])))
        found = below
    return found


def _below(found: Found, part: Part) -> Found | None:
    value, kind, loc = found
    model = type(value) if isinstance(value, BaseModel) else _model_in(kind)
    if isinstance(part, str) and model is not None:
        if part not in model.model_fields:
            return None
        field = model.model_fields[part]
        # a missing value has its default
        default = None if field.is_required() else field.get_default()
        inner = default if value is None else getattr(value, part)
        return Found(inner, field.annotation, (*loc, part))
    if isinstance(part, str) and isinstance(value, Mapping):
        given = cast("Mapping[str, Any]", value)
        return Found(given[part], None, (*loc, part)) if part in given else None
    if isinstance(value, tuple | list):
        rows = list(cast("Sequence[Any]", value))
        for number, row in enumerate(rows):
            if part == number or (isinstance(part, Selector) and _has(row, part)):
                return Found(row, None, (*loc, number))
    return None


def _has(row: object, selector: Selector) -> bool:
    value: object = getattr(row, selector.field, None)
    return value is not None and str(value) == selector.value


def _missing(found: Found, part: Part, here: str) -> str:
    value, kind, _ = found
    where = f"`{here}`" if here else "the agent"
    model = type(value) if isinstance(value, BaseModel) else _model_in(kind)
    if isinstance(part, str) and model is not None:
        near = get_close_matches(part, [*model.model_fields], n=1)
        return f"{where} has no `{part}`" + (f"; did you mean `{near[0]}`?" if near else "")
    if isinstance(part, Selector) and isinstance(value, tuple):
        known = [getattr(row, part.field, "") for row in cast("tuple[object, ...]", value)]
        there = f", but {', '.join(f'`{name}`' for name in known)}" if known else ""
        return f"{where} has none with `{part.field}` = `{part.value}`{there}"
    return f"{where} has no `{show_path((part,))}`"


def _model_in(kind: object) -> type[BaseModel] | None:
    """Single model inside `X | None`."""
    if isinstance(kind, type) and issubclass(kind, BaseModel):
        return kind
    found = [model for inner in get_args(kind) if (model := _model_in(inner))]
    return found[0] if len(found) == 1 else None


def is_whole(kind: object) -> bool:
    """True if only whole numbers are allowed."""
    members = _members(kind)
    return int in members and float not in members


def _members(kind: object) -> set[object]:
    return {kind, *(member for inner in get_args(kind) for member in _members(inner))}


def why_not(spec: AgentSpec, loc: Loc) -> str | None:
    """Reason why a value may not be tuned; None if it may."""
    head, last = loc[0], loc[-1]
    if may_be_secret(loc):
        return "it may be a secret"
    if head in _MEASURE:
        return "it says how the agent is measured, and not what the agent is"
    if head == "instructions":
        return _TEXT
    if head == "embedding_provider":
        return _AGAIN
    if head == "tools" and len(loc) > 2 and isinstance(loc[1], int):
        return _why_no_tool(spec.tools[loc[1]], loc[2:])
    # the settings of the other engine have no effect
    engine = "claude" if spec.model.provider == "anthropic" else "openai"
    if head in ("claude", "openai") and head != engine:
        return f"the model is of `{spec.model.provider}`, and has no use for it"
    known = {"model": _MODEL, engine: _ENGINE}.get(str(head), ())
    if len(loc) == 2 and last in known:
        return None
    if last in _ELSEWHERE:
        return _AWAY
    return _NOTHING


def _why_no_tool(tool: AnyToolSpec, keys: Loc) -> str | None:
    first, last = keys[0], keys[-1]
    if tool.has_template and first == "model" and len(keys) == 2 and last in _MODEL:
        return None
    if len(keys) == 1 and first in tool.per_query:
        return None
    if first in ("name", "type"):
        return "tools are known by it"
    if first in ("description", "template"):
        return _TEXT
    if first in _CARRIED:
        return _NOTHING
    if last in _ELSEWHERE and not tool.retrieves:
        return _AWAY
    return tool.why_fixed or _NOTHING


def why_no_text(spec: AgentSpec, loc: Loc) -> str | None:
    """Reason why a text may not be rewritten; None if it may."""
    head, last = loc[0], loc[-1]
    if may_be_secret(loc):
        return "it may be a secret"
    if head == "response_format" and last == "description" and len(loc) > 1:
        return None
    if head == "tools" and len(loc) > 2 and isinstance(loc[1], int):
        tool, keys = spec.tools[loc[1]], loc[2:]
        if keys == ("description",):
            return "a server describes its tools itself" if tool.is_server else None
        if tool.has_template and keys[0] == "parameters" and last == "description":
            return None
    return "it is no text that the model reads"


PROBE = "\nThis line shows whether a change comes to the agent."

INSTRUCTIONS: tuple[tuple[Part, ...], ...] = (
    ("instructions",),
    ("instructions", "inline"),
    ("instructions", "file"),
)
"""Paths that mean the instructions, wherever their text is."""


class _Target(NamedTuple):
    """A text, and how to read it from the agent."""

    file: str
    key: str
    read: Callable[[ParsedAgent], object]


def texts_of(read: ReadAgent, specs: Iterable[tuple[int, TextualAxisSpec]]) -> tuple[TextAxis, ...]:
    """Text axes; problems of an axis are reported."""
    found: dict[tuple[str, str], TextAxis] = {}
    for number, spec in specs:
        here = (*BLOCK, "axes", "textual", number)
        axis = text_of(read, here, spec)
        if axis is None:
            continue
        if (axis.file, axis.key) in found:
            other = found[axis.file, axis.key].path
            told = f"`{spec.path}` and `{other}` are the same text: give it one axis"
            told = f"`{spec.path}` has two axes" if other == spec.path else told
            read.source.report((*here, "path"), told)
        found.setdefault((axis.file, axis.key), axis)
    return tuple(found.values())


def text_of(read: ReadAgent, here: Loc, spec: TextualAxisSpec | DemosAxisSpec) -> TextAxis | None:
    """Text axis of a spec; None, and a report, if the text cannot be rewritten."""
    target = _target(read, spec.path)
    if isinstance(target, str):
        read.source.report((*here, "path"), target)
        return None
    axis = TextAxis(spec.path, target.file, target.key, spec.max_chars)
    if target.file not in read.agent.texts:
        message = f"`{target.file}` is outside the agent's folder, and no candidate can have it"
        read.source.report((*here, "path"), message)
        return None
    present = axis.read(read.agent.texts)
    if isinstance(present, NoSpan):
        read.source.report((*here, "path"), present.detail)
        return None
    if len(present) > spec.max_chars:
        message = f"the text has {len(present)} characters now, and {spec.max_chars} are allowed"
        # 1.5 times the present length, rounded up to hundreds
        more = -(-len(present) * 3 // 2 // 100) * 100
        read.source.report((*here, "max_chars"), message, f"give it {more} or so")
        return None
    if problem := _stuck(read, axis, target, present):
        read.source.report((*here, "path"), problem)
        return None
    return axis


def _stuck(read: ReadAgent, axis: TextAxis, target: _Target, present: str) -> str | None:
    """Reason why a change of the text does not reach the agent; None if it does."""
    # write the text back unchanged, then with a probe line that must reach the agent
    for new in (present, present + PROBE):
        agent = try_edits(read, axis.edits(read.agent.texts, new))
        if isinstance(agent, str):
            return f"the text cannot be rewritten: {agent}"
    if not str(target.read(agent)).endswith(PROBE):
        return "a text that is written there does not come to the agent: something counts before it"
    return None


def _target(read: ReadAgent, path: str) -> _Target | str:
    """Location of a path's text; a message if there is none."""
    parts = parse_path(path)
    if isinstance(parts, str):
        return parts
    # instructions and templates may be in separate files; other texts are in the agent.yaml
    if parts in INSTRUCTIONS:
        return _instructions(read)
    found = look(read.agent.spec, parts)
    if isinstance(found, str):
        return found
    if (template := _template(read, parts, found.loc)) is not None:
        return template
    if not isinstance(found.value, str):
        return f"`{path}` is {kind_of(found.value)}, and no text"
    if reason := why_no_text(read.agent.spec, found.loc):
        return f"`{path}` cannot be rewritten: {reason}"

    def value(agent: ParsedAgent) -> object:
        now = look(agent.spec, parts)
        return now.value if isinstance(now, Found) else None

    return _Target(read.place.path.name, path, value)


def _instructions(read: ReadAgent) -> _Target:
    file = read.agent.spec.instructions.file

    def text(agent: ParsedAgent) -> str:
        return agent.instructions.text

    if file is not None:
        return _Target(clean(file), "", text)
    return _Target(read.place.path.name, "instructions.inline", text)


def _template(read: ReadAgent, parts: tuple[Part, ...], loc: Loc) -> _Target | None:
    """Template of a prompt tool, which may be in a file."""
    if loc[0] != "tools" or loc[2:] not in (("template",), ("file",)):
        return None
    tool = read.agent.spec.tools[int(loc[1])]
    if not tool.has_template:
        return None

    def text(agent: ParsedAgent) -> str:
        return agent.prompts[tool.name]

    if tool.template_file is not None:
        return _Target(clean(tool.template_file), "", text)
    return _Target(read.place.path.name, show_path((*parts[:-1], "template")), text)
