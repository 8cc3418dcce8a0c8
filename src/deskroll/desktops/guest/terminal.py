"""The text of the focused terminal, found in the accessibility tree."""

from __future__ import annotations

from xml.etree import ElementTree as ET

from deskroll.desktops.x11.atspi_xml import NAMESPACES

_ACTIVE, _FOCUSED = (f"{{{NAMESPACES['st']}}}{state}" for state in ("active", "focused"))


def terminal_text(tree: str) -> str | None:
    """What the one focused terminal of the active window shows; None when there is none that tells (xterm does not)."""
    root = ET.fromstring(tree)  # noqa: S314  (we wrote it ourselves, without entities)
    found = [
        terminal
        for frame in root.iterfind("./application/frame")
        if frame.get(_ACTIVE) == "true"
        for terminal in frame.iter("terminal")
        if terminal.get(_FOCUSED) == "true"
    ]
    return (found[0].text or "").rstrip() if len(found) == 1 else None
