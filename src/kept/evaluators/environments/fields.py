"""Fields of a row: one of several names, of a kind, or a problem that names the line."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, cast

from kept.core.case import Case
from kept.errors import Problem, SpecError
from kept.evaluators.environments.contract import Item
from kept.evaluators.environments.reading import MANIFEST, Row, refuse
from kept.evaluators.environments.splitting import FOLDERS

IDS = ("id", "key", "question_id", "uid", "qid")
"""Names that data has for what tells its rows apart."""

IDS_ALONE = (
    "a published split of ids names its rows and does not hold them: put the rows of the data "
    "with these ids in their places"
)

_PARTS = {name for names in FOLDERS.values() for name in names}


@dataclass(slots=True)
class Fields:
    """Takes rows apart, and gathers what is wrong with them."""

    problems: list[Problem] = field(default_factory=list[Problem])

    def text(self, row: Row, names: Sequence[str]) -> str | None:
        """The text under the first of these names that there is; None where there is none."""
        name = next((one for one in names if row.data.get(one) is not None), None)
        if name is None:
            words = " or ".join(f"`{one}`" for one in names)
            self.wrong(row, f"there is no {words}", IDS_ALONE if _is_listed(row) else None)
            return None
        value = row.data[name]
        if not isinstance(value, str) or not value.strip():
            self.wrong(row, f"`{name}` is {_kind(value)}, where a text was expected")
            return None
        return value

    def texts(self, row: Row, names: Sequence[str]) -> list[str] | None:
        """One text, a number or a list of them, as a list."""
        name = next((one for one in names if row.data.get(one) is not None), None)
        if name is None:
            words = " or ".join(f"`{one}`" for one in names)
            self.wrong(row, f"there is no {words}")
            return None
        value: object = row.data[name]
        given = cast("list[object]", value) if isinstance(value, list) else [value]
        plain = [_said(one) for one in given]
        if not plain or any(one is None for one in plain):
            self.wrong(
                row, f"`{name}` is {_kind(row.data[name])}, where a text or a list was expected"
            )
            return None
        return [one for one in plain if one is not None]

    def wrong(self, row: Row, message: str, hint: str | None = None) -> None:
        """Something is the matter with a row; of one hint for many rows the first has it."""
        hint = None if any(one.hint == hint for one in self.problems) else hint
        place = "" if row.alone else f"row {row.number}: "
        self.problems.append(Problem(row.where, "", place + message, hint))

    def check(self) -> None:
        """Raise what was found."""
        refuse(self.problems)


def id_of(row: Row, prefix: str = "", names: Sequence[str] = IDS) -> str:
    """What a row is called: as it says, else by its part, its file and its place in it."""
    for name in names:
        value = row.data.get(name)
        if isinstance(value, str | int) and not isinstance(value, bool) and str(value).strip():
            return str(value).strip()
    name = f"{prefix or row.path.stem}-{row.number}"
    folder = row.path.parent.name
    # the parts of a split are files of one name in folders of their own
    return f"{folder}-{name}" if folder in _PARTS else name


def item(row: Row, data: dict[str, Any], prefix: str = "", names: Sequence[str] = IDS) -> Item:
    """A case made of a row."""
    return Item(Case(id_of(row, prefix, names), data), row.where)


def values(case: Case) -> dict[str, Any]:
    """The fields of a case of an environment."""
    return cast("dict[str, Any]", case.data)


def _is_listed(row: Row) -> bool:
    """True for a row of a split that has a manifest, as published lists of ids have."""
    return (row.path.parent.parent / MANIFEST).is_file()


def _said(value: object) -> str | None:
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        return None
    text = str(value).strip()
    return text or None


def _kind(value: object) -> str:
    match value:
        case str():
            return "empty"
        case list():
            return "a list that holds something else"
        case dict():
            return "an object"
        case _:
            return f"`{value}`"


def as_items(fields: Fields, found: Iterator[Item]) -> list[Item]:
    """All of them, unless something was wrong with one: then all that was."""
    items: list[Item] = []
    try:
        items.extend(found)
    except SpecError as error:
        fields.problems.extend(error.problems)
    fields.problems.sort(key=_line)
    fields.check()
    return items


def _line(problem: Problem) -> tuple[str, int]:
    file, line = problem.place or (problem.where, 0)
    return file, line
