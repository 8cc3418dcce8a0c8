"""The text of a journal as it was read, by line number: split only when somebody asks for a line."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator

from deskroll.store import journal


class Text:
    """Lines that were read, in one or more pieces."""

    def __init__(self) -> None:
        self.count = 0
        """Whole lines so far."""
        self._pieces: list[bytes] = []
        self._split: list[list[bytes] | None] = []
        self._before: list[int] = []

    def add(self, data: bytes, count: int) -> None:
        """Take in so many whole lines; a torn last one is not among them."""
        self._pieces.append(data)
        self._split.append(None)
        self._before.append(self.count)
        self.count += count

    def line(self, number: int) -> bytes:
        """A line by its number, from 1 on."""
        piece = bisect_right(self._before, number - 1) - 1
        return self._lines(piece)[number - 1 - self._before[piece]]

    def lines(self) -> Iterator[bytes]:
        """All lines, in order."""
        for piece in range(len(self._pieces)):
            yield from self._lines(piece)

    def _lines(self, piece: int) -> list[bytes]:
        found = self._split[piece]
        if found is None:
            found = self._split[piece] = journal.lines(self._pieces[piece])
            self._pieces[piece] = b""  # not twice
        return found
