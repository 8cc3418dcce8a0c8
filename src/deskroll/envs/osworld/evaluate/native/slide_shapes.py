"""Reads the shapes of slides as python-pptx gives them: inherited places, texts, tables, notes, backgrounds."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cached_property
from xml.etree import ElementTree

from deskroll.envs.osworld.evaluate.native.package import A, P, Package
from deskroll.envs.osworld.evaluate.native.slides import paragraph_text, placeholder, slide_parts
from deskroll.envs.osworld.evaluate.native.values import File

Element = ElementTree.Element
Place = tuple[int | None, int | None, int | None, int | None]
"""Left, top, width, height."""
_SHAPES = tuple(f"{P}{name}" for name in ("sp", "grpSp", "graphicFrame", "cxnSp", "pic", "contentPart"))
_TABLE = "http://schemas.openxmlformats.org/drawingml/2006/table"
_ON_MASTER = {"title": "title", "ctrTitle": "title", "dt": "dt", "ftr": "ftr", "sldNum": "sldNum"}
"""What of the master a layout's placeholder inherits from; all others, from its body."""
_DEEP = 50


class Slide:
    """One slide, with its layout and its master."""

    def __init__(self, package: Package, part: str) -> None:
        self._package = package
        self._part = part
        self.root = package.need(part)
        self.shapes = _children(self.root.find(f"{P}cSld/{P}spTree"))

    @cached_property
    def _layout(self) -> tuple[Element | None, Element | None]:
        """The layout and the master."""
        layouts = self._package.related(self._part, "slideLayout")
        masters = self._package.related(layouts[0], "slideMaster") if layouts else []
        return (
            self._package.xml(layouts[0], required=False) if layouts else None,
            self._package.xml(masters[0], required=False) if masters else None,
        )

    def texts(self) -> list[Element]:
        """Every shape with text, also within groups."""
        return list(_with_text(self.shapes, 0))

    def place(self, shape: Element) -> Place:
        """Where a shape is; a placeholder without a place is where the layout has it, or the master."""
        kind = placeholder(shape)
        places = [_place(shape)]
        if kind is not None and shape.tag in (f"{P}sp", f"{P}pic"):
            layout, master = self._layout
            above = next((each for each in _placeholders(layout) if _index(each) == _index(shape)), None)
            if above is not None:
                name = _ON_MASTER.get(placeholder(above) or "", "body")
                top = next((each for each in _placeholders(master) if placeholder(each) == name), None)
                places += [_place(above), (None,) * 4 if top is None else _place(top)]
        left, upper, width, height = (
            next((n for n in each if n is not None), None) for each in zip(*places, strict=True)
        )
        return left, upper, width, height

    def background(self) -> str | None:
        """The colour of a plain background; a slide without one has its master's."""
        fill = _fill(self.root)
        if fill is None or fill.tag == f"{A}noFill":
            _, master = self._layout
            fill = _fill(master)
        return _colour(fill) if fill is not None and fill.tag == f"{A}solidFill" else None

    def notes(self) -> str:
        """What its notes say."""
        for part in self._package.related(self._part, "notesSlide")[:1]:
            for shape in _children(self._package.need(part).find(f"{P}cSld/{P}spTree")):
                if shape.tag == f"{P}sp" and placeholder(shape) == "body":
                    return shape_text(shape).strip()
        return ""


def slides_of(file: File) -> list[Slide]:
    """All slides, in the order of the show."""
    package = Package(file)
    return [Slide(package, part) for part in slide_parts(package)]


def paragraphs_of(shape: Element) -> list[Element]:
    """The paragraphs of a shape or a cell; one that has no text has an empty one."""
    for tag in (f"{P}txBody", f"{A}txBody"):
        if (body := shape.find(tag)) is not None:
            return body.findall(f"{A}p")
    return [Element(f"{A}p")]


def shape_text(shape: Element) -> str:
    """All its text."""
    return "\n".join(paragraph_text(each) for each in paragraphs_of(shape))


def cells_of(shape: Element) -> list[list[Element]] | None:
    """The cells of a table, as wide as it says; None where the shape is none."""
    data = shape.find(f"{A}graphic/{A}graphicData") if shape.tag == f"{P}graphicFrame" else None
    table = data.find(f"{A}tbl") if data is not None and data.get("uri") == _TABLE else None
    if table is None:
        return None
    width = len(table.findall(f"{A}tblGrid/{A}gridCol"))
    return [row.findall(f"{A}tc")[:width] for row in table.findall(f"{A}tr")]


def run_colour(run: Element) -> str | None:
    """The colour of a run, if it is given in red, green and blue."""
    found = run.find(f"{A}rPr/{A}solidFill/{A}srgbClr")
    return None if found is None else found.get("val", "").upper()


def _children(tree: Element | None) -> list[Element]:
    return [each for each in (tree if tree is not None else ()) if each.tag in _SHAPES]


def _with_text(shapes: list[Element], depth: int) -> Iterator[Element]:
    for each in shapes:
        if each.tag == f"{P}sp":
            yield each
        elif each.tag == f"{P}grpSp" and depth < _DEEP:
            yield from _with_text(_children(each), depth + 1)


def _placeholders(root: Element | None) -> list[Element]:
    shapes = _children(root.find(f"{P}cSld/{P}spTree") if root is not None else None)
    return [each for each in shapes if placeholder(each) is not None]


def _index(shape: Element) -> str:
    found = shape.find(f"./*/{P}nvPr/{P}ph")
    return "0" if found is None else found.get("idx", "0")


def _place(shape: Element) -> Place:
    at = next((each for path in (f"{P}xfrm", f"./*/{A}xfrm") if (each := shape.find(path)) is not None), None)
    offset, extent = (None, None) if at is None else (at.find(f"{A}off"), at.find(f"{A}ext"))
    return (_number(offset, "x"), _number(offset, "y"), _number(extent, "cx"), _number(extent, "cy"))


def _number(element: Element | None, name: str) -> int | None:
    text = "" if element is None else element.get(name, "")
    return int(text) if re.fullmatch("-?[0-9]{1,18}", text) else None


def _fill(root: Element | None) -> Element | None:
    """The first thing that a background of its own is filled with."""
    about = root.find(f"{P}cSld/{P}bg/{P}bgPr") if root is not None else None
    return None if about is None else next(iter(about), None)


def _colour(fill: Element) -> str:
    colour = next(iter(fill), None)
    return "" if colour is None else f"{colour.tag.rpartition('}')[2]} {colour.get('val', '').upper()}"
