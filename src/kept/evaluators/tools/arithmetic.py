"""Arithmetic tool: evaluates one expression of numbers exactly as Python would."""

import ast
import math
import operator
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from kept.core.llm import ToolAnswer, ToolOffer
from kept.core.ports import Scope
from kept.core.rollout import Failure
from kept.evaluators.tools.journalled_call import journalled
from kept.models.structured_output import problem_with

Number = int | float

MOST_LETTERS = 1_000
MOST_BITS = 4_096
"""Maximum size of a whole number: a power of a power would use up the memory."""
MOST_PLACES = 400
"""Maximum number of places to round to: `round` uses a power of ten with so many digits."""

_ABOUT = "Work out one arithmetic expression, as in (3 + 4) * 2 ** 5 or sqrt(2) / round(2.5)."
_SCHEMA: Mapping[str, object] = {
    "type": "object",
    "properties": {"expression": {"type": "string", "maxLength": MOST_LETTERS}},
    "required": ["expression"],
    "additionalProperties": False,
}


def _rounded(number: Number, places: int | None = None) -> Number:
    if places is not None and abs(places) > MOST_PLACES:
        raise NoNumber(f"a number is rounded to at most {MOST_PLACES} places")
    return round(number, places)


_BINARY: Mapping[type[ast.operator], str] = {
    ast.Add: "add",
    ast.Sub: "sub",
    ast.Mult: "mul",
    ast.Div: "truediv",
    ast.FloorDiv: "floordiv",
    ast.Mod: "mod",
    ast.Pow: "pow",
}
_FUNCTIONS: Mapping[str, Any] = {
    "abs": abs,
    "ceil": math.ceil,
    "cos": math.cos,
    "exp": math.exp,
    "floor": math.floor,
    "log": math.log,
    "max": max,
    "min": min,
    "round": _rounded,
    "sin": math.sin,
    "sqrt": math.sqrt,
    "tan": math.tan,
}
_NAMES: Mapping[str, Number] = {"e": math.e, "pi": math.pi}


class NoNumber(ValueError):
    """Expression that has no value; the message says why."""


@dataclass(frozen=True, slots=True)
class ArithmeticTool:
    """Tool that evaluates expressions."""

    about: str = ""
    """Description for the model; empty for the default."""

    @property
    def offer(self) -> ToolOffer:
        """Offer of the tool to a model."""
        return ToolOffer("arithmetic", self.about or _ABOUT, _SCHEMA)

    async def use(self, arguments: Mapping[str, object], scope: Scope) -> ToolAnswer | Failure:
        """Evaluate one expression."""

        async def do() -> ToolAnswer | Failure:
            if wrong := problem_with(dict(arguments), _SCHEMA):
                return ToolAnswer(f"the arguments are wrong, {wrong}", wrong=True)
            try:
                return ToolAnswer(str(worked_out(str(arguments["expression"]))))
            except NoNumber as error:
                return ToolAnswer(str(error), wrong=True)

        return await journalled(scope, {"tool": "arithmetic", "arguments": dict(arguments)}, do)


def worked_out(expression: str) -> Number:
    """Evaluate an expression; raises `NoNumber`."""
    try:
        found = _value(ast.parse(expression.strip(), mode="eval").body)
    except (SyntaxError, RecursionError, MemoryError) as error:
        raise NoNumber(f"`{expression[:100]}` is no expression") from error
    except (ArithmeticError, ValueError, TypeError) as error:
        raise NoNumber(f"`{expression[:100]}` cannot be worked out: {error}") from error
    if isinstance(found, complex):
        raise NoNumber(f"`{expression[:100]}` has no real value")
    return found


def _value(node: ast.expr) -> Number:
    match node:
        case ast.Constant(value=int() | float() as value) if not isinstance(value, bool):
            return value
        case ast.Name(id=name) if name in _NAMES:
            return _NAMES[name]
        case ast.UnaryOp(op=ast.USub(), operand=inner):
            return -_value(inner)
        case ast.UnaryOp(op=ast.UAdd(), operand=inner):
            return _value(inner)
        case ast.BinOp(left=left, op=op, right=right) if type(op) in _BINARY:
            return _both(type(op), _value(left), _value(right))
        case ast.Call(func=ast.Name(id=name), args=args, keywords=[]) if name in _FUNCTIONS:
            return _FUNCTIONS[name](*map(_value, args))
        case _:
            raise NoNumber(f"only numbers, + - * / // % ** and {', '.join(_FUNCTIONS)} are known")


def _both(op: type[ast.operator], left: Number, right: Number) -> Number:
    whole = isinstance(left, int) and isinstance(right, int)
    if op is ast.Pow and whole and right > 0 and int(left).bit_length() * right > MOST_BITS:
        raise NoNumber(f"{left} ** {right} is too large")
    found: Number = getattr(operator, _BINARY[op])(left, right)
    if isinstance(found, int) and found.bit_length() > MOST_BITS:
        raise NoNumber("the number becomes too large")
    return found
