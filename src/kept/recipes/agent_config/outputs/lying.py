"""A candidate as files that can be run where they lie.

The agent.yaml is as the run made it, comments and all, with what was set besides. Files that the
run changed lie in `instructions/`, and the agent.yaml says so; all others are found through links
beside it, or by a path that leads to them from there.
"""

import os
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from kept.core.artifact import Candidate
from kept.core.values import NoSpan
from kept.recipes.agent_config.outputs.elsewhere import CaseFiles, Setting, led_from, with_settings
from kept.spec.locate.locate import locate, read_value

FILE = "instructions.file"
"""Where an agent.yaml names the file of its instructions."""

NOT_LINKED = ("results", "node_modules", "__pycache__")
"""What no agent is made of, and may be large or lead in a circle."""


class Lying:
    """Gives every changed file a name of its own, once."""

    def __init__(
        self, agent: Path, instructions: str, place: Path, settings: Sequence[Setting] = ()
    ) -> None:
        """`place` is where candidates lie."""
        self._agent = agent.name
        self._folder = agent.parent
        self._place = place
        self._instructions = instructions
        self._settings = settings
        self._cases = CaseFiles(agent.parent, place)
        self._first: dict[str, str] = {}
        """The texts that the first candidate had."""
        self._names: dict[tuple[str, str], str] = {}
        """The file that holds a text, by what it stands for and the text."""

    def files(self, number: int, candidate: Candidate) -> dict[str, str]:
        """What lies in the folder for a trial, by relative paths."""
        self._first = self._first or dict(candidate.texts)
        found = dict[str, str]()
        agent = with_settings(self._agent, candidate.texts[self._agent], self._settings)
        cases, keys = self._cases.written(self._agent, agent)
        agent = led_from(self._agent, agent, self._folder, self._place)
        for key, name in keys.items():
            agent = self._set(agent, key, name)
        for path, text in candidate.texts.items():
            if path != self._agent and text != self._first.get(path):
                name = self._names.setdefault((path, text), self._name(path, number))
                found[name] = text
                agent = self._renamed(agent, path, f"../{name}")
        return found | cases | {f"candidates/iter-{number:02}.yaml": agent}

    def instructions_of(self, candidate: Candidate) -> str:
        """The file that holds the instructions of a candidate, if the run changed them."""
        text = candidate.texts.get(self._instructions)
        return "" if text is None else self._names.get((self._instructions, text), "")

    def _renamed(self, text: str, old: str, new: str) -> str:
        """The agent.yaml with every mention of a file as another."""
        for key in _mentions(self._agent, text):
            said = read_value(self._agent, text, key)
            # its name may stand there as `${VAR}`
            own = key == FILE and old == self._instructions
            if own or (isinstance(said, str) and Path(said).as_posix() == old):
                text = self._set(text, key, new)
        return text

    def _set(self, text: str, key: str, new: str) -> str:
        span = locate(self._agent, text, key)
        if isinstance(span, NoSpan):
            return text
        return text[: span.start] + span.render(new) + text[span.end :]

    def _name(self, path: str, number: int) -> str:
        file = Path(path)
        stem = "system-prompt" if path == self._instructions else file.stem
        return f"instructions/{stem}.iter-{number:02}{file.suffix}"


def _mentions(agent: str, text: str) -> Iterator[str]:
    """Keys that may name a file which a run may change."""
    yield FILE
    number = 0
    while not isinstance(read_value(agent, text, f"tools[{number}].name"), NoSpan):
        yield f"tools[{number}].file"
        number += 1


def link_beside(source: Path, place: Path, names: Iterable[str]) -> None:
    """Have the files that an agent names be found from another folder as well.

    Links stand for files and folders right beside the agent; paths that lead out are rewritten.
    """
    for top in dict.fromkeys(Path(os.path.normpath(name)).parts[:1] for name in names):
        for entry in sorted(source.glob(*top)) if top and top[0] not in ("..", ".", "/") else ():
            link = place / entry.name
            if entry.resolve() in (place, *place.parents) or entry.name in NOT_LINKED:
                continue
            if not link.is_symlink() and not link.exists():
                link.symlink_to(os.path.relpath(entry, place))
