"""What the calculator can do beyond + - * /: each name with the function behind it, and how many arguments it takes.

Runs in a process with limits and nowhere else. A function is given sympy's objects, lists of them, or a range; it
refuses, with `Refused`, what would surely be too large before it is tried. Sympy's own functions are called with no
more arguments than are listed here: theirs beyond are switches, not numbers.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Collection
from typing import Any, NamedTuple

import sympy  # type: ignore[import-untyped]

from deskroll.envs.calculator import algebra, whole
from deskroll.envs.calculator.algebra import items
from deskroll.envs.calculator.decimals import DIGITS, decimals
from deskroll.envs.calculator.refused import Refused

_MOST_ROWS = 12


class Function(NamedTuple):
    """One function."""

    run: Callable[..., Any]
    counts: Collection[int] = (1,)
    """How many arguments it may have."""
    lists: bool = False
    """Whether one of them may be a list or a range."""
    usage: str = ""


def call(name: str, arguments: list[Any]) -> Any:
    """The value of a function; `Refused` where its arguments are too many, too few, or lists that it does not take."""
    function = FUNCTIONS[name]
    if len(arguments) not in function.counts:
        raise Refused(f"{name} takes {_counted(function.counts)}, and was given {len(arguments)}{_hint(function)}")
    if not function.lists and any(isinstance(each, list | range | str) for each in arguments):
        raise Refused(f"{name} takes no list{_hint(function)}")
    return function.run(*arguments)


def _hint(function: Function) -> str:
    return f"; write {function.usage}" if function.usage else ""


def _counted(counts: Collection[int]) -> str:
    if counts == _MANY:
        return "at least 1 argument"
    *first, last = counts
    word = "argument" if last == 1 else "arguments"
    return f"{', '.join(map(str, first))} or {last} {word}" if first else f"exactly {last} {word}"


def _log(x: Any, base: Any = None) -> Any:
    if base is None:
        return sympy.log(x)
    if base in (0, 1):
        raise Refused("the base of a logarithm is neither 0 nor 1")
    if x.free_symbols or base.free_symbols:
        return sympy.log(x) / sympy.log(base)
    value = sympy.log(x, base)
    return sympy.simplify(value) if not value.is_Rational else value


def _folded(function: Callable[[Any, Any], Any]) -> Callable[..., Any]:
    return lambda *arguments: functools.reduce(function, items(arguments))


def _range(*bounds: Any) -> range:
    if not all(isinstance(each, sympy.Integer) for each in bounds):
        raise Refused("range takes whole numbers")
    return range(*map(int, bounds))


def _numeric(x: Any, digits: Any = None) -> Any:
    n = DIGITS if digits is None else max(1, whole.whole(digits, whole.MOST_PLACES, "N"))
    if isinstance(x, algebra.Incomplete):
        return algebra.Incomplete([decimals(each, n) for each in x], x.note)
    if isinstance(x, list):
        return [decimals(each, n) for each in x]
    return x.evalf(n) if isinstance(x, sympy.MatrixBase) else decimals(x, n)


def _matrix(rows: Any) -> Any:
    if isinstance(rows, sympy.MatrixBase):
        return rows
    wide = isinstance(rows, list) and any(isinstance(row, list) and len(row) > _MOST_ROWS for row in rows)
    if not isinstance(rows, list) or len(rows) > _MOST_ROWS or wide:
        raise Refused(f"a matrix is a list of at most {_MOST_ROWS} rows of as many numbers")
    return sympy.ImmutableMatrix(rows)


def _of_matrix(method: str) -> Function:
    def run(given: Any) -> Any:
        found = getattr(_matrix(given), method)()
        return sympy.Integer(found) if isinstance(found, int) else found

    return Function(run, lists=True)


_MANY = range(1, 1000)
_SUM = Function(algebra.total, (1, 2, 4), lists=True, usage="sum(k**2, k, 1, 10) or sum([1, 2])")
_PRODUCT = Function(algebra.product, (1, 2, 4), lists=True, usage="product(k, k, 1, 5) or product([1, 2])")
_FACTOR = Function(whole.factor)
_BINOMIAL = Function(whole.binomial, (2,))

FUNCTIONS: dict[str, Function] = {
    **{name: Function(getattr(sympy, name)) for name in (
        "sin", "cos", "tan", "cot", "sec", "csc", "asin", "acos", "atan", "sinh", "cosh", "tanh", "asinh", "acosh",
        "atanh", "sqrt", "cbrt", "exp", "floor", "re", "im", "conjugate", "arg", "sign", "gamma", "erf", "simplify",
        "expand", "together", "cancel", "trigsimp",
    )},
    "arcsin": Function(sympy.asin), "arccos": Function(sympy.acos), "arctan": Function(sympy.atan),
    "atan2": Function(sympy.atan2, (2,)), "root": Function(sympy.root, (2,)), "apart": Function(sympy.apart, (1, 2)),
    "ln": Function(sympy.log), "log": Function(_log, (1, 2)), "log10": Function(lambda x: _log(x, sympy.Integer(10))),
    "log2": Function(lambda x: _log(x, sympy.Integer(2))), "deg": Function(lambda x: x * sympy.pi / 180),
    "radians": Function(lambda x: x * sympy.pi / 180), "degrees": Function(lambda x: x * 180 / sympy.pi),
    "ceil": Function(sympy.ceiling), "ceiling": Function(sympy.ceiling), "abs": Function(sympy.Abs),
    "factorial": Function(whole.factorial), "factorial2": Function(whole.double_factorial),
    "binomial": _BINOMIAL, "comb": _BINOMIAL, "perm": Function(whole.permutations, (2,)),
    "gcd": Function(_folded(sympy.gcd), _MANY, lists=True), "lcm": Function(_folded(sympy.lcm), _MANY, lists=True),
    "mod": Function(sympy.Mod, (2,)), "pow": Function(whole.power, (2, 3)), "round": Function(whole.rounded, (1, 2)),
    "N": Function(_numeric, (1, 2), lists=True), "range": Function(_range, (1, 2, 3)),
    "min": Function(lambda *given: sympy.Min(*items(given)), _MANY, lists=True),
    "max": Function(lambda *given: sympy.Max(*items(given)), _MANY, lists=True),
    "sum": _SUM, "summation": _SUM, "product": _PRODUCT, "prod": _PRODUCT,
    "solve": Function(algebra.solve, _MANY, lists=True), "factor": _FACTOR, "factorint": _FACTOR,
    "diff": Function(algebra.differentiate, (1, 2, 3)), "limit": Function(algebra.limit, (3, 4)),
    "integrate": Function(algebra.integrate, (1, 2, 4), lists=True,
                          usage="integrate(f, x), integrate(f, x, 0, 1), or integrate(integrate(f, x), y)"),
    "subs": Function(lambda what, x, value: what.subs(x, value), (3,)), "isprime": Function(whole.is_prime),
    "divisors": Function(whole.divisors), "Eq": Function(sympy.Eq, (2,)), "Matrix": Function(_matrix, lists=True),
    "det": _of_matrix("det"), "inv": _of_matrix("inv"), "rank": _of_matrix("rank"),
    "transpose": _of_matrix("transpose"),
    "eigenvals": Function(lambda given: list(_matrix(given).eigenvals(multiple=True)), lists=True),
}  # fmt: skip
"""Every function of the calculator, by its name."""
