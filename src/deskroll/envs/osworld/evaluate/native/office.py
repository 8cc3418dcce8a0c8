"""Reads the text of docx, xlsx and pptx files, with the standard library and within bounds.

Guarantees: no file takes more than `_MOST` bytes unpacked, no document type declaration is read (so no entity is ever
expanded), and whatever is wrong raises `Unreadable`.
"""

from __future__ import annotations

import io
import re
import zipfile
import zlib
from collections.abc import Iterator, Mapping, Sequence
from xml.etree import ElementTree

from deskroll.envs.osworld.evaluate.native.values import File, Unreadable

Cell = str | float | bool | None
Rows = tuple[tuple[Cell, ...], ...]
_MOST = 64 * 1024 * 1024
_CELLS = 2_000_000
_W = "{http://schemas.openxmlformats.org/wordprocessingml/2006/main}"
_S = "{http://schemas.openxmlformats.org/spreadsheetml/2006/main}"
_A = "{http://schemas.openxmlformats.org/drawingml/2006/main}"
_R = "{http://schemas.openxmlformats.org/officeDocument/2006/relationships}"
_P = "{http://schemas.openxmlformats.org/presentationml/2006/main}"
_BREAKS = {f"{_W}tab": "\t", f"{_W}br": "\n", f"{_W}cr": "\n", f"{_W}noBreakHyphen": "-"}


class _Package:
    """The parts of one file."""

    def __init__(self, file: File) -> None:
        self._name = file.name
        self._left = _MOST
        try:
            self._zip = zipfile.ZipFile(io.BytesIO(file.data))
        except (zipfile.BadZipFile, ValueError, OSError) as error:
            raise Unreadable(f"{file.name} is no office document: {error}") from None

    def xml(self, path: str, *, required: bool = True) -> ElementTree.Element | None:
        """One part; None where it may be missing, and is."""
        try:
            with self._zip.open(path) as part:
                data = part.read(self._left + 1)
        except KeyError:
            if required:
                raise Unreadable(f"{self._name} has no {path}") from None
            return None
        except (zipfile.BadZipFile, zlib.error, ValueError, OSError, EOFError, RuntimeError, NotImplementedError) as e:
            raise Unreadable(f"{self._name}: {path}: {e}") from None
        self._left -= len(data)
        if self._left < 0:
            raise Unreadable(f"{self._name} takes more than {_MOST} bytes unpacked")
        if b"\0" in data or b"<!DOCTYPE" in data:
            raise Unreadable(f"{self._name}: {path} is no plain XML")
        try:
            return ElementTree.fromstring(data)  # noqa: S314  (no declarations, so no entities; the size is bounded)
        except ElementTree.ParseError as error:
            raise Unreadable(f"{self._name}: {path}: {error}") from None

    def need(self, path: str) -> ElementTree.Element:
        """One part that must be there."""
        found = self.xml(path)
        if found is None:
            raise Unreadable(f"{self._name} has no {path}")
        return found

    def targets(self, path: str, base: str) -> Mapping[str, str]:
        """The parts that a part names, by their ids."""
        root = self.xml(path, required=False)
        found = {}
        for each in root if root is not None else ():
            target = each.get("Target", "")
            found[each.get("Id", "")] = target.lstrip("/") if target.startswith("/") else f"{base}/{target}"
        return found


def docx_paragraphs(file: File) -> list[str]:
    """The text of each paragraph of the body, tables left out, as python-docx gives it."""
    body = _Package(file).need("word/document.xml").find(f"{_W}body")
    return [_paragraph(each) for each in (body if body is not None else ()) if each.tag == f"{_W}p"]


def _paragraph(paragraph: ElementTree.Element) -> str:
    runs = []
    for each in paragraph:
        if each.tag == f"{_W}r":
            runs.append(_run(each))
        elif each.tag == f"{_W}hyperlink":
            runs.extend(_run(run) for run in each if run.tag == f"{_W}r")
    return "".join(runs)


def _run(run: ElementTree.Element) -> str:
    parts = []
    for each in run:
        if each.tag == f"{_W}t":
            parts.append(each.text or "")
        elif each.tag in _BREAKS and each.get(f"{_W}type", "textWrapping") == "textWrapping":
            parts.append(_BREAKS[each.tag])
    return "".join(parts)


def pptx_texts(file: File) -> list[list[str]]:
    """The paragraphs of each slide, in the order of the slides and of the file; empty ones left out."""
    package = _Package(file)
    targets = package.targets("ppt/_rels/presentation.xml.rels", "ppt")
    shown = package.need("ppt/presentation.xml").iter(f"{_P}sldId")
    slides = []
    for each in shown:
        slide = package.need(targets.get(each.get(f"{_R}id", ""), ""))
        texts = ("".join(t.text or "" for t in p.iter(f"{_A}t")) for p in slide.iter(f"{_A}p"))
        slides.append([text for text in texts if text.strip()])
    return slides


def xlsx_sheets(file: File) -> dict[str, Rows]:
    """Every sheet by name, in order: values as they were last computed, empty ends cut off."""
    package = _Package(file)
    targets = package.targets("xl/_rels/workbook.xml.rels", "xl")
    strings = package.xml("xl/sharedStrings.xml", required=False)
    shared = ["".join(t.text or "" for t in _texts(si)) for si in (strings if strings is not None else ())]
    sheets = {}
    for sheet in package.need("xl/workbook.xml").iter(f"{_S}sheet"):
        root = package.need(targets.get(sheet.get(f"{_R}id", ""), ""))
        sheets[sheet.get("name", "")] = _rows(root, shared, file.name)
    return sheets


def _texts(item: ElementTree.Element) -> Iterator[ElementTree.Element]:
    """The text of a string, without its reading aids."""
    for each in item:
        if each.tag == f"{_S}t":
            yield each
        elif each.tag == f"{_S}r":
            yield from (inner for inner in each if inner.tag == f"{_S}t")


def _rows(root: ElementTree.Element, shared: Sequence[str], name: str) -> Rows:
    rows: list[list[Cell]] = []
    room = _CELLS
    for row in root.iter(f"{_S}row"):
        line: list[Cell] = []
        for cell in row:
            column = _column(cell.get("r", ""), len(line))
            value = _value(cell, shared, name)
            if value is not None:
                line += [None] * (column - len(line))
                line.append(value)
        place = int(row.get("r", "0")) - 1 if row.get("r", "").isdigit() else len(rows)
        if line:
            room -= len(line) + max(0, place - len(rows))
            if room < 0:
                raise Unreadable(f"{name} has more than {_CELLS} cells")
            rows += [[] for _ in range(place - len(rows))]
            rows.append(line)
    width = max(map(len, rows), default=0)
    if width * len(rows) > _CELLS:
        raise Unreadable(f"{name} has more than {_CELLS} cells")
    return tuple((*row, *[None] * (width - len(row))) for row in rows)


def _column(reference: str, default: int) -> int:
    letters = re.match(r"[A-Z]{1,3}", reference)
    if letters is None:
        return default
    place = 0
    for letter in letters[0]:
        place = place * 26 + ord(letter) - ord("A") + 1
    return place - 1


def _value(cell: ElementTree.Element, shared: Sequence[str], name: str) -> Cell:
    kind = cell.get("t", "n")
    if kind == "inlineStr":
        inline = cell.find(f"{_S}is")
        return "".join(t.text or "" for t in _texts(inline)) if inline is not None else None
    found = cell.findtext(f"{_S}v")
    if found is None:
        return None
    try:
        match kind:
            case "s":
                return shared[int(found)] or None
            case "b":
                return found == "1"
            case "n":
                return float(found)
    except (ValueError, IndexError):
        raise Unreadable(f"{name}: cell {cell.get('r', '?')[:20]!r} holds no value of its kind") from None
    return found or None
