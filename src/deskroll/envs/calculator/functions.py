"""What the calculator can do beyond + - * /: each name with the sympy function behind it.

Runs in a process with limits and nowhere else. A function is given sympy's objects, lists of them, or a range; it
refuses, with `Refused`, what would surely be too large before it is tried.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from fractions import Fraction
from typing import Any

import sympy  # type: ignore[import-untyped]

_MOST_BITS = 14_000
_MOST_ROWS = 12
_MOST_PLACES = 1_000


class Refused(Exception):
    """It will not be computed; the text says why, for the model to read."""


def power(base: Any, exponent: Any) -> Any:
    """Base to the exponent, unless that is a number of thousands of digits."""
    if isinstance(exponent, sympy.Rational) and isinstance(base, sympy.Rational):
        bits = max(abs(base.p).bit_length(), base.q.bit_length()) - 1
        if bits * abs(exponent.p) / exponent.q > _MOST_BITS:
            raise Refused("the number would be too large")
        if base == 0 and exponent < 0:
            raise ZeroDivisionError
    elif getattr(base, "is_number", False) and isinstance(exponent, sympy.Integer) and abs(exponent) > _MOST_BITS:
        raise Refused("the number would be too large")
    return base**exponent


def _whole(value: Any, most: int, what: str) -> int:
    if not isinstance(value, sympy.Integer) or not 0 <= value <= most:
        raise Refused(f"{what} takes whole numbers from 0 to {most if most < 10**9 else f'{most:.0e}'}")
    return int(value)


def _factorial(n: Any) -> Any:
    return sympy.factorial(n if n.free_symbols else _whole(n, 1_400, "factorial"))


def _binomial(n: Any, k: Any) -> Any:
    if isinstance(n, sympy.Integer) and isinstance(k, sympy.Integer) and 0 <= k <= n:
        least = min(int(k), int(n - k))
        if least * max(1, int(n).bit_length()) > _MOST_BITS * 4 or least > _MOST_BITS:
            raise Refused("the number would be too large")
    return sympy.binomial(n, k)


def _permutations(n: Any, k: Any) -> Any:
    return sympy.ff(sympy.Integer(_whole(n, 10_000, "perm")), sympy.Integer(_whole(k, 1_000, "perm")))


def _log(x: Any, base: Any = None) -> Any:
    return sympy.log(x) if base is None else sympy.log(x) / sympy.log(base) if x.free_symbols else _based(x, base)


def _based(x: Any, base: Any) -> Any:
    value = sympy.log(x, base)
    return sympy.simplify(value) if not value.is_Rational else value


def _round(x: Any, places: Any = sympy.S.Zero) -> Any:
    """As Python rounds: a half goes to the even neighbour."""
    n = _whole(abs(places), _MOST_PLACES, "round")
    scale = sympy.Integer(10) ** (n if places >= 0 else -n)
    if x.is_real is not True:
        raise Refused("only a real number can be rounded")
    if isinstance(x, sympy.Rational):
        return sympy.Integer(round(Fraction(int(x.p), int(x.q)) * Fraction(int(scale.p), int(scale.q)))) / scale
    return sympy.floor(x * scale + sympy.Rational(1, 2)) / scale


def _items(arguments: tuple[Any, ...]) -> list[Any]:
    return list(arguments[0]) if len(arguments) == 1 and isinstance(arguments[0], list) else list(arguments)


def _folded(function: Callable[[Any, Any], Any]) -> Callable[..., Any]:
    return lambda *arguments: functools.reduce(function, _items(arguments))


def _range(*bounds: Any) -> range:
    return range(*(int(each) for each in bounds if isinstance(each, sympy.Integer) or _no_range()))


def _no_range() -> bool:
    raise Refused("range takes whole numbers")


def _span(arguments: tuple[Any, ...]) -> tuple[Any, ...]:
    """(x, a, b), given as such or one by one."""
    return tuple(arguments[0]) if len(arguments) == 1 and isinstance(arguments[0], list) else arguments


def _sum(what: Any, *span: Any) -> Any:
    if isinstance(what, range):
        return sympy.Integer(len(what) * (what[0] + what[-1]) // 2 if what else 0)
    if isinstance(what, list):
        return sympy.Add(*what)
    return sympy.summation(what, _span(span))


def _product(what: Any, *span: Any) -> Any:
    return sympy.Mul(*what) if isinstance(what, list) else sympy.product(what, _span(span))


def _integrate(what: Any, *span: Any) -> Any:
    limits = _span(span)
    found = sympy.integrate(what, limits if len(limits) == 3 else limits[0] if limits else _only_symbol(what))
    if found.has(sympy.Integral) and len(limits) != 3:
        raise Refused("no closed form was found")
    return found


def _only_symbol(what: Any) -> Any:
    if len(what.free_symbols) != 1:
        raise Refused("say with respect to which variable")
    return next(iter(what.free_symbols))


def _diff(what: Any, x: Any = None, times: Any = sympy.S.One) -> Any:
    return sympy.diff(what, _only_symbol(what) if x is None else x, _whole(times, 50, "diff"))


def _limit(what: Any, x: Any, to: Any, side: Any = None) -> Any:
    sides = {"left": "-", "right": "+", "None": "+-"}
    if str(side) not in sides:
        raise Refused("the side of a limit is left or right")
    return sympy.limit(what, x, to, sides[str(side)] if to not in (sympy.oo, -sympy.oo) else "+")


def _solve(equations: Any, *unknown: Any) -> Any:
    many = isinstance(equations, list)
    names = _items(unknown) or sorted(set().union(*(each.free_symbols for each in _items((equations,)))), key=str)
    if not all(isinstance(each, sympy.Symbol) for each in names):
        raise Refused("solve takes equations and the variables to solve for")
    if not many and len(names) == 1:
        found = sympy.solve(equations, names[0])
        return (found or _nothing()) if isinstance(found, list) else found
    return sympy.solve(equations, names, dict=True) or _nothing()


def _nothing() -> Any:
    raise Refused("there is no solution")


def _factor(what: Any) -> Any:
    if isinstance(what, sympy.Integer):
        parts = sympy.factorint(what)
        return sympy.Mul(*(sympy.Pow(p, n, evaluate=False) if n > 1 else p for p, n in parts.items()), evaluate=False)
    return sympy.factor(what)


def _pow(base: Any, exponent: Any, modulus: Any = None) -> Any:
    if modulus is None:
        return power(base, exponent)
    if not all(isinstance(each, sympy.Integer) for each in (base, exponent, modulus)) or modulus == 0:
        raise Refused("pow with a modulus takes whole numbers, the modulus not 0")
    return sympy.Integer(pow(int(base), int(exponent), int(modulus)))


def _numeric(x: Any, digits: Any = None) -> Any:
    return x.evalf(15 if digits is None else max(1, _whole(digits, _MOST_PLACES, "N")))


def _subs(what: Any, x: Any, value: Any) -> Any:
    return what.subs(x, value)


def _matrix(rows: Any) -> Any:
    if not isinstance(rows, list) or len(rows) > _MOST_ROWS or any(len(_items((row,))) > _MOST_ROWS for row in rows):
        raise Refused(f"a matrix is a list of at most {_MOST_ROWS} rows of as many numbers")
    return sympy.ImmutableMatrix(rows)


def _of_matrix(method: str) -> Callable[[Any], Any]:
    def call(given: Any) -> Any:
        found = getattr(given if isinstance(given, sympy.MatrixBase) else _matrix(given), method)()
        return sympy.Integer(found) if isinstance(found, int) else found

    return call


def _eigenvalues(given: Any) -> Any:
    found = (given if isinstance(given, sympy.MatrixBase) else _matrix(given)).eigenvals(multiple=True)
    return list(found)


def _divisors(n: Any) -> Any:
    return list(map(sympy.Integer, sympy.divisors(_whole(n, 10**30, "divisors"))))


FUNCTIONS: dict[str, Callable[..., Any]] = {
    **{name: getattr(sympy, name) for name in (
        "sin", "cos", "tan", "cot", "sec", "csc", "asin", "acos", "atan", "atan2", "sinh", "cosh", "tanh", "asinh",
        "acosh", "atanh", "sqrt", "cbrt", "root", "exp", "floor", "re", "im", "conjugate", "arg", "sign", "gamma",
        "erf", "simplify", "expand", "apart", "together", "cancel", "trigsimp",
    )},
    "arcsin": sympy.asin, "arccos": sympy.acos, "arctan": sympy.atan, "ln": sympy.log, "log": _log,
    "log10": lambda x: _log(x, sympy.Integer(10)), "log2": lambda x: _log(x, sympy.Integer(2)),
    "deg": lambda x: x * sympy.pi / 180, "radians": lambda x: x * sympy.pi / 180,
    "degrees": lambda x: x * 180 / sympy.pi, "ceil": sympy.ceiling, "ceiling": sympy.ceiling, "abs": sympy.Abs,
    "factorial": _factorial, "binomial": _binomial, "comb": _binomial, "perm": _permutations,
    "gcd": _folded(sympy.gcd), "lcm": _folded(sympy.lcm), "mod": sympy.Mod, "pow": _pow, "round": _round, "N": _numeric,
    "min": lambda *given: sympy.Min(*_items(given)), "max": lambda *given: sympy.Max(*_items(given)),
    "range": _range, "sum": _sum, "summation": _sum, "product": _product, "prod": _product,
    "solve": _solve, "factor": _factor, "factorint": _factor, "diff": _diff, "integrate": _integrate, "limit": _limit,
    "subs": _subs, "isprime": lambda n: sympy.isprime(_whole(n, 10**200, "isprime")), "divisors": _divisors,
    "Eq": sympy.Eq, "Matrix": _matrix, "det": _of_matrix("det"), "inv": _of_matrix("inv"), "rank": _of_matrix("rank"),
    "transpose": _of_matrix("transpose"), "eigenvals": _eigenvalues,
}  # fmt: skip
"""Every function of the calculator, by its name."""
