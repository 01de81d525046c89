"""Which values a template asks for."""

from collections.abc import Iterator

from kept.evaluators.templates.tree import (
    Bind,
    Branch,
    Choice,
    Expression,
    Filtered,
    Items,
    Joined,
    Literal,
    Loop,
    Member,
    Name,
    Node,
    Not,
    Shown,
    Words,
)


def names_in(nodes: tuple[Node, ...], own: frozenset[str] = frozenset()) -> Iterator[str]:
    """The names that stand free; those that the template makes itself do not."""
    for node in nodes:
        match node:
            case Words():
                pass
            case Shown():
                yield from _free(node.value, own)
            case Bind():
                yield from _free(node.value, own)
                own = own | {node.name}
            case Branch():
                for test, body in node.arms:
                    if test is not None:
                        yield from _free(test, own)
                    yield from names_in(body, own)
            case Loop():
                yield from _free(node.over, own)
                yield from names_in(node.body, own | {*node.names, "loop"})
                yield from names_in(node.otherwise, own)


def _free(expression: Expression, own: frozenset[str]) -> Iterator[str]:
    match expression:
        case Literal():
            inner: tuple[Expression, ...] = ()
        case Name():
            inner = ()
            if expression.name not in own:
                yield expression.name
        case Member():
            inner = (expression.of, expression.key)
        case Items():
            inner = expression.items
        case Filtered():
            inner = (expression.value, *expression.given)
        case Joined():
            inner = (expression.left, expression.right)
        case Not():
            inner = (expression.value,)
        case Choice():
            inner = (expression.test, expression.then, expression.otherwise)
    for one in inner:
        yield from _free(one, own)
