"""Expressions made into sympy's objects: Python's syntax tree is walked, and only what is known is built.

Runs in a process with limits and nowhere else. Nothing of the text is ever evaluated as code: no strings, attributes,
comprehensions or names with underscores; sympy's own parsers, which do evaluate, are never called.
"""

from __future__ import annotations

import ast
import decimal
import itertools
import operator
import re
import warnings
from collections.abc import Callable
from typing import Any

import sympy  # type: ignore[import-untyped]

from deskroll.envs.calculator.algebra import Incomplete
from deskroll.envs.calculator.decimals import decimals, known_digits, settled
from deskroll.envs.calculator.functions import FUNCTIONS, call
from deskroll.envs.calculator.notation import pythonic
from deskroll.envs.calculator.refused import Refused
from deskroll.envs.calculator.whole import power

__all__ = ["Refused", "value_of"]

_LONGEST_VALUE = 4_500
_MOST_DIGITS = 4_200
_HEAD, _GROUP = re.compile(rb"(?:^|[^\w.])([1-9]\d{0,2})$"), re.compile(rb"\d{3}(?!\w)")
"""The first digits of a number that is written with commas, and a group of the others."""
_CONSTANTS: dict[str, Any] = {
    "pi": sympy.pi, "E": sympy.E, "e": sympy.E, "I": sympy.I, "oo": sympy.oo, "inf": sympy.oo,
    "infinity": sympy.oo, "deg": sympy.pi / 180,
}  # fmt: skip
_RELATIONS: dict[type[ast.cmpop], Any] = {
    ast.Eq: sympy.Eq, ast.NotEq: sympy.Ne, ast.Lt: sympy.Lt, ast.LtE: sympy.Le, ast.Gt: sympy.Gt, ast.GtE: sympy.Ge,
}  # fmt: skip
_OPERATIONS: dict[type[ast.operator], Callable[[Any, Any], Any]] = {
    ast.Add: operator.add, ast.Sub: operator.sub, ast.Mult: operator.mul, ast.Div: operator.truediv,
    ast.FloorDiv: lambda left, right: sympy.floor(left / right), ast.Mod: sympy.Mod, ast.Pow: power,
}  # fmt: skip


def value_of(text: str) -> str:
    """The value of an expression as text, exact, with its decimals where they are not the same."""
    source = pythonic(text)
    tree = _parsed(source)
    try:
        return _shown(_Walk(source).value(tree))
    except ZeroDivisionError:
        raise Refused("it divides by zero") from None
    except RecursionError:
        raise Refused("it is nested too deeply") from None
    except NotImplementedError as error:
        raise Refused(f"no way is known to compute it: {error}") from None
    except ValueError as error:
        digits = "integer string conversion" in str(error)
        raise Refused("the number is too large" if digits else f"it cannot be computed: {error}") from None


def _parsed(source: str) -> ast.expr:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # what Python thinks of odd code is nobody's business here
            return ast.parse(source, mode="eval").body
    except (SyntaxError, ValueError) as error:  # the latter: null bytes
        problem = str(getattr(error, "msg", error))
        hint = "; write 2*x for 2x" if "decimal literal" in problem else ""
        raise Refused(f"it is not an expression: {problem}{hint}") from None
    except (RecursionError, MemoryError):  # so does the parser say that its stack is full
        raise Refused("it is nested too deeply") from None


class _Walk:
    def __init__(self, source: str) -> None:
        self._source = source
        self._bytes = source.encode()

    def value(self, tree: ast.expr) -> Any:
        """The object that the whole tree stands for."""
        if isinstance(tree, ast.Tuple):
            raise Refused("it is several values; write [1, 2] for a list, and 1000 for 1,000")
        return self.build(tree)

    def build(self, node: ast.expr) -> Any:
        """The object that a part of the tree stands for."""
        match node:
            case ast.Constant(value=value) if type(value) in (int, float):
                return self._number(node)
            case ast.Name(id=name):
                return _named(name)
            case ast.UnaryOp(op=ast.USub(), operand=operand):
                return _combined(ast.Mult(), sympy.S.NegativeOne, self.build(operand))
            case ast.UnaryOp(op=ast.UAdd(), operand=operand):
                return self.build(operand)
            case ast.BinOp(left=left, op=op, right=right):
                return settled(_combined(op, self.build(left), self.build(right)))
            case ast.Compare(left=left, ops=[op], comparators=[right]) if type(op) in _RELATIONS:
                return _compared(_RELATIONS[type(op)], self.build(left), self.build(right))
            case ast.List(elts=items) | ast.Tuple(elts=items):
                if self._spaced(items):
                    self._refuse_thousands(items)
                return [self.build(item) for item in items]
            case ast.Call(func=ast.Name(id=name), args=arguments, keywords=[]) if name in FUNCTIONS:
                # It is one number only where the function takes as many arguments as there would then be.
                fewer = (len(arguments) - n for n in range(1, len(self._pairs(arguments)) + 1))
                if name != "range" and any(count in FUNCTIONS[name].counts for count in fewer):
                    self._refuse_thousands(arguments)
                return settled(call(name, [self.build(each) for each in arguments]))
            case ast.Call(func=ast.Name(id=name)):
                raise Refused(f"there is no function {name[:40]!r}, or not with such arguments")
        raise Refused(f"{ast.unparse(node)[:80]!r} is nothing that a calculator knows")

    def _between(self, left: ast.expr, right: ast.expr) -> bytes:
        return self._bytes[left.end_col_offset : right.col_offset]

    def _spaced(self, items: list[ast.expr]) -> bool:
        """Whether some comma has a space behind it: one without then looks like part of a number."""
        return any(self._between(*pair) == b", " for pair in itertools.pairwise(items))

    def _pairs(self, items: list[ast.expr]) -> list[tuple[str, str]]:
        """What may be one number with commas: 12,500."""
        found = []
        for left, right in itertools.pairwise(items):
            head = _HEAD.search(self._bytes[left.col_offset : left.end_col_offset])
            group = _GROUP.match(self._bytes[right.col_offset :])
            if head and group and self._between(left, right) == b",":
                found.append((head[1].decode(), group[0].decode()))
        return found

    def _refuse_thousands(self, items: list[ast.expr]) -> None:
        for head, group in self._pairs(items):
            raise Refused(f"{head},{group} can be one number or two; write {head}{group}, or {head}, {group}")

    def _number(self, node: ast.expr) -> Any:
        """A number exactly as it was written: a float would round it."""
        written = (ast.get_source_segment(self._source, node) or "").replace("_", "")
        if isinstance(node, ast.Constant) and isinstance(node.value, int):
            return sympy.Integer(node.value)
        number = decimal.Decimal(written)
        if abs(number.adjusted()) > _MOST_DIGITS:
            raise Refused("the number is too large")
        return sympy.Rational(*number.as_integer_ratio())


def _named(name: str) -> Any:
    if name in _CONSTANTS:
        return _CONSTANTS[name]
    if name in FUNCTIONS or name.startswith("_") or len(name) > 20 or not name.isascii():
        raise Refused(f"{name[:40]!r} stands alone; a function needs its arguments in brackets")
    return sympy.Symbol(name)


def _compared(relation: Any, left: Any, right: Any) -> Any:
    if all(isinstance(each, sympy.Expr) and each.is_number and each.is_finite for each in (left, right)):
        return relation(settled(left - right), 0)
    return relation(left, right)


def _combined(op: ast.operator, left: Any, right: Any) -> Any:
    if isinstance(left, list | range | str) or isinstance(right, list | range | str):
        raise Refused("lists cannot be combined; write Matrix([[1, 2], [3, 4]]) for a matrix")
    if isinstance(op, ast.Div | ast.FloorDiv | ast.Mod) and right == 0:
        raise ZeroDivisionError
    if type(op) not in _OPERATIONS:
        raise Refused(f"there is no {type(op).__name__} here")
    return _OPERATIONS[type(op)](left, right)


def _shown(value: Any) -> str:
    if isinstance(value, sympy.Expr) and value.is_number and value.has(sympy.I):
        value = sympy.expand(value)
    text = _written(value)
    if len(text) > _LONGEST_VALUE:
        raise Refused(f"the result has {len(text)} characters; allowed: {_LONGEST_VALUE}")
    about = _about(value)
    shown = f"{text} ({about})" if about and about != text else text
    return f"{shown}; {value.note}" if isinstance(value, Incomplete) else shown


def _written(value: Any) -> str:
    if isinstance(value, list):
        return f"[{', '.join(map(_written, value))}]"
    if isinstance(value, dict):
        return ", ".join(f"{key} = {_written(each)}" for key, each in value.items())
    if isinstance(value, range):
        raise Refused("a range has no value; write sum(range(1, 11)), for example")
    if isinstance(value, sympy.Basic) and value.has(sympy.zoo, sympy.nan):
        raise Refused("it is not defined")
    return str(value)


def _about(value: Any) -> str:
    """Its decimals; empty where it is whole, or no number at all."""
    if isinstance(value, list):
        each = [_about(item) or _written(item) for item in value]
        return f"[{', '.join(each)}]" if any(map(_about, value)) else ""
    if isinstance(value, dict):
        parts = {key: _about(item) or _written(item) for key, item in value.items()}
        return ", ".join(f"{key} = {part}" for key, part in parts.items()) if any(map(_about, value.values())) else ""
    if not isinstance(value, sympy.Expr) or not value.is_number or value.is_Float or _is_whole(value):
        return ""
    simple = all(part.is_Rational or part.is_Float for part in value.as_real_imag())
    if value.is_infinite or (simple and not value.is_Rational):
        return ""
    number = decimals(value, known_digits(value))
    if not number.is_number or number.has(sympy.Integral):
        return ""
    return f"{float(number):.15g}" if value.is_Rational and abs(number) < 1e300 else str(number)


def _is_whole(value: Any) -> bool:
    """Whether it is a whole number, as such or as a product of such: nobody needs its decimals."""
    return bool(value.is_integer) and all(atom.is_Integer for atom in value.atoms())
