"""Questions with a calculator: exact arithmetic on numbers, safe against code and against numbers that never end."""

from __future__ import annotations

import ast
import asyncio
import decimal
import operator
import warnings
from collections.abc import Callable, Mapping
from fractions import Fraction
from typing import Annotated

import msgspec

from deskroll.envs.tooled import ToolEnv, ToolFunction
from deskroll.errors import ActionError
from deskroll.types import Record

LONGEST = 2_000
"""Characters of an expression."""
_MOST_BITS = 14_000
"""Numbers of more digits than this are refused before they are computed; Python itself writes no more than 4300."""
_MOST_DIGITS = 4_200
"""The same in decimal digits, for the exponents of numbers as they are written."""
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

    expressions: Annotated[list[str], msgspec.Meta(max_length=50)]


async def calculate(given: Expressions) -> str:
    """Each expression with its value, one a line."""
    lines = []
    for text in given.expressions:
        lines.append(f"{text} = {_shown(evaluate(text))}")
        await asyncio.sleep(0)  # others work in the same loop
    return "\n".join(lines)


def evaluate(text: str) -> Fraction:
    """The exact value of an expression of numbers, + - * / // % ** and brackets."""
    if len(text) > LONGEST:
        raise ActionError(f"an expression has {len(text)} characters; allowed: {LONGEST}")
    source = text.strip().replace("^", "**")
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # what Python thinks of odd code is nobody's business here
            tree = ast.parse(source, mode="eval")
        return _value(tree.body, source)
    except (SyntaxError, ValueError) as error:  # the latter: null bytes, before Python 3.11.4
        raise ActionError(f"{text!r} is no expression: {getattr(error, 'msg', error)}") from None
    except ZeroDivisionError:
        raise ActionError(f"{text!r} divides by zero") from None
    except (RecursionError, MemoryError):
        raise ActionError(f"{text[:40]!r}... is nested too deeply") from None


def _value(node: ast.expr, source: str) -> Fraction:
    match node:
        case ast.Constant(value=bool() | complex()):
            pass
        case ast.Constant(value=int() as number):
            return _bounded(Fraction(number))
        case ast.Constant(value=float()):
            return _decimal(ast.get_source_segment(source, node) or "")
        case ast.UnaryOp(op=ast.USub(), operand=operand):
            return -_value(operand, source)
        case ast.UnaryOp(op=ast.UAdd(), operand=operand):
            return _value(operand, source)
        case ast.BinOp(left=left, op=ast.Pow(), right=right):
            return _power(_value(left, source), _value(right, source))
        case ast.BinOp(left=left, op=op, right=right) if type(op) in _BINARY:
            return _bounded(Fraction(_BINARY[type(op)](_value(left, source), _value(right, source))))
    raise ActionError(f"{ast.unparse(node)[:80]!r} is neither a number nor + - * / // % **")


def _decimal(written: str) -> Fraction:
    """A number with a point or an exponent, as it was written: a float would round it."""
    try:
        number = decimal.Decimal(written)
    except decimal.InvalidOperation:
        raise ActionError(f"{written[:40]!r} is no number, or too large a one") from None
    if abs(number.adjusted()) > _MOST_DIGITS:
        raise ActionError("the number is too large")
    return _bounded(Fraction(number))


def _power(base: Fraction, exponent: Fraction) -> Fraction:
    if exponent.denominator != 1:
        raise ActionError("only whole powers are exact")
    # At least so many bits for each step of the exponent, and at most twice as many: what passes is soon computed.
    least = max(base.numerator.bit_length(), base.denominator.bit_length()) - 1
    if least * abs(exponent.numerator) > _MOST_BITS:
        raise ActionError("the number would be too large")
    return _bounded(Fraction(base**exponent.numerator))


def _bounded(value: Fraction) -> Fraction:
    if max(value.numerator.bit_length(), value.denominator.bit_length()) > _MOST_BITS:
        raise ActionError("the number is too large")
    return value


def _shown(value: Fraction) -> str:
    if value.denominator == 1:
        return str(value.numerator)
    try:
        about = f" ({float(value):.15g})"
    except OverflowError:
        about = ""
    return f"{value.numerator}/{value.denominator}{about}"


_CALCULATOR = ToolFunction(
    "calculator", "Compute arithmetic expressions exactly, e.g. ['2*(3+4)', '1/3 + 1/6'].", Expressions, calculate
)


class MathEnv(ToolEnv):
    """A question and a calculator."""

    def functions(self) -> Mapping[str, ToolFunction]:
        """The calculator."""
        return {"calculator": _CALCULATOR}
