"""What xlsx files say and look like, by openpyxl.

Guarantees: of a sheet no more than `_CELLS` cells are read, empty ones among them counted.
"""

from __future__ import annotations

import datetime
from collections.abc import Sequence
from typing import Any

from openpyxl import Workbook, load_workbook
from openpyxl.utils.datetime import to_excel

from deskroll.envs.osworld.evaluate.native.package import open_package
from deskroll.envs.osworld.evaluate.native.values import Config, File, Unreadable

_CELLS = 2_000_000
_TIMES = (datetime.date, datetime.time, datetime.timedelta)


def xlsx_cells(file: File, config: Config) -> list[list[object]] | None:
    """The rows of a `sheet` (the first, unless told) as last computed, empty ends cut off; None where there is none.

    Numbers have no needless decimals; dates and times are numbers, as the file keeps them.
    """
    book = load_workbook(open_package(file), read_only=True, data_only=True, keep_links=False)
    chosen = _sheet(book, config)
    if chosen is None:
        return None
    chosen.reset_dimensions()  # what the file says of its size is not to be relied on
    rows: list[list[object]] = []
    room, filled, width = _CELLS, 0, 0
    for row in chosen.iter_rows(values_only=True):
        line = _line(row, book)
        room -= max(len(row), 1)
        width = max(width, len(line))
        if room < 0 or width * (len(rows) + 1) > _CELLS:
            raise Unreadable(f"it has more than {_CELLS} cells")
        rows.append(line)
        filled = len(rows) if line else filled
    return [[*line, *[None] * (width - len(line))] for line in rows[:filled]]


def _sheet(book: Workbook, config: Config) -> Any:
    name = config.get("sheet")
    return next((each for each in book.worksheets if name in (None, each.title)), None)


def _line(row: Sequence[object], book: Workbook) -> list[object]:
    line = [_value(cell, book) for cell in row]
    while line and line[-1] is None:
        line.pop()
    return line


def _value(cell: object, book: Workbook) -> object:
    if isinstance(cell, _TIMES):
        cell = to_excel(cell, book.epoch)
    if isinstance(cell, float) and cell.is_integer():
        return int(cell)
    return None if cell == "" else cell


def xlsx_styles(file: File, config: Config) -> dict[str, object] | None:
    """What a `sheet` (the first, unless told) looks like; None where there is none of that name."""
    chosen = _sheet(load_workbook(open_package(file), keep_links=False), config)
    if chosen is None:
        return None
    cells = [cell for cell in chosen._cells.values() if cell.value is not None]
    formats = {cell.coordinate: cell.number_format for cell in cells}
    merged = sorted(chosen.merged_cells.ranges, key=lambda each: (each.min_row, each.min_col))
    return {
        "bold": [cell.coordinate for cell in cells if cell.font.bold],
        "formats": {place: code for place, code in formats.items() if code.lower() != "general"},
        "merged": [str(each) for each in merged],
        "charts": [_kind(each) for each in chosen._charts],
        "chart_ranges": [[_range(series) for series in each.ser] for each in chosen._charts],
    }


def _kind(chart: Any) -> str:
    """`column`, `bar`, `line`, `pie`, ..., as flat ones are called."""
    if getattr(chart, "barDir", None) == "col":
        return "column"
    return str(chart.tagname.removesuffix("Chart").removesuffix("3D"))


def _range(series: Any) -> str:
    """Where the values of a series stand: `Sheet1!$B$2:$B$5`; empty where they stand in no cells."""
    values = series.val or series.yVal
    return "" if values is None or values.numRef is None else (values.numRef.f or "").strip()
