"""The sheets of an xlsx file, each read when it is asked for. Whatever is wrong with one raises `Unreadable`.

Guarantees: all that is read of one file has no more than `_CELLS` cells, empty ones among them counted, however many
sheets it names and however often it names one.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence, Set
from datetime import datetime, time, timedelta
from functools import cached_property
from xml.etree import ElementTree

from deskroll.envs.osworld.evaluate.native.package import Package, R, S
from deskroll.envs.osworld.evaluate.native.values import File, Unreadable

_CELLS = 2_000_000


_DATES = {"14", "15", "16", "17", "18", "19", "20", "21", "22", "45", "46", "47"}
"""Formats of dates and times that files name by number alone."""
_EPOCH = datetime(1899, 12, 30)
_FIRST_DAY, _LAST_DAY = -693_593, 2_958_466
"""The numbers of the days from year 1 to 9999; any other is no date, and what is shown as one has failed."""
_NO_FORMAT = re.compile(r'".*?"|\[(?!hh?\]|mm?\]|ss?\])[^\]]*\]')
_OF_DATES = re.compile(r"(?<![_\\])[dmhysDMHYS]")


class Date(float):
    """A date or a time, as the number that it is kept as."""


class Fault(str):
    """What a cell shows whose formula failed: `#DIV/0!`."""

    __slots__ = ()


Cell = str | float | bool | None
Rows = tuple[tuple[Cell, ...], ...]


class Workbook:
    """The sheets of one file."""

    def __init__(self, file: File) -> None:
        self._name = file.name
        self._package = Package(file)
        self._room = _CELLS
        targets = self._package.targets("xl/workbook.xml")
        sheets = self._package.need("xl/workbook.xml").iter(f"{S}sheet")
        self._parts = {each.get("name", ""): targets.get(each.get(f"{R}id", ""), "") for each in sheets}
        self._read: dict[str, Rows] = {}

    @property
    def names(self) -> Sequence[str]:
        """Those of the sheets, in order."""
        return list(self._parts)

    def rows(self, name: str) -> Rows:
        """A sheet's values as they were last computed, empty ends cut off."""
        part = self._parts[name]
        if part not in self._read:
            self._read[part] = self._rows(self._package.need(part))
        return self._read[part]

    @cached_property
    def _shared(self) -> Sequence[str]:
        strings = self._package.xml("xl/sharedStrings.xml", required=False)
        return ["".join(t.text or "" for t in _texts(si)) for si in (strings if strings is not None else ())]

    def _rows(self, root: ElementTree.Element) -> Rows:
        rows: list[list[Cell]] = []
        room = self._room
        for row in root.iter(f"{S}row"):
            line: list[Cell] = []
            for cell in row:
                column = _column(cell.get("r", ""), len(line))
                value = self._value(cell)
                if value is not None:
                    line += [None] * (column - len(line))
                    line.append(value)
            place = int(row.get("r", "0")) - 1 if re.fullmatch("[0-9]{1,12}", row.get("r", "")) else len(rows)
            if line:
                room -= len(line) + max(0, place - len(rows))
                self._require(room)
                rows += [[] for _ in range(place - len(rows))]
                rows.append(line)
        width = max(map(len, rows), default=0)
        self._room -= max(width, 1) * len(rows)
        self._require(self._room)
        return tuple((*row, *[None] * (width - len(row))) for row in rows)

    def _value(self, cell: ElementTree.Element) -> Cell:
        kind = cell.get("t", "n")
        if kind == "inlineStr":
            inline = cell.find(f"{S}is")
            return "".join(t.text or "" for t in _texts(inline)) or None if inline is not None else None
        found = cell.findtext(f"{S}v")
        if not found:  # of whatever kind: to upstream's library, it is an empty cell
            return None
        try:
            match kind:
                case "s":
                    return self._shared[int(found)] or None
                case "b":
                    return bool(int(found))
                case "n":
                    return self._number(found, int(cell.get("s") or 0))
                case "d":
                    return _day(found)
        except (ValueError, IndexError, OverflowError):
            raise Unreadable(f"{self._name}: cell {cell.get('r', '?')[:20]!r} holds no value of its kind") from None
        return Fault(found) if kind == "e" else found or None

    def _number(self, found: str, style: int) -> Cell:
        """As openpyxl reads it: what has neither a point nor an exponent must be a whole number."""
        number = float(found) if set(found) & set(".eE") else float(int(found))
        if style not in self._dated:
            return number
        return Date(number) if _FIRST_DAY <= number < _LAST_DAY else Fault("#VALUE!")

    @cached_property
    def _dated(self) -> Set[int]:
        """The styles of cells that show dates."""
        root = self._package.xml("xl/styles.xml", required=False)
        if root is None:
            return frozenset()
        own = {each.get("numFmtId", ""): each.get("formatCode", "") for each in root.iter(f"{S}numFmt")}
        formats = (style.get("numFmtId", "0") for style in root.iterfind(f"{S}cellXfs/{S}xf"))
        dated = (_is_of_dates(own[each]) if each in own else each in _DATES for each in formats)
        return {n for n, each in enumerate(dated) if each}

    def _require(self, room: int) -> None:
        if room < 0:
            raise Unreadable(f"{self._name} has more than {_CELLS} cells")


def _texts(item: ElementTree.Element) -> Iterator[ElementTree.Element]:
    """The text of a string, without its reading aids."""
    for each in item:
        if each.tag == f"{S}t":
            yield each
        elif each.tag == f"{S}r":
            yield from (inner for inner in each if inner.tag == f"{S}t")


def _day(text: str) -> Date:
    """A date, a time or both, written out; `ValueError` where it is none."""
    text = text.removesuffix("Z")
    if "-" not in text:
        at = time.fromisoformat(text)
        return Date((at.hour * 3600 + at.minute * 60 + at.second + at.microsecond / 1e6) / 86400)
    return Date((datetime.fromisoformat(text).replace(tzinfo=None) - _EPOCH) / timedelta(days=1))


def _column(reference: str, default: int) -> int:
    letters = re.match(r"[A-Z]{1,3}", reference)
    if letters is None:
        return default
    place = 0
    for letter in letters[0]:
        place = place * 26 + ord(letter) - ord("A") + 1
    return place - 1


def _is_of_dates(code: str) -> bool:
    """As openpyxl sees it."""
    return _OF_DATES.search(_NO_FORMAT.sub("", code.split(";", maxsplit=1)[0])) is not None
