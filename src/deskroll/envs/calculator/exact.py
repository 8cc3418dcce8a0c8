"""Exact arithmetic on plain numbers, within microseconds: + - * / // % ** and brackets, nothing else.

Safe against code and against numbers that never end: what would be too large is refused before it is computed. What is
no plain arithmetic is `NotPlain`, and may be tried by other context.
"""

from __future__ import annotations

import ast
import decimal
import operator
import warnings
from collections.abc import Callable, Mapping
from fractions import Fraction

from deskroll.errors import ActionError, FailureKind

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


class NotPlain(ActionError):
    """It is no arithmetic of plain numbers; it may be an expression all the same."""

    kind = FailureKind.NOT_PLAIN


def evaluate(text: str) -> Fraction:
    """The exact value of an expression of numbers, + - * / // % ** and brackets."""
    if len(text) > LONGEST:
        raise ActionError(f"it has {len(text)} characters; allowed: {LONGEST}")
    source = text.strip().replace("^", "**")
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # what Python thinks of odd code is nobody's business here
            tree = ast.parse(source, mode="eval")
        return _value(tree.body, source)
    except (SyntaxError, ValueError) as error:  # the latter: null bytes, before Python 3.11.4
        raise NotPlain(f"it is not an expression: {getattr(error, 'msg', error)}") from None
    except ZeroDivisionError:
        raise ActionError("it divides by zero") from None
    except (RecursionError, MemoryError):
        raise ActionError("it is nested too deeply") from None


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
    raise NotPlain(f"{ast.unparse(node)[:80]!r} is neither a number nor + - * / // % **")


def _decimal(written: str) -> Fraction:
    """A number with a point or an exponent, as it was written: a float would round it."""
    try:
        number = decimal.Decimal(written)
    except decimal.InvalidOperation:
        raise ActionError(f"{written[:40]!r} is not a number, or too large a one") from None
    if abs(number.adjusted()) > _MOST_DIGITS:
        raise ActionError("the number is too large")
    return _bounded(Fraction(number))


def _power(base: Fraction, exponent: Fraction) -> Fraction:
    if exponent.denominator != 1:
        raise NotPlain("only whole powers of a number are numbers of this kind")
    # At least so many bits for each step of the exponent, and at most twice as many: what passes is soon computed.
    least = max(base.numerator.bit_length(), base.denominator.bit_length()) - 1
    if least * abs(exponent.numerator) > _MOST_BITS:
        raise ActionError("the number would be too large")
    return _bounded(Fraction(base**exponent.numerator))


def _bounded(value: Fraction) -> Fraction:
    if max(value.numerator.bit_length(), value.denominator.bit_length()) > _MOST_BITS:
        raise ActionError("the number is too large")
    return value


def shown(value: Fraction) -> str:
    """A number as it is told: whole, or as a fraction with its decimals."""
    if value.denominator == 1:
        return str(value.numerator)
    try:
        about = f" ({float(value):.15g})"
    except OverflowError:
        about = ""
    return f"{value.numerator}/{value.denominator}{about}"
