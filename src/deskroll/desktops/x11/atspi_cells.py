"""Which cells of a Calc sheet are on the screen.

A sheet has 17 billion cells and tells nothing of which it shows, except which cell lies at a point. So the
sheet is sampled along its edges: down the left and the right edge for the rows, along the top and the bottom
edge for the columns. Hidden rows, filters and scrolled sheets come out right by that; two edges each, because
a merged cell on one of them hides the rows or columns that it spans.
"""

from __future__ import annotations

import re
from itertools import islice, product
from typing import cast

from deskroll.desktops.x11.atspi_bus import Call, Method, Window, property_of
from deskroll.desktops.x11.atspi_nodes import Extents, Node, Ref

_AT_POINT = Method("org.a11y.atspi.Component", "GetAccessibleAtPoint", "iiu", "(so)")
_CELL_AT = Method("org.a11y.atspi.Table", "GetAccessibleAt", "ii", "(so)")
_NAME = property_of("org.a11y.atspi.Accessible", "Name", "s")
_ADDRESS = re.compile(r"([A-Z]{1,3})([1-9][0-9]{0,6})")
_ROW_STEP = 4
"""Pixels between two samples; lower rows than that nobody can read."""
_COLUMN_STEP = 8


async def visible_cells(window: Window, table: Node, most: int) -> list[Ref]:
    """The cells on the screen, row by row, the first `most` of them; hidden ones may be among them."""
    if table.extents is None:
        return []
    points = _points(table.extents)
    hits = await window.run([Call(table.ref, _AT_POINT, (*point, 0)) for point in points])
    found = list(dict.fromkeys(cast(Ref, hit) for hit in hits if hit is not None))
    names = await window.run([Call(ref, _NAME) for ref in found])
    addresses = [match for name in names if (match := _ADDRESS.fullmatch(str(name or "")))]
    columns = sorted({_column(match[1]) for match in addresses})
    rows = sorted({int(match[2]) - 1 for match in addresses})
    grid = islice(product(rows, columns), most)
    cells = await window.run([Call(table.ref, _CELL_AT, place) for place in grid])
    return [cast(Ref, cell) for cell in cells if cell is not None]


def _points(extents: Extents) -> list[tuple[int, int]]:
    """Just inside of the edges."""
    left, top, width, height = extents
    right, bottom = left + width - 2, top + height - 2
    down = range(top + 1, bottom + 1, _ROW_STEP)
    along = range(left + 1, right + 1, _COLUMN_STEP)
    return [(x, y) for x in (left + 1, right) for y in down] + [(x, y) for y in (top + 1, bottom) for x in along]


def _column(letters: str) -> int:
    """A is 0, Z is 25, AA is 26."""
    number = 0
    for letter in letters:
        number = number * 26 + ord(letter) - ord("A") + 1
    return number - 1
