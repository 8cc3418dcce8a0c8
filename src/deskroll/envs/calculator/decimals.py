"""The decimals of an exact value, and whether a value is zero that does not look like it.

Runs in a process with limits and nowhere else. Digits that are shown are right: where terms cancel, sympy's first
answer may be noise, so precision is raised until it is known, and what cannot be known is refused.
"""

from __future__ import annotations

from typing import Any

import mpmath  # type: ignore[import-untyped]
import sympy  # type: ignore[import-untyped]
from sympy.core.evalf import PrecisionExhausted  # type: ignore[import-untyped]

from deskroll.envs.calculator.refused import Refused

DIGITS = 15
_USUAL, _MOST = 100, 1500
"""Digits of precision at which it is tried whether a number is zero."""
_FAR, _FARTHER = 60, 260
"""Digits, beyond those wanted, of two values that are compared."""
_UNKNOWN = "its value cannot be found: too much of it cancels out"


def settled(value: Any) -> Any:
    """The value, or 0 where it is a sum whose terms cancel: whatever divides by it then knows."""
    if not isinstance(value, sympy.Add) or not value.is_number:
        return value
    try:
        value.evalf(2, strict=True, maxn=_USUAL)
    except PrecisionExhausted:
        return sympy.S.Zero if value.equals(0) else value
    except (NotImplementedError, ValueError, TypeError):
        pass  # it has no decimals, which is for others to say
    return value


def known_digits(value: Any) -> int:
    """How many digits can be shown: no more than the roundest number in it has."""
    return min([DIGITS, *(max(1, int(mpmath.libmp.prec_to_dps(each._prec))) for each in value.atoms(sympy.Float))])


def decimals(value: Any, digits: int = DIGITS) -> Any:
    """The value with so many right digits; itself, where it has no decimals at all."""
    if value.has(sympy.Integral):
        value = value.replace(lambda part: isinstance(part, sympy.Integral), lambda part: _quadrature(part, digits))
    try:
        found = value.evalf(digits, strict=True, maxn=max(_USUAL, 2 * digits))
    except PrecisionExhausted:
        return _farther(value, digits)
    return _farther(value, digits) if any(map(_is_noise, found.atoms(sympy.Float))) else found


def _farther(value: Any, digits: int) -> Any:
    """By two precisions: noise differs between them, digits do not, and what is zero gets ever smaller."""
    far, farther = (value.evalf(digits + n, maxn=_MOST + 2 * digits).as_real_imag() for n in (_FAR, _FARTHER))
    parts = [_agreed(one, other, digits) for one, other in zip(far, farther, strict=True)]
    if not any(parts) and not value.equals(0):
        raise Refused(_UNKNOWN)
    return parts[0] + sympy.I * parts[1]


def _agreed(one: Any, other: Any, digits: int) -> Any:
    if other == 0 or (_is_noise(other) and abs(other) < sympy.Float(10) ** -_FARTHER):
        return sympy.S.Zero
    differ = not _is_noise(one) and abs(one - other) > abs(other) * sympy.Float(10) ** -digits
    if not isinstance(other, sympy.Float) or _is_noise(other) or differ:
        raise Refused(_UNKNOWN)
    return sympy.Float(other, digits)


def _is_noise(number: Any) -> bool:
    """Whether it bears sympy's mark for a number of which it knows no digit: a precision of one bit."""
    return isinstance(number, sympy.Float) and bool(number._prec == 1)


def _quadrature(integral: Any, digits: int) -> Any:
    """A definite integral of one variable by numbers; itself, where that cannot be."""
    if len(integral.limits) != 1 or len(integral.limits[0]) != 3 or integral.free_symbols:
        return integral
    x, low, high = integral.limits[0]
    more = digits + 10
    with mpmath.workdps(more):

        def number(exact: Any) -> Any:
            return exact.evalf(more)._to_mpmath(mpmath.mp.prec)

        def at(point: Any) -> Any:
            return number(integral.function.subs(x, sympy.Float(point, more)))

        found, error = mpmath.quad(at, [number(low), number(high)], error=True)
        if error > abs(found) * mpmath.mpf(10) ** -digits:
            raise Refused("its value cannot be found: the integral converges too slowly, or not at all")
        return sympy.sympify(found)
