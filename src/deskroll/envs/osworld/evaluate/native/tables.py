"""A sheet as a table with headings, as upstream's reader (pandas) takes it: each column is of one kind.

Two columns are the same only if they are of one kind: `TRUE` is not 1 where all of a column is one or the other, and
29.999999999999996 is not 30, though both round to it. Not as there: durations are dates, and all dates begin in 1900.
"""

from __future__ import annotations

import enum
import math
import re
from collections.abc import Sequence

from deskroll.envs.osworld.evaluate.native.workbook import Cell, Date, Fault, Rows
from deskroll.types import Record

_WHOLE = re.compile(r"\s*[+-]?[0-9]{1,18}\s*")
_NUMBER = re.compile(
    r"\s*[+-]?(?:(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]{1,3})?|inf|infinity)\s*", re.IGNORECASE | re.ASCII
)
_TRUTHS = {"True": True, "TRUE": True, "true": True, "False": False, "FALSE": False, "false": False}
_MISSING = {
    "", "#N/A", "#N/A N/A", "#NA", "-1.#IND", "-1.#QNAN", "-NaN", "-nan", "1.#IND", "1.#QNAN", "<NA>", "N/A", "NA",
    "NULL", "NaN", "None", "n/a", "nan", "null",
}  # fmt: skip
"""Texts that are taken for an empty cell."""


class Kind(enum.Enum):
    """What a column is of."""

    TRUTHS = enum.auto()
    WHOLE = enum.auto()
    NUMBERS = enum.auto()
    """Also whole ones, as soon as one is missing."""
    ANY = enum.auto()
    """The only kind that is not rounded."""


class Day(Record, frozen=True):
    """A date, which no number is equal to."""

    number: float


class Column(Record, frozen=True):
    """One column of a table."""

    heading: Cell | Day
    kind: Kind
    cells: tuple[Cell | Day, ...]


def columns(rows: Rows, digits: int) -> list[Column]:
    """The columns of a sheet whose first row has the headings, numbers rounded to so many digits."""
    found = []
    for n, (first, *rest) in enumerate(zip(*rows, strict=True)):
        kind, cells = _column([_plain(cell) for cell in rest], digits)
        found.append(Column(heading=f"Unnamed: {n}" if first is None else _day(first), kind=kind, cells=tuple(cells)))
    return found


def _column(cells: Sequence[Cell], digits: int) -> tuple[Kind, Sequence[Cell | Day]]:
    held = [cell for cell in cells if cell is not None]
    whole = len(held) == len(cells)
    if all(map(_is_number, held)):
        if held and whole and all(isinstance(cell, bool) for cell in held):
            return Kind.TRUTHS, held
        if whole and all(map(_is_whole, held)):
            return Kind.WHOLE, [_rounded(float(cell), min(digits, 0)) for cell in held]
        return Kind.NUMBERS, [None if cell is None else _rounded(float(cell), digits) for cell in cells]
    if not isinstance(cells[0], bool) and all(isinstance(cell, bool) or cell in _TRUTHS for cell in held):
        return Kind.TRUTHS if whole else Kind.ANY, [_TRUTHS[cell] if isinstance(cell, str) else cell for cell in cells]
    return Kind.ANY, [_day(cell) for cell in cells]


def _plain(cell: Cell) -> Cell:
    return None if isinstance(cell, Fault) or (isinstance(cell, str) and cell in _MISSING) else cell


def _day(cell: Cell) -> Cell | Day:
    return Day(number=float(cell)) if isinstance(cell, Date) else cell


def _is_number(cell: Cell) -> bool:
    return _NUMBER.fullmatch(cell) is not None if isinstance(cell, str) else not isinstance(cell, Date)


def _is_whole(cell: Cell) -> bool:
    return _WHOLE.fullmatch(cell) is not None if isinstance(cell, str) else float(cell or 0).is_integer()


def _rounded(number: float, digits: int) -> float:
    """As numpy does it, which differs from `round` where a number is kept inexactly."""
    scale = 10.0 ** abs(digits)
    scaled = number * scale if digits >= 0 else number / scale
    if not math.isfinite(scaled):
        return number
    return round(scaled) / scale if digits >= 0 else round(scaled) * scale
