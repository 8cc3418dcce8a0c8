"""What of an accessibility tree an agent is shown: the elements that can be used or read, as OSWorld's agents choose
them, in a table.

Guarantees: whatever the tree holds, the table has one line an element, and nothing in it can break out of its cell.
A tree that cannot be read has no elements, and is never an exception: it comes from the desktop, where anything may be.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from xml.etree import ElementTree as ET

from deskroll.errors import plain
from deskroll.types import Record

LARGEST_TREE = 64 * 1024**2
_NS = "https://accessibility.ubuntu.example.org/ns"
_STATE, _PLACE, _ATTRIBUTES = f"{{{_NS}/state}}", f"{{{_NS}/component}}", f"{{{_NS}/attributes}}"
_PAIR = re.compile(r"\((-?\d{1,7}), ?(-?\d{1,7})\)")
_ENDS = (
    "item", "button", "heading", "label", "scrollbar", "searchbox", "textbox", "link", "tabelement", "textfield",
    "textarea", "menu",
)  # fmt: skip
_TAGS = frozenset({
    "alert", "canvas", "check-box", "combo-box", "entry", "icon", "image", "paragraph", "scroll-bar", "section",
    "slider", "static", "table-cell", "terminal", "text",
})  # fmt: skip
_WINDOWS = ("frame", "dialog", "window", "alert")
_USABLE = ("enabled", "editable", "expandable", "checkable")
_COLUMNS = "tag\tname\ttext\tclass\tdescription\tposition (top-left x&y)\tsize (w&h)"
_MARKED_COLUMNS = "index\ttag\tname\ttext"
_LONGEST_CELL = 2_000


class Element(Record, frozen=True):
    """Something on the screen that a program tells about."""

    tag: str
    name: str
    text: str
    x: int
    y: int
    width: int
    height: int
    kind: str = ""
    """The class that a toolkit gives it."""
    description: str = ""

    @property
    def centre(self) -> tuple[int, int]:
        """The pixel in its middle."""
        return self.x + self.width // 2, self.y + self.height // 2


def sound(tree: str) -> bool:
    """Whether it may be given to a parser: not too large, and without a document type, whose entities could expand."""
    return len(tree) <= LARGEST_TREE and "<!DOCTYPE" not in tree  # no tree of a guest declares anything


def elements(tree: str) -> list[Element]:
    """The elements of a tree that are on the screen, can be used, and have a name or a text."""
    return [element for node in _nodes(tree) if (element := _element(node)) is not None]


def window_titles(tree: str) -> list[str]:
    """What the windows on the screen are called, which no table of elements says."""
    shown = (node for node in _nodes(tree) if node.get(f"{_STATE}showing") == "true" and node.tag in _WINDOWS)
    return [_cell(node.get("name", "")) for node in shown]


def _nodes(tree: str) -> Iterator[ET.Element]:
    if not sound(tree):
        return iter(())
    try:
        return ET.fromstring(tree).iter()  # noqa: S314  (without a document type there are no entities to expand)
    except ET.ParseError:
        return iter(())


def table(found: Iterable[Element]) -> str:
    """The elements as OSWorld's agents are shown them."""
    lines = [
        f"{each.tag}\t{each.name}\t{each.text}\t{each.kind}\t{each.description}\t({each.x}, {each.y})\t"
        f"({each.width}, {each.height})"
        for each in found
    ]
    return "\n".join([_COLUMNS, *lines])


def marked_table(found: Sequence[Element]) -> str:
    """The elements by the numbers that are drawn on the screen."""
    lines = [f"{number}\t{each.tag}\t{each.name}\t{each.text}" for number, each in enumerate(found, 1)]
    return "\n".join([_MARKED_COLUMNS, *lines])


def _element(node: ET.Element) -> Element | None:
    tag, state = node.tag, node.attrib
    if not (tag.startswith("document") or tag.endswith(_ENDS) or tag in _TAGS):
        return None
    if state.get(f"{_STATE}showing") != "true" or state.get(f"{_STATE}visible") != "true":
        return None
    if not any(state.get(_STATE + name) == "true" for name in _USABLE):
        return None
    name, text = state.get("name", ""), node.text or ""
    place, size = (_pair(state.get(f"{_PLACE}{each}", "")) for each in ("screencoord", "size"))
    if not (name or text) or min(place) < 0 or min(size) <= 0:
        return None
    return Element(
        tag=_cell(tag),
        name=_cell(name),
        text=_cell(text) if text else '""',
        x=place[0],
        y=place[1],
        width=size[0],
        height=size[1],
        kind=_cell(state.get(f"{_ATTRIBUTES}class", "")),
        description=_cell(state.get(f"{_ATTRIBUTES}description", "")),
    )


def _pair(written: str) -> tuple[int, int]:
    found = _PAIR.fullmatch(written)
    return (int(found[1]), int(found[2])) if found else (-1, -1)


def _cell(text: str) -> str:
    """A text that stays in its cell: one line, without tabs; quoted, as OSWorld does, where it holds quotes."""
    shown = plain(" ".join(text.split()), _LONGEST_CELL)
    return '"' + shown.replace('"', '""') + '"' if '"' in shown else shown
