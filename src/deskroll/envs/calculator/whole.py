"""Functions of whole numbers, powers and rounding; what would surely be too large is refused before it is tried.

Runs in a process with limits and nowhere else.
"""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Any

import sympy  # type: ignore[import-untyped]

from deskroll.envs.calculator.refused import Refused

MOST_BITS = 14_000
_TOO_LARGE = "the number would be too large"
MOST_PLACES = 1_000


def whole(value: Any, most: int, what: str, least: int = 0) -> int:
    """The value as an int, if it is a whole number within bounds."""
    if not isinstance(value, sympy.Integer) or not least <= value <= most:
        raise Refused(f"{what} takes whole numbers from {least} to {most if most < 10**9 else f'{most:.0e}'}")
    return int(value)


def power(base: Any, exponent: Any, modulus: Any = None) -> Any:
    """Base to the exponent, unless that is a number of thousands of digits."""
    if modulus is not None:
        return _power_within(base, exponent, modulus)
    if isinstance(exponent, sympy.Rational) and isinstance(base, sympy.Rational):
        bits = max(abs(base.p).bit_length(), base.q.bit_length()) - 1
        if bits * abs(exponent.p) / exponent.q > MOST_BITS:
            raise Refused(_TOO_LARGE)
        if base == 0 and exponent < 0:
            raise ZeroDivisionError
    elif getattr(base, "is_number", False) and isinstance(exponent, sympy.Integer) and abs(exponent) > MOST_BITS:
        raise Refused(_TOO_LARGE)
    return base**exponent


def _power_within(base: Any, exponent: Any, modulus: Any) -> Any:
    if not all(isinstance(each, sympy.Integer) for each in (base, exponent, modulus)) or modulus == 0:
        raise Refused("pow with a modulus takes whole numbers, the modulus not 0")
    return sympy.Integer(pow(int(base), int(exponent), int(modulus)))


def factorial(n: Any) -> Any:
    """n!, also of a variable."""
    return sympy.factorial(n if n.free_symbols else whole(n, 1_400, "factorial"))


def double_factorial(n: Any) -> Any:
    """n!!: every second factor."""
    return sympy.factorial2(n if n.free_symbols else whole(n, 2_600, "n!!"))


def binomial(n: Any, k: Any) -> Any:
    """How many ways there are to choose k of n."""
    if isinstance(n, sympy.Integer) and isinstance(k, sympy.Integer) and 0 <= k <= n:
        least = min(int(k), int(n - k))
        bits = least * int(n).bit_length()
        if bits > MOST_BITS and n < 10**12:
            bits = int((math.lgamma(n + 1) - math.lgamma(k + 1) - math.lgamma(n - k + 1)) / math.log(2))
        if bits > MOST_BITS:
            raise Refused(_TOO_LARGE)
    return sympy.binomial(n, k)


def permutations(n: Any, k: Any) -> Any:
    """How many ways there are to arrange k of n."""
    return sympy.ff(sympy.Integer(whole(n, 10_000, "perm")), sympy.Integer(whole(k, 1_000, "perm")))


def rounded(x: Any, places: Any = sympy.S.Zero) -> Any:
    """As Python rounds: a half goes to the even neighbour."""
    n = whole(abs(places), MOST_PLACES, "round")
    scale = sympy.Integer(10) ** (n if places >= 0 else -n)
    if x.is_real is not True or not x.is_number:
        raise Refused("only a real number can be rounded")
    if isinstance(x, sympy.Float):
        x = sympy.Rational(x)
    if isinstance(x, sympy.Rational):
        return sympy.Integer(round(Fraction(int(x.p), int(x.q)) * Fraction(int(scale.p), int(scale.q)))) / scale
    return sympy.floor(x * scale + sympy.Rational(1, 2)) / scale


def factor(what: Any) -> Any:
    """The prime factors of a whole number; an expression as a product."""
    if isinstance(what, sympy.Integer):
        parts = sympy.factorint(what)
        return sympy.Mul(*(sympy.Pow(p, n, evaluate=False) if n > 1 else p for p, n in parts.items()), evaluate=False)
    return sympy.factor(what)


def divisors(n: Any) -> Any:
    """All of them, in order."""
    return list(map(sympy.Integer, sympy.divisors(whole(n, 10**30, "divisors", least=1))))


def is_prime(n: Any) -> Any:
    """Whether a number is a prime."""
    return sympy.isprime(whole(n, 10**200, "isprime"))
