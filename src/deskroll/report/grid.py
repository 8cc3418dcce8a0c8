"""Tables that fit the terminal: names are kept and folded, columns of numbers are whole or not there at all."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from rich.cells import cell_len
from rich.table import Table
from rich.text import Text

GAP = 2
"""Blanks between columns."""
_NARROWEST = 12
"""Characters to which a column of text may be folded."""


@dataclass(frozen=True)
class Column:
    """A column with all its cells."""

    head: str
    cells: Sequence[str | Text]
    text: bool = False
    """Whether it holds text, which is folded; numbers never are."""

    @property
    def widest(self) -> int:
        """The characters that it takes where there is room."""
        return max(_width(cell) for cell in (self.head, *self.cells))

    @property
    def least(self) -> int:
        """The fewest characters that it needs."""
        return min(self.widest, max(_NARROWEST, _width(self.head))) if self.text else self.widest


def fitting(width: int, *variants: Sequence[Column], bold: int | None = None, sections: Sequence[int] = ()) -> Table:
    """The first of the variants, the widest first, that fits; the last one where none does.

    `bold` is the number of the row that stands out, `sections` are those before which a line is left free.
    """
    columns = next((each for each in variants if _least(each) <= width), variants[-1])
    table = Table(box=None, pad_edge=False, padding=(0, GAP, 0, 0), header_style="bold")
    for column in columns:
        table.add_column(
            column.head,
            justify="left" if column.text else "right",
            no_wrap=not column.text,
            overflow="fold",
            min_width=column.least,
        )
    for number in range(len(columns[0].cells)):
        if number in sections:
            table.add_section()
        table.add_row(*(column.cells[number] for column in columns), style="bold" if number == bold else "")
    return table


def without(columns: Sequence[Column], *heads: str) -> list[Column]:
    """All columns but these."""
    return [column for column in columns if column.head not in heads]


def narrowing(columns: Sequence[Column], *heads: str) -> list[list[Column]]:
    """Variants of a table: all columns, then without the first of `heads`, then without the first two, and so on."""
    return [without(columns, *heads[:number]) for number in range(len(heads) + 1)]


def _least(columns: Sequence[Column]) -> int:
    return sum(column.least for column in columns) + GAP * (len(columns) - 1)


def _width(cell: str | Text) -> int:
    return max((cell_len(line) for line in str(cell).split("\n")), default=0)
