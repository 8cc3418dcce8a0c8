"""Equations, sums, limits, derivatives and integrals. Runs in a process with limits and nowhere else."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import sympy  # type: ignore[import-untyped]
from sympy.functions.elementary.trigonometric import TrigonometricFunction  # type: ignore[import-untyped]

from deskroll.envs.calculator.refused import Refused
from deskroll.envs.calculator.whole import MOST_BITS, whole

_LONGEST_RANGE = 100_000


class Incomplete(list[Any]):
    """Values that are not all; `note` says so."""

    def __init__(self, values: list[Any], note: str) -> None:
        super().__init__(values)
        self.note = note


def items(arguments: tuple[Any, ...]) -> list[Any]:
    """What a function of many numbers was given: them, or one list or range of them; at least one."""
    given = arguments[0] if len(arguments) == 1 and isinstance(arguments[0], list | range) else arguments
    if not given:
        raise Refused("there must be at least one number")
    if len(given) > _LONGEST_RANGE:
        raise Refused(f"a range may have at most {_LONGEST_RANGE} numbers here")
    return list(map(sympy.Integer, given)) if isinstance(given, range) else list(given)


def only_symbol(what: Any) -> Any:
    """The variable of an expression that has but one."""
    if len(what.free_symbols) != 1:
        raise Refused("say with respect to which variable")
    return next(iter(what.free_symbols))


def _span(arguments: tuple[Any, ...]) -> tuple[Any, ...]:
    """(x, a, b), given as such or one by one."""
    span = tuple(arguments[0]) if len(arguments) == 1 and isinstance(arguments[0], list) else arguments
    if span and (not isinstance(span[0], sympy.Symbol) or len(span) not in (1, 3)):
        raise Refused("a variable and its bounds are written (x, 0, 1)")
    return span


def _over(what: Any, span: tuple[Any, ...], nothing: Any, every: Callable[..., Any]) -> Any:
    """A sum or product over whole numbers."""
    bounds = _span(span)
    if len(bounds) != 3:
        raise Refused("say over which numbers, as in sum(k**2, k, 1, 10)")
    _, low, high = bounds
    if any(each.is_number and not each.is_Integer and not each.is_infinite for each in (low, high)):
        raise Refused("the bounds must be whole numbers")
    return nothing if (high - low).is_negative else every(what, bounds)


def total(what: Any, *span: Any) -> Any:
    """The sum of a list, of a range, or of an expression over whole numbers."""
    if isinstance(what, range):
        return sympy.Integer(len(what) * (what[0] + what[-1]) // 2 if what else 0)
    return sympy.Add(*what) if isinstance(what, list) else _over(what, span, sympy.S.Zero, sympy.summation)


def product(what: Any, *span: Any) -> Any:
    """The same for products."""
    if isinstance(what, list | range):
        factors = items((what,)) if what else []
        if isinstance(what, range) and 0 not in what and sum(map(_bits, factors)) > MOST_BITS:
            raise Refused("the number would be too large")
        return sympy.Mul(*factors)
    return _over(what, span, sympy.S.One, sympy.product)


def _bits(factor: Any) -> int:
    """How many bits a product grows by with this factor, at the least."""
    return abs(int(factor)).bit_length() - 1


def integrate(what: Any, *span: Any) -> Any:
    """The integral over a variable, or within bounds."""
    limits = _span(span)
    found = sympy.integrate(what, limits if len(limits) == 3 else limits[0] if limits else only_symbol(what))
    if found.has(sympy.Integral) and len(limits) != 3:
        raise Refused("no closed form was found")
    return found


def differentiate(what: Any, x: Any = None, times: Any = sympy.S.One) -> Any:
    """The derivative."""
    return sympy.diff(what, only_symbol(what) if x is None else x, whole(times, 50, "diff"))


def limit(what: Any, x: Any, to: Any, side: Any = None) -> Any:
    """The limit, from both sides unless one is named."""
    sides = {"left": "-", "right": "+", "None": "+-"}
    if str(side) not in sides:
        raise Refused("the side of a limit is left or right")
    return sympy.limit(what, x, to, sides[str(side)] if to not in (sympy.oo, -sympy.oo) else "+")


def solve(equations: Any, *unknown: Any) -> Any:
    """What solves an equation, an inequality or several."""
    many = list(equations) if isinstance(equations, list) else [equations]
    names = items(unknown) if unknown else sorted(set().union(*(each.free_symbols for each in many)), key=str)
    # Without a variable left, x = x is simply true.
    nothing_left = not names and all(each in (sympy.true, sympy.false) for each in many)
    if not nothing_left and not (names and all(isinstance(each, sympy.Symbol) for each in names)):
        raise Refused("solve takes equations and the variables to solve for")
    if sympy.false in many:
        raise Refused("there is no solution")
    many = [each for each in many if not _always(each)]
    if not many:
        return f"every {', '.join(map(str, names)) or 'value'} for which it is defined is a solution"
    return _solutions(many, names, several=isinstance(equations, list) or len(names) > 1)


def _always(equation: Any) -> bool:
    """Whether it holds whatever the variables are."""
    if equation is sympy.true:
        return True
    if isinstance(equation, sympy.Eq):
        equation = equation.lhs - equation.rhs
    return isinstance(equation, sympy.Expr) and bool(equation.equals(0))


def _solutions(equations: list[Any], names: list[Any], *, several: bool) -> Any:
    found = sympy.solve(equations, names, dict=True) if several else sympy.solve(equations[0], names[0])
    if not found:
        raise Refused("there is no solution")
    repeating = any(part.has(*names) for each in equations for part in each.atoms(TrigonometricFunction))
    if not repeating:
        return found
    return Incomplete(found if isinstance(found, list) else [found], _note(equations, names))


def _note(equations: list[Any], names: list[Any]) -> str:
    period = None
    if len(equations) == 1 and len(names) == 1:
        only = equations[0]
        period = sympy.periodicity(only.lhs - only.rhs if only.is_Relational else only, names[0])
    return f"not all: each plus any multiple of {period} is one, too" if period else "not all: there may be more"
