"""Questions with a calculator: exact arithmetic on numbers, safe against code and against numbers that never end."""

from __future__ import annotations

import ast
import operator
from collections.abc import Callable, Mapping
from fractions import Fraction

from deskroll.envs.tooled import ToolEnv, ToolFunction
from deskroll.errors import ActionError
from deskroll.types import Record

LONGEST = 2_000
"""Characters of an expression."""
_MOST_BITS = 20_000
"""Numbers of more digits than this are refused before they are computed."""
_BINARY: Mapping[type[ast.operator], Callable[[Fraction, Fraction], Fraction | int]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod,
}


class Expressions(Record, frozen=True):
    """What to compute."""

    expressions: list[str]


async def calculate(given: Expressions) -> str:
    """Each expression with its value, one a line."""
    return "\n".join(f"{text} = {_shown(evaluate(text))}" for text in given.expressions)


def evaluate(text: str) -> Fraction:
    """The exact value of an expression of numbers, + - * / // % ** and brackets."""
    if len(text) > LONGEST:
        raise ActionError(f"an expression has {len(text)} characters; allowed: {LONGEST}")
    try:
        return _value(ast.parse(text.strip().replace("^", "**"), mode="eval").body)
    except SyntaxError as error:
        raise ActionError(f"{text!r} is no expression: {error.msg}") from None
    except ZeroDivisionError:
        raise ActionError(f"{text!r} divides by zero") from None


def _value(node: ast.expr) -> Fraction:
    match node:
        case ast.Constant(value=bool() | complex()):
            pass
        case ast.Constant(value=int() | float() as number):
            return _bounded(Fraction(str(number)))
        case ast.UnaryOp(op=ast.USub(), operand=operand):
            return -_value(operand)
        case ast.UnaryOp(op=ast.UAdd(), operand=operand):
            return _value(operand)
        case ast.BinOp(left=left, op=ast.Pow(), right=right):
            return _power(_value(left), _value(right))
        case ast.BinOp(left=left, op=op, right=right) if type(op) in _BINARY:
            return _bounded(Fraction(_BINARY[type(op)](_value(left), _value(right))))
    raise ActionError(f"{ast.unparse(node)[:80]!r} is neither a number nor + - * / // % **")


def _power(base: Fraction, exponent: Fraction) -> Fraction:
    if exponent.denominator != 1:
        raise ActionError("only whole powers are exact")
    size = max(base.numerator.bit_length(), base.denominator.bit_length())
    if size * abs(exponent.numerator) > _MOST_BITS:
        raise ActionError("the number would be too large")
    return Fraction(base**exponent.numerator)


def _bounded(value: Fraction) -> Fraction:
    if max(value.numerator.bit_length(), value.denominator.bit_length()) > _MOST_BITS:
        raise ActionError("the number is too large")
    return value


def _shown(value: Fraction) -> str:
    if value.denominator == 1:
        return str(value.numerator)
    return f"{value.numerator}/{value.denominator} ({float(value):.15g})"


_CALCULATOR = ToolFunction(
    "calculator", "Compute arithmetic expressions exactly, e.g. ['2*(3+4)', '1/3 + 1/6'].", Expressions, calculate
)


class MathEnv(ToolEnv):
    """A question and a calculator."""

    def functions(self) -> Mapping[str, ToolFunction]:
        """The calculator."""
        return {"calculator": _CALCULATOR}
