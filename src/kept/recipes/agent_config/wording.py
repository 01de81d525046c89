"""The texts of an agent that may be rewritten: found wherever they stand, and a change tried."""

from collections.abc import Callable, Iterable
from typing import NamedTuple

from kept.core.values import NoSpan
from kept.proposers.texts import TextAxis
from kept.recipes.agent_config.spec.axes import DemosAxisSpec, TextualAxisSpec
from kept.recipes.agent_config.spec.optimizer import BLOCK
from kept.recipes.agent_config.spec.read import ParsedAgent, ReadAgent
from kept.recipes.agent_config.spec.texts import clean
from kept.recipes.agent_config.spec.tools import PromptToolSpec
from kept.recipes.agent_config.trying import try_edits
from kept.recipes.agent_config.tunable import Found, look, why_no_text
from kept.spec.locate.path import Part, parse_path, show_path
from kept.spec.source import kind_of
from kept.spec.yaml import Loc

PROBE = "\nThis line shows whether a change comes to the agent."

INSTRUCTIONS: tuple[tuple[Part, ...], ...] = (
    ("instructions",),
    ("instructions", "inline"),
    ("instructions", "file"),
)
"""All of them mean what the agent is told, wherever that stands."""


class _Target(NamedTuple):
    """A text, and how it comes to the agent."""

    file: str
    key: str
    read: Callable[[ParsedAgent], object]


def texts_of(read: ReadAgent, specs: Iterable[tuple[int, TextualAxisSpec]]) -> tuple[TextAxis, ...]:
    """The texts of the axes; what is wrong with one is reported."""
    found: dict[tuple[str, str], TextAxis] = {}
    for number, spec in specs:
        here = (*BLOCK, "axes", "textual", number)
        axis = text_of(read, here, spec)
        if axis is None:
            continue
        if (axis.file, axis.key) in found:
            other = found[axis.file, axis.key].path
            told = f"`{spec.path}` has two axes" if other == spec.path else _same(spec.path, other)
            read.source.report((*here, "path"), told)
        found.setdefault((axis.file, axis.key), axis)
    return tuple(found.values())


def _same(path: str, other: str) -> str:
    return f"`{path}` and `{other}` are the same text: give it one axis"


def text_of(read: ReadAgent, here: Loc, spec: TextualAxisSpec | DemosAxisSpec) -> TextAxis | None:
    """The text of one axis; None, and a report, where it cannot be rewritten."""
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
        read.source.report((*here, "max_chars"), message, f"give it {_more(len(present))} or so")
        return None
    if problem := _stuck(read, axis, target, present):
        read.source.report((*here, "path"), problem)
        return None
    return axis


def _more(length: int) -> int:
    return -(-length * 3 // 2 // 100) * 100


def _stuck(read: ReadAgent, axis: TextAxis, target: _Target, present: str) -> str | None:
    """Why a change of a text does not come to the agent; None where it does."""
    for new in (present, present + PROBE):
        agent = try_edits(read, axis.edits(read.agent.texts, new))
        if isinstance(agent, str):
            return f"the text cannot be rewritten: {agent}"
    if not str(target.read(agent)).endswith(PROBE):
        return "a text that is written there does not come to the agent: something counts before it"
    return None


def _target(read: ReadAgent, path: str) -> _Target | str:
    """Where the text of a path stands; a sentence where there is none."""
    parts = parse_path(path)
    if isinstance(parts, str):
        return parts
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
    """The template of a prompt tool, which may stand in a file."""
    if loc[0] != "tools" or loc[2:] not in (("template",), ("file",)):
        return None
    tool = read.agent.spec.tools[int(loc[1])]
    if not isinstance(tool, PromptToolSpec):
        return None

    def text(agent: ParsedAgent) -> str:
        return agent.prompts[tool.name]

    if tool.file is not None:
        return _Target(clean(tool.file), "", text)
    return _Target(read.place.path.name, show_path((*parts[:-1], "template")), text)
