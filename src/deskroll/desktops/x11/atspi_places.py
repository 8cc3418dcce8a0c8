"""Puts right where a program believes its own drawings to be.

LibreOffice learns where its window is from the first mouse event over what it draws itself. Until then it tells all of
that too high, by the height of its menu bar, which GTK draws; an agent that trusts it clicks into the menu bar. Its
root pane fills a GTK object of exactly its size, and GTK knows where that is.
"""

from __future__ import annotations

from collections.abc import Iterator

from deskroll.desktops.x11.atspi_nodes import ROLES, Node

_ROOT_PANE = ROLES.index("root pane")


def align(root: Node) -> None:
    """Move what is drawn inside a GTK object to where that object is."""
    for pane in _below(root):
        if pane.role == _ROOT_PANE and not _is_gtk(pane) and (by := _off(pane)) != (0, 0):
            for node in _below(pane):
                if node.extents is not None and not _is_gtk(node):
                    x, y, width, height = node.extents
                    node.extents = (x + by[0], y + by[1], width, height)


def _off(pane: Node) -> tuple[int, int]:
    """How far it is from the GTK object that it fills; nothing where it fills none."""
    parent = pane.parent
    if parent is None or parent.extents is None or pane.extents is None or not _is_gtk(parent):
        return 0, 0
    x, y, *size = pane.extents
    real_x, real_y, *real_size = parent.extents
    return (real_x - x, real_y - y) if size == real_size else (0, 0)


def _is_gtk(node: Node) -> bool:
    return node.attributes.get("toolkit", "").lower() == "gtk"


def _below(node: Node) -> Iterator[Node]:
    """The node and all below it. Without recursion: how deep a tree is, is up to the program."""
    waiting = [node]
    while waiting:
        found = waiting.pop()
        yield found
        waiting += found.children
