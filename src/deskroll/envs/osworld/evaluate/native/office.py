"""Reads the text of docx, xlsx and pptx files. Whatever is wrong with one raises `Unreadable`."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from xml.etree import ElementTree

from deskroll.envs.osworld.evaluate.native.package import A, P, Package, R, S, W
from deskroll.envs.osworld.evaluate.native.values import File, Unreadable

Cell = str | float | bool | None
Rows = tuple[tuple[Cell, ...], ...]
_CELLS = 2_000_000
_BREAKS = {f"{W}tab": "\t", f"{W}br": "\n", f"{W}cr": "\n", f"{W}noBreakHyphen": "-"}


def docx_paragraphs(file: File) -> list[str]:
    """The text of each paragraph of the body, tables left out, as python-docx gives it."""
    body = Package(file).need("word/document.xml").find(f"{W}body")
    return [_paragraph(each) for each in (body if body is not None else ()) if each.tag == f"{W}p"]


def _paragraph(paragraph: ElementTree.Element) -> str:
    runs = []
    for each in paragraph:
        if each.tag == f"{W}r":
            runs.append(run_text(each))
        elif each.tag == f"{W}hyperlink":
            runs.extend(run_text(run) for run in each if run.tag == f"{W}r")
    return "".join(runs)


def run_text(run: ElementTree.Element) -> str:
    """The text of a run of a docx."""
    parts = []
    for each in run:
        if each.tag == f"{W}t":
            parts.append(each.text or "")
        elif each.tag in _BREAKS and each.get(f"{W}type", "textWrapping") == "textWrapping":
            parts.append(_BREAKS[each.tag])
    return "".join(parts)


def pptx_texts(file: File) -> list[list[str]]:
    """The paragraphs of each slide, in the order of the slides and of the file; empty ones left out."""
    package = Package(file)
    targets = package.targets("ppt/presentation.xml")
    shown = package.need("ppt/presentation.xml").iter(f"{P}sldId")
    slides = []
    for each in shown:
        slide = package.need(targets.get(each.get(f"{R}id", ""), ""))
        texts = ("".join(t.text or "" for t in p.iter(f"{A}t")) for p in slide.iter(f"{A}p"))
        slides.append([text for text in texts if text.strip()])
    return slides


def xlsx_sheets(file: File) -> dict[str, Rows]:
    """Every sheet by name, in order: values as they were last computed, empty ends cut off."""
    package = Package(file)
    targets = package.targets("xl/workbook.xml")
    strings = package.xml("xl/sharedStrings.xml", required=False)
    shared = ["".join(t.text or "" for t in _texts(si)) for si in (strings if strings is not None else ())]
    sheets = {}
    for sheet in package.need("xl/workbook.xml").iter(f"{S}sheet"):
        root = package.need(targets.get(sheet.get(f"{R}id", ""), ""))
        sheets[sheet.get("name", "")] = _rows(root, shared, file.name)
    return sheets


def _texts(item: ElementTree.Element) -> Iterator[ElementTree.Element]:
    """The text of a string, without its reading aids."""
    for each in item:
        if each.tag == f"{S}t":
            yield each
        elif each.tag == f"{S}r":
            yield from (inner for inner in each if inner.tag == f"{S}t")


def _rows(root: ElementTree.Element, shared: Sequence[str], name: str) -> Rows:
    rows: list[list[Cell]] = []
    room = _CELLS
    for row in root.iter(f"{S}row"):
        line: list[Cell] = []
        for cell in row:
            column = _column(cell.get("r", ""), len(line))
            value = _value(cell, shared, name)
            if value is not None:
                line += [None] * (column - len(line))
                line.append(value)
        place = int(row.get("r", "0")) - 1 if re.fullmatch("[0-9]{1,12}", row.get("r", "")) else len(rows)
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
        inline = cell.find(f"{S}is")
        return "".join(t.text or "" for t in _texts(inline)) if inline is not None else None
    found = cell.findtext(f"{S}v")
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
