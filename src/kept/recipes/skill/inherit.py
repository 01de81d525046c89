"""A config with what it inherits: `_base_` names the file that it is laid over.

Sections are laid over key by key, all else as a whole, unless a flag sets something inside it.
Every value keeps the line of the file that it comes from.
"""

from collections.abc import Mapping, Sequence
from importlib.resources import files
from os.path import normpath
from pathlib import Path
from typing import Any, cast

from kept.errors import Problem, SetupError, SpecError
from kept.recipes.skill.names import FLAT
from kept.recipes.skill.spec import SECTIONS
from kept.spec.source import Source, dotted, read_source, source_of
from kept.spec.yaml import Document, Loc

BASE = "_base_"
MOST = 8
"""Files that inherit from one another; more are a circle."""


FLAGS = Path("flags")
"""What stands for the file of values that a command line sets."""


class Layered(Source):
    """Several files, the later laid over the earlier."""

    def __init__(self, top: Source) -> None:
        super().__init__(top.path, Document({}))
        self.problems = list(top.problems)
        self.origin: dict[Loc, str] = {}
        """`file:line` of each value, or the flag that it came from."""
        self._layers: dict[Loc, int] = {}
        self._laid = 0

    def layer(self, loc: Loc) -> int:
        """Which of the files a value comes from, flags being the last; 0 for none."""
        return self._layers.get(loc, 0)

    def lay(self, source: Source) -> None:
        """Lay one file over what is there."""
        self._laid += 1
        self.problems += [one for one in source.problems if one not in self.problems]
        data = cast("dict[str, Any]", source.data)
        mine = cast("dict[str, Any]", self.data)
        for key, value in data.items():
            if key == BASE:
                continue
            self._put(mine, (key,), value, source)

    def _put(self, into: dict[str, Any], loc: Loc, value: object, source: Source) -> None:
        key = str(loc[-1])
        both = isinstance(value, dict) and isinstance(into.get(key), dict)
        if not (inside := both and source.sets_inside(loc)):
            self.origin[loc] = source.where(loc)
            self._layers[loc] = self._laid
        if both and (len(loc) == 1 or inside):
            for name, one in cast("dict[str, object]", value).items():
                self._put(into[key], (*loc, name), one, source)
            return
        into[key] = value
        if isinstance(value, dict):
            for name in cast("dict[str, object]", value):
                self.origin[(*loc, name)] = source.where((*loc, name))
                self._layers[(*loc, name)] = self._laid
            into[key] = dict(cast("dict[str, object]", value))

    def where(self, loc: Loc) -> str:
        """`file:line` of a value, or of what should hold it."""
        for size in range(len(loc), 0, -1):
            if found := self.origin.get(loc[:size]):
                return found
        return self.at(1)


def find_config(name: str | Path) -> Path:
    """The file that is meant: from here, or one that comes with Kept."""
    path = Path(name)
    if path.is_file():
        return path
    if (own := _own(path)) is not None:
        return own
    there = sorted(str(one.parent.name) for one in own_configs())
    if name in there:
        hint = f"Kept's own is configs/{name}/default.yaml"
    else:
        hint = f"Kept has configs of {', '.join(there)}"
    raise SetupError(f"there is no {path}", hint=hint)


def _own(path: Path) -> Path | None:
    """The config of that name that comes with Kept, if there is one."""
    own = Path(str(files("kept.recipes.skill"))) / path
    known = not path.is_absolute() and path.parts[:1] == ("configs",) and own.is_file()
    return own if known else None


def own_configs() -> list[Path]:
    """The configs of environments that come with Kept."""
    return sorted(Path(str(files("kept.recipes.skill")), "configs").glob("[!_]*/default.yaml"))


def read_layers(path: Path, overrides: Sequence[str] = ()) -> Layered:
    """A config with all that it inherits, and with `KEY=VALUE` laid over it."""
    chain = [read_source(path)]
    while (base := cast("dict[str, Any]", chain[0].data).get(BASE)) is not None:
        first = chain[0]
        if not isinstance(base, str):
            raise SpecError([Problem(first.where((BASE,)), BASE, "not the name of a file")])
        under = Path(normpath(first.folder / base))
        if not under.is_file():
            under = _own(Path(base))
        if under is None:
            hint = "or one of Kept's own, as configs/searchqa/default.yaml"
            raise SpecError([Problem(first.where((BASE,)), BASE, f"there is no {base}", hint)])
        if len(chain) > MOST or any(under.samefile(one.path) for one in chain):
            raise SpecError([Problem(first.where((BASE,)), BASE, "the files inherit in a circle")])
        chain.insert(0, read_source(under))
    layered = Layered(chain[-1])
    for source in chain:
        take_flat(source)
        layered.lay(source)
    # there are several flags that set a key of a skill: what was set is told without one
    flags = source_of(FLAGS, "{}", overrides, "")
    take_flat(flags)
    layered.lay(flags)
    return layered


def take_flat(source: Source) -> None:
    """Have keys that stand alone mean those in their sections."""
    data = cast("dict[str, Any]", source.data)
    for key in [key for key in data if key in FLAT]:
        if key in SECTIONS and isinstance(data[key], dict):
            continue
        section, _, name = FLAT[key].partition(".")
        where, value = source.where((key,)), data.pop(key)
        given = data.setdefault(section, {})
        if not isinstance(given, dict):
            continue  # which is told by whoever reads the section
        if name in given:
            message = f"is `{section}.{name}`, which stands there too"
            source.problems.append(Problem(where, dotted((key,)), message))
            continue
        given[name] = value
        source.override((section, name), where)


def sections_of(source: Source) -> Mapping[str, Any]:
    """All sections, those that are not there as empty ones."""
    data = cast("dict[str, Any]", source.data)
    return {name: data.get(name) or {} for name in SECTIONS}
