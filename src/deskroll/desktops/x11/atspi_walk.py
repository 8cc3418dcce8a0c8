"""Reads the accessible objects of one program, level by level: all of them, or what a look at the screen needs.

Each level costs a handful of rounds, in which the questions about all its objects are asked together, as
many in flight as the window allows: how often an answer is waited for depends on the depth of the tree, not
on its size. Level by level also makes cuts predictable: what is missing is the deepest, and the same objects
are missing whether one call was in flight or sixty-four.

Shorter ways exist and are not taken, since looking must change nothing. AT-SPI's list of all objects (`Cache.GetItems`)
is there only while somebody listens for events, and with a listener GTK's icon views call what they show hidden. All
values in one question (`GetAll`) end Chromium, so only GTK's programs are asked for them in that way. A list of all
that shows (`Collection.GetMatches`) makes LibreOffice go through the billion cells of a sheet, and nothing stops it.

For the screen (`Scope.SHOWN`) an object is asked for its states first. Of what does not show, only what is below is
looked at, since objects that show are found below such that do not (the lines of Calc's input field, the chosen one of
a list in Chromium); except for closed menus, which are most of a large program.

Guarantees: an object is in the result only when everything about it was asked; an object that vanished
meanwhile is left out; a program that stops answering leaves the levels that it did answer.
"""

from __future__ import annotations

import enum
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import cast

from dbus_fast import Variant
from dbus_fast.validators import is_bus_name_valid

from deskroll.desktops.x11.atspi_bus import Call, Method, NoAnswer, Window, property_of
from deskroll.desktops.x11.atspi_cells import visible_cells
from deskroll.desktops.x11.atspi_nodes import MENUS, SPREADSHEET, TABLE, CutReason, Node, Ref, role_is_named

ATSPI = "org.a11y.atspi."
NULL_PATH = "/org/a11y/atspi/null"
ROOT_PATH = "/org/a11y/atspi/accessible/root"

_ACCESSIBLE = ATSPI + "Accessible"
_VALUE = ATSPI + "Value"
CHILDREN = Method(_ACCESSIBLE, "GetChildren", gives="a(so)")
_CHILD_AT = Method(_ACCESSIBLE, "GetChildAtIndex", "i", "(so)")
_CHILD_COUNT = property_of(_ACCESSIBLE, "ChildCount", "i")
_ROLE_NAME = Method(_ACCESSIBLE, "GetRoleName", gives="s")
_EXTENTS = Method(ATSPI + "Component", "GetExtents", "u", "(iiii)", (0,))
_CHARACTER_COUNT = property_of(ATSPI + "Text", "CharacterCount", "i")
_TEXT = Method(ATSPI + "Text", "GetText", "ii", "s")
_ACTIONS = Method(ATSPI + "Action", "GetActions", gives="a(sss)")
_ACTION_NAME = Method(ATSPI + "Action", "GetName", "i", "s")

_STATE = ("state_words", Method(_ACCESSIBLE, "GetState", gives="au"))
_PLACE = (
    ("child_count", _CHILD_COUNT),
    ("role", Method(_ACCESSIBLE, "GetRole", gives="u")),
)
"""What it takes to go on below an object."""
_IDENTITY = (
    ("name", property_of(_ACCESSIBLE, "Name", "s")),
    *_PLACE,
    ("interfaces", Method(_ACCESSIBLE, "GetInterfaces", gives="as")),
    ("attributes", Method(_ACCESSIBLE, "GetAttributes", gives="a{ss}")),
)
_TOOLKIT = property_of(ATSPI + "Application", "ToolkitName", "s")
_CHANGED_BY_LISTENERS = ("gtk", "gail")
"""Toolkits that take who asks past the bus for one who listens for events."""
_VALUE_NAMES = {
    "value": "CurrentValue",
    "min": "MinimumValue",
    "max": "MaximumValue",
    "step": "MinimumIncrement",
}
_VALUE_PROPERTIES = {key: property_of(_VALUE, name, "d") for key, name in _VALUE_NAMES.items()}
_VALUES = Method("org.freedesktop.DBus.Properties", "GetAll", "s", "a{sv}", (_VALUE,))
"""All of them in one question."""

Question = tuple[Node, str, Call]
"""The field of a node that an answer fills, and the call that brings it."""


class Scope(enum.Enum):
    """Which objects are read, and what of them."""

    ALL = "all"
    """Everything, whether it shows or not."""
    SHOWN = "shown"
    """What shows, without actions and values; of the rest, where it is above something that shows."""


@dataclass(frozen=True, slots=True)
class Limits:
    """How much of a tree is read, and how long that may take."""

    scope: Scope = Scope.ALL
    in_flight: int = 64
    """Unanswered calls to one program. 1: everything one call after the other, programs too, over the bus."""
    max_nodes: int = 20_000
    """Objects of one program."""
    max_depth: int = 50
    """Levels, the desktop being 0 and the programs 1. As OSWorld's."""
    max_width: int = 1024
    """Children of one object. As OSWorld's."""
    max_text: int = 100_000
    """Characters of one object's text."""
    silence_s: float = 5.0
    """Seconds without any answer after which a program counts as stopped."""
    deadline_s: float = 20.0
    """Seconds for the whole desktop."""


class ProgramWalk:
    """One program's tree. `root` is None as long as the program has not told about its own root object."""

    def __init__(self, window: Window, bus_name: str, path: str, limits: Limits) -> None:
        self.root: Node | None = None
        self.count = 0
        self.cuts: list[CutReason] = []
        self._window = window
        self._limits = limits
        self.bus_name = bus_name
        self._start = (bus_name, path)
        self._action_names: dict[tuple[object, ...], str] = {}  # of each kind of action that was asked for
        self._all = limits.scope is Scope.ALL
        self._is_gtk = False

    async def run(self, *, direct: bool) -> None:
        """Read as much as the limits and the program allow; `direct`: past the bus, if it offers that, and bears it."""
        try:
            (toolkit,) = await self._window.run([Call(self._start, _TOOLKIT)])
            self._is_gtk = toolkit == "gtk"
            if direct and str(toolkit).lower() not in _CHANGED_BY_LISTENERS:
                await self._window.open_direct(self._start)
            level = [Node(self._start)]
            for depth in range(1, self._limits.max_depth + 1):
                level = await self._read_level(level, depth)
                if not level:
                    break
        except NoAnswer as stop:
            self._cut(self.root, stop.reason)

    async def _read_level(self, level: list[Node], depth: int) -> list[Node]:
        """Read these objects and hang them into the tree; returns the next level, not read yet."""
        if not self._all:
            await self._ask([(node, _STATE[0], Call(node.ref, _STATE[1])) for node in level])
            level = [node for node in level if not self._is_in_closed_menu(node)]
        await self._ask(list(self._identity(level)))
        # A table of Calc gives cells that are hidden, too; elsewhere such objects belong in the tree.
        there = [node for node in level if node.role is not None and (node.showing or not _is_cell(node))]
        await self._ask([question for node in there for question in self._details(node)])
        await self._ask([question for node in there for question in self._contents(node)])
        if self._all:
            await self._name_actions(there)
        deepest = depth == self._limits.max_depth
        following = [] if deepest else [child for node in there for child in await self._children(node)]
        for node in there:
            if deepest and node.child_count:
                self._cut(node, CutReason.DEPTH)
            if node.parent is None:
                self.root = node
            else:
                node.parent.children.append(node)
        self.count += len(there)
        room = max(0, self._limits.max_nodes - self.count)
        if len(following) > room:
            self._cut(self.root, CutReason.NODES)
        return following[:room]

    async def _ask(self, questions: Sequence[Question]) -> None:
        answers = await self._window.run([call for _, _, call in questions])
        for (node, field, _), answer in zip(questions, answers, strict=True):
            if answer is not None:
                _store(node, field, answer)

    def _identity(self, level: list[Node]) -> Iterator[Question]:
        """What every object has."""
        for node in level:
            wanted = (*_IDENTITY, _STATE) if self._all else _IDENTITY if node.showing or node.parent is None else _PLACE
            for field, method in wanted:
                yield node, field, Call(node.ref, method)

    def _is_in_closed_menu(self, node: Node) -> bool:
        """GTK shows all of an open menu and nothing of a closed one. LibreOffice has menus of its own beside GTK's."""
        return self._is_gtk and not node.showing and node.parent is not None and node.parent.role in MENUS

    def _details(self, node: Node) -> Iterator[Question]:
        """What hangs on the object's interfaces, role and states."""
        ref = node.ref
        if node.role is not None and not role_is_named(node.role):
            yield node, "role_name", Call(ref, _ROLE_NAME)
        if "Component" in node.interfaces and node.on_screen:
            yield node, "extents", Call(ref, _EXTENTS)
        if "Text" in node.interfaces:
            yield node, "character_count", Call(ref, _CHARACTER_COUNT)
        if "Value" in node.interfaces and self._all and self._is_gtk:
            yield node, "values", Call(ref, _VALUES)
        elif "Value" in node.interfaces and self._all:
            for key, method in _VALUE_PROPERTIES.items():
                yield node, f"values.{key}", Call(ref, method)
        if "Action" in node.interfaces and self._all:
            yield node, "actions", Call(ref, _ACTIONS)
        if 0 < (node.child_count or 0) <= self._limits.max_width:
            yield node, "child_refs", Call(ref, CHILDREN)

    def _contents(self, node: Node) -> Iterator[Question]:
        """What could only be asked once the details were known."""
        ref = node.ref
        length = node.character_count or 0
        if length > self._limits.max_text:
            self._cut(node, CutReason.TEXT)
        if length > 0:
            yield node, "text", Call(ref, _TEXT, (0, min(length, self._limits.max_text)))

    async def _name_actions(self, nodes: list[Node]) -> None:
        """GetActions gives names in the user's language; what they are called in the program is asked once a kind."""
        kinds = [
            (node, index, (node.role, index, *action[:2]))
            for node in nodes
            for index, action in enumerate(node.actions or ())
        ]
        unknown = {kind: Call(node.ref, _ACTION_NAME, (index,)) for node, index, kind in kinds}
        unknown = {kind: call for kind, call in unknown.items() if kind not in self._action_names}
        for kind, name in zip(unknown, await self._window.run(list(unknown.values())), strict=True):
            if name is not None:
                self._action_names[kind] = cast(str, name)
        for node, index, kind in kinds:
            node.action_names[index] = self._action_names.get(kind, "")

    async def _children(self, node: Node) -> list[Node]:
        count = node.child_count or 0
        spreadsheet = node.spreadsheet or node.role == SPREADSHEET
        if spreadsheet and node.role == TABLE:
            refs = await visible_cells(self._window, node, self._limits.max_nodes + 1)
        elif count > self._limits.max_width:  # may be millions: never ask for all of them
            self._cut(node, CutReason.WIDTH)
            indices = range(self._limits.max_width)
            answers = await self._window.run([Call(node.ref, _CHILD_AT, (index,)) for index in indices])
            refs = [cast(Ref, answer) for answer in answers if answer is not None]
        else:
            refs = node.child_refs or []
            node.child_refs = None
        return [Node(ref, node, spreadsheet) for ref in refs if _is_object(ref)]

    def _cut(self, node: Node | None, reason: CutReason) -> None:
        if node is not None:
            node.cut = reason
        if reason not in self.cuts:
            self.cuts.append(reason)


def _store(node: Node, field: str, answer: object) -> None:
    """`field` names one of the node's, or an entry of one: `values.max`."""
    name, _, key = field.partition(".")
    if field == "interfaces":
        node.interfaces = _short(cast(list[str], answer))
    elif field == "values":
        node.values = _numbers(cast(dict[str, Variant], answer))
    elif name == "values":
        node.values[key] = cast(float, answer)
    else:
        setattr(node, field, answer)


def _is_cell(node: Node) -> bool:
    return node.spreadsheet and node.parent is not None and node.parent.role == TABLE


def _is_object(ref: Ref) -> bool:
    """An invalid bus name in a call would make the bus throw us out, and any program may write one."""
    return ref[1] != NULL_PATH and is_bus_name_valid(ref[0])


def _numbers(properties: dict[str, Variant]) -> dict[str, float]:
    found = {key: properties.get(name) for key, name in _VALUE_NAMES.items()}
    return {key: each.value for key, each in found.items() if each is not None and each.signature == "d"}


def _short(interfaces: list[str]) -> frozenset[str]:
    return frozenset(name.rpartition(".")[2] for name in interfaces)
