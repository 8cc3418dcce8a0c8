"""What one object of a program's accessibility tree is, and what AT-SPI's numbers are called.

`ROLES` and `STATES` are AT-SPI's own enumerations, in order: the names that `pyatspi` gives, and so the names
in OSWorld's trees. Programs that name their roles themselves (some do, in the user's language) are not asked.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass, field

Ref = tuple[str, str]
"""Where an object lives: the bus name of its program, and its path there."""

Extents = tuple[int, int, int, int]
"""x, y, width and height on the screen, in pixels."""


class CutReason(enum.StrEnum):
    """Why a part of a tree is missing."""

    SILENT = "silent"
    """The program stopped answering: it hangs, or it was stopped. What it had told until then is there."""
    TIME = "time"
    """The whole walk's time was used up."""
    NODES = "nodes"
    """The program has more objects than `max_nodes`; the deepest ones are missing."""
    DEPTH = "depth"
    """The object has children below `max_depth`."""
    WIDTH = "width"
    """The object has more children than `max_width`."""
    TEXT = "text"
    """The object's text is longer than `max_text`."""


@dataclass(slots=True, eq=False)
class Node:
    """One accessible object, as far as its program told. None: it did not say, or was not asked."""

    ref: Ref
    parent: Node | None = None
    spreadsheet: bool = False
    """Below a document of Calc, whose tables have a billion cells each."""
    name: str = ""
    role: int | None = None
    role_name: str | None = None
    """Only for roles beyond `ROLES`, in the program's own words."""
    state_words: list[int] | None = None
    """The states as two words of 32 bits."""
    attributes: dict[str, str] = field(default_factory=dict)
    interfaces: frozenset[str] = frozenset()
    child_count: int | None = None
    child_refs: list[Ref] | None = None
    extents: Extents | None = None
    character_count: int | None = None
    text: str = ""
    values: dict[str, float] = field(default_factory=dict)
    actions: list[tuple[str, str, str]] | None = None
    """Of each action a name in the user's language, its description and its key binding."""
    action_names: dict[int, str] = field(default_factory=dict)
    children: list[Node] = field(default_factory=list)
    cut: CutReason | None = None

    @property
    def states(self) -> int:
        """The states as one number, bit n for `STATES[n]`."""
        words = self.state_words or []
        return sum(word << (32 * index) for index, word in enumerate(words[:2]))

    @property
    def showing(self) -> bool:
        """Whether it is on the screen: its own state and that of all its parents allow it."""
        return bool(self.states >> _SHOWING & 1)

    @property
    def on_screen(self) -> bool:
        """Whether its place on the screen means anything."""
        return self.showing and bool(self.states >> _VISIBLE & 1)


STATES = (
    "invalid", "active", "armed", "busy", "checked", "collapsed", "defunct", "editable", "enabled",
    "expandable", "expanded", "focusable", "focused", "has_tooltip", "horizontal", "iconified", "modal",
    "multi_line", "multiselectable", "opaque", "pressed", "resizable", "selectable", "selected",
    "sensitive", "showing", "single_line", "stale", "transient", "vertical", "visible",
    "manages_descendants", "indeterminate", "required", "truncated", "animated", "invalid_entry",
    "supports_autocompletion", "selectable_text", "is_default", "visited", "checkable", "has_popup",
    "read_only",
)  # fmt: skip
_SHOWING = STATES.index("showing")
_VISIBLE = STATES.index("visible")

ROLES = (
    "invalid", "accelerator label", "alert", "animation", "arrow", "calendar", "canvas", "check box",
    "check menu item", "color chooser", "column header", "combo box", "date editor", "desktop icon",
    "desktop frame", "dial", "dialog", "directory pane", "drawing area", "file chooser", "filler",
    "focus traversable", "font chooser", "frame", "glass pane", "html container", "icon", "image",
    "internal frame", "label", "layered pane", "list", "list item", "menu", "menu bar", "menu item",
    "option pane", "page tab", "page tab list", "panel", "password text", "popup menu", "progress bar",
    "push button", "radio button", "radio menu item", "root pane", "row header", "scroll bar",
    "scroll pane", "separator", "slider", "spin button", "split pane", "status bar", "table",
    "table cell", "table column header", "table row header", "tearoff menu item", "terminal", "text",
    "toggle button", "tool bar", "tool tip", "tree", "tree table", "unknown", "viewport", "window",
    "extended", "header", "footer", "paragraph", "ruler", "application", "autocomplete", "editbar",
    "embedded", "entry", "chart", "caption", "document frame", "heading", "page", "section",
    "redundant object", "form", "link", "input method window", "table row", "tree item",
    "document spreadsheet", "document presentation", "document text", "document web", "document email",
    "comment", "list box", "grouping", "image map", "notification", "info bar", "level bar", "title bar",
    "block quote", "audio", "video", "definition", "article", "landmark", "log", "marquee", "math",
    "rating", "timer", "static", "math fraction", "math root", "subscript", "superscript",
    "description list", "description term", "description value", "footnote", "content deletion",
    "content insertion", "mark", "suggestion", "push button menu",
)  # fmt: skip
MENUS = frozenset({ROLES.index("menu"), ROLES.index("menu bar")})
TABLE = ROLES.index("table")
SPREADSHEET = ROLES.index("document spreadsheet")
EXTENDED = ROLES.index("extended")
"""A role that has a name only."""


def role_is_named(role: int) -> bool:
    """Whether AT-SPI itself has a name for the role."""
    return 0 <= role < len(ROLES) and role != EXTENDED
