"""What a template is made of."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Literal:
    """A value that stands there."""

    value: object


@dataclass(frozen=True, slots=True)
class Name:
    """A value that is given."""

    name: str


@dataclass(frozen=True, slots=True)
class Member:
    """A part of a value."""

    of: "Expression"
    key: "Expression"


@dataclass(frozen=True, slots=True)
class Items:
    """A list that is written out."""

    items: tuple["Expression", ...]


@dataclass(frozen=True, slots=True)
class Filtered:
    """A value behind a filter."""

    value: "Expression"
    filter: str
    given: tuple["Expression", ...]


@dataclass(frozen=True, slots=True)
class Joined:
    """Two values and what is between them."""

    sign: str
    left: "Expression"
    right: "Expression"


@dataclass(frozen=True, slots=True)
class Not:
    """The opposite."""

    value: "Expression"


@dataclass(frozen=True, slots=True)
class Choice:
    """`a if b else c`."""

    then: "Expression"
    test: "Expression"
    otherwise: "Expression"


Expression = Literal | Name | Member | Items | Filtered | Joined | Not | Choice


@dataclass(frozen=True, slots=True)
class Words:
    """Text as it stands."""

    text: str


@dataclass(frozen=True, slots=True)
class Shown:
    """`{{ … }}`."""

    value: Expression


@dataclass(frozen=True, slots=True)
class Branch:
    """`{% if … %}`, with all its `elif`; an `else` has no test."""

    arms: tuple[tuple[Expression | None, tuple["Node", ...]], ...]


@dataclass(frozen=True, slots=True)
class Loop:
    """`{% for … %}`."""

    names: tuple[str, ...]
    over: Expression
    body: tuple["Node", ...]
    otherwise: tuple["Node", ...] = ()


@dataclass(frozen=True, slots=True)
class Bind:
    """`{% set … %}`."""

    name: str
    value: Expression


Node = Words | Shown | Branch | Loop | Bind
