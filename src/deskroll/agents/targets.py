"""Targets: elements of the screen that a written solution names, found in the table that an agent is shown.

    {"tag": "push-button", "name": "Save"}        a row with exactly these cells
    {"tag": "terminal", "has": "done"}            ... and this somewhere in its name or text
    {"name": "File", "nth": 1, "at": [0.1, 0.5]}  the second such row; the point, as a share of its width and height

Guarantees: pure; a table is only read, and what in it is no row of an element is left out.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Annotated

import msgspec

from deskroll.types import Record

_PAIR = re.compile(r"\((\d{1,7}), (\d{1,7})\)")
_CELLS = 7
"""tag, name, text, class, description, position, size."""
Share = Annotated[float, msgspec.Meta(ge=0, lt=1)]


class Seen(Record, frozen=True):
    """One row of the table."""

    tag: str
    name: str
    text: str
    x: int
    y: int
    width: int
    height: int


class Target(Record, frozen=True, forbid_unknown_fields=True):
    """What to look for; what is not given does not matter."""

    tag: str | None = None
    name: str | None = None
    text: str | None = None
    has: str = ""
    """Part of the name or of the text."""
    nth: int = 0
    """Which of those that fit; negative counts from the last one."""
    at: tuple[Share, Share] = (0.5, 0.5)
    """Where on it: shares of its width and height."""

    def __post_init__(self) -> None:
        if self.tag is None and self.name is None and self.text is None and not self.has:
            raise ValueError("a target needs one of tag, name, text and has")

    def found(self, table: str) -> tuple[int, int] | None:
        """The pixel to point at; None where nothing fits."""
        fitting = [row for row in rows(table) if self._fits(row)]
        if not -len(fitting) <= self.nth < len(fitting):
            return None
        row = fitting[self.nth]
        return row.x + int(row.width * self.at[0]), row.y + int(row.height * self.at[1])

    def _fits(self, row: Seen) -> bool:
        return (
            self.tag in (None, row.tag)
            and self.name in (None, row.name)
            and self.text in (None, row.text)
            and (self.has in row.name or self.has in row.text)
        )

    def __str__(self) -> str:
        """As it is written, without what is not given."""
        return msgspec.json.encode(self).decode()


def rows(table: str) -> list[Seen]:
    """The elements of a table."""
    found = (_row([_unquoted(cell) for cell in line.split("\t")]) for line in table.split("\n"))
    return [row for row in found if row is not None]


def _unquoted(cell: str) -> str:
    """A cell without the quotes that it has where it holds some, or nothing."""
    return cell[1:-1].replace('""', '"') if len(cell) > 1 and cell[0] == cell[-1] == '"' else cell


def _row(cells: Sequence[str]) -> Seen | None:
    if len(cells) != _CELLS:
        return None
    place, size = _PAIR.fullmatch(cells[5]), _PAIR.fullmatch(cells[6])
    if not (place and size):
        return None
    return Seen(
        tag=cells[0],
        name=cells[1],
        text=cells[2],
        x=int(place[1]),
        y=int(place[2]),
        width=int(size[1]),
        height=int(size[2]),
    )
