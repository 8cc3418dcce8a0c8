"""The one Action union: everything an agent can do in a step.

Owns the vocabulary that agents, environments and desktops share, and its validation. The thirteen computer
actions are OSWorld's computer_13; `Script` is pyautogui source that is more than plain calls and therefore
runs inside the desktop; `ToolCall` and `Answer` belong to environments without a screen.

Fields are JSON-friendly and the records are tagged by `type`, so an Action crosses the wire as
`{"type": "CLICK", "x": 10, "y": 20}` and comes back equal. msgspec holds the field types when an Action is
decoded; `check`, which says whether one fits a screen, holds the rest, and raises nothing but `ActionError`; `fit`
makes one fit.

Guarantees: an Action that `check` let through can be performed on a screen of that size. Codecs to and from
other notations live beside this file, one notation a file, and speak in `Action`s only:
`computer13`, `pyautogui_code`, `claude`; and those that read a whole reply of a model, thought and all
(`Reading`): `uitars_text`, `qwen_text`, `code_text`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Literal, get_args

import msgspec

from deskroll.actions.fields import shown
from deskroll.actions.keys import KEYS as KEYS
from deskroll.actions.keys import canonical_key as canonical_key
from deskroll.actions.noting import note
from deskroll.errors import ActionError

Button = Literal["left", "middle", "right"]
MAX_TEXT = 100_000
"""Characters that one `Typing` or `Script` may hold."""
MAX_SCROLL = 1_000
"""Wheel clicks that one `Scroll` may hold, either way."""
MAX_WAIT_S = 300.0
"""Seconds that one `Wait` may last."""
_UNTYPABLE = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\ud800-\udfff]")
_UNSENDABLE = re.compile(r"[\x00\ud800-\udfff]")


class _Action(msgspec.Struct, frozen=True, tag_field="type", forbid_unknown_fields=True, omit_defaults=True):
    pass


class MoveTo(_Action, frozen=True, tag="MOVE_TO"):
    """Move the pointer to a pixel."""

    x: int
    y: int


class Click(_Action, frozen=True, tag="CLICK"):
    """Click a button, where the pointer is unless a pixel is given."""

    button: Button = "left"
    x: int | None = None
    y: int | None = None
    num_clicks: int = 1


class MouseDown(_Action, frozen=True, tag="MOUSE_DOWN"):
    """Press a button and keep it down."""

    button: Button = "left"


class MouseUp(_Action, frozen=True, tag="MOUSE_UP"):
    """Release a button."""

    button: Button = "left"


class RightClick(_Action, frozen=True, tag="RIGHT_CLICK"):
    """Click the right button."""

    x: int | None = None
    y: int | None = None


class DoubleClick(_Action, frozen=True, tag="DOUBLE_CLICK"):
    """Click the left button twice."""

    x: int | None = None
    y: int | None = None


class DragTo(_Action, frozen=True, tag="DRAG_TO"):
    """Drag with the left button from where the pointer is to a pixel."""

    x: int
    y: int


class Scroll(_Action, frozen=True, tag="SCROLL"):
    """Turn the wheel: `dy` > 0 scrolls up, `dx` > 0 to the right, in wheel clicks (as pyautogui counts)."""

    dx: int = 0
    dy: int = 0


class Typing(_Action, frozen=True, tag="TYPING"):
    """Type text; any Unicode character, newline and tab as keys."""

    text: str


class Press(_Action, frozen=True, tag="PRESS"):
    """Press and release one key."""

    key: str


class KeyDown(_Action, frozen=True, tag="KEY_DOWN"):
    """Press a key and keep it down."""

    key: str


class KeyUp(_Action, frozen=True, tag="KEY_UP"):
    """Release a key."""

    key: str


class Hotkey(_Action, frozen=True, tag="HOTKEY"):
    """Press keys together: down in order, up in reverse."""

    keys: tuple[str, ...]


class Wait(_Action, frozen=True, tag="WAIT"):
    """Do nothing for a while; without `seconds`, until the screen has settled."""

    seconds: float | None = None


class Done(_Action, frozen=True, tag="DONE"):
    """The agent says the task is done."""


class Fail(_Action, frozen=True, tag="FAIL"):
    """The agent says the task cannot be done."""


class Script(_Action, frozen=True, tag="SCRIPT"):
    """pyautogui source that is more than plain calls: run by Python inside the desktop."""

    code: str


class ToolCall(_Action, frozen=True, tag="TOOL_CALL"):
    """A call of a named tool of the environment."""

    name: str
    arguments: dict[str, Any] = {}
    call_id: str = ""


class Answer(_Action, frozen=True, tag="ANSWER"):
    """The agent's final answer as text."""

    text: str


ComputerAction = (
    MoveTo
    | Click
    | MouseDown
    | MouseUp
    | RightClick
    | DoubleClick
    | DragTo
    | Scroll
    | Typing
    | Press
    | KeyDown
    | KeyUp
    | Hotkey
)
Action = ComputerAction | Wait | Done | Fail | Script | ToolCall | Answer
ACTIONS: tuple[type[Action], ...] = get_args(Action)
COMPUTER_ACTIONS: tuple[type[ComputerAction], ...] = get_args(ComputerAction)
"""The thirteen actions of OSWorld's computer_13."""
WORDS: Mapping[str, type[Wait | Fail | Done]] = {"WAIT": Wait, "FAIL": Fail, "DONE": Done}
"""Actions that notations write as bare words."""


class Reading(msgspec.Struct, frozen=True, kw_only=True):
    """A model's reply, read: what it says, and what it does."""

    thought: str = ""
    actions: tuple[Action, ...] = ()


def check(action: Action, width: int, height: int) -> None:
    """Raise `ActionError`, naming the field and what is allowed, unless `action` fits the screen."""
    kind = str(action.__struct_config__.tag)
    match action:
        case MoveTo(x=x, y=y) | DragTo(x=x, y=y):
            _check_point(kind, x, y, width, height)
        case Click(num_clicks=clicks) if not 1 <= clicks <= 3:
            raise ActionError(f"{kind}.num_clicks is {shown(clicks)}; allowed: 1, 2 or 3")
        case Click(x=x, y=y) | RightClick(x=x, y=y) | DoubleClick(x=x, y=y):
            _check_point(kind, x, y, width, height)
        case Press(key=key) | KeyDown(key=key) | KeyUp(key=key):
            canonical_key(key, f"{kind}.key")
        case Hotkey(keys=()):
            raise ActionError(f"{kind}.keys is empty; give at least one key, e.g. ['ctrl', 's']")
        case Hotkey(keys=keys):
            for n, key in enumerate(keys):
                canonical_key(key, f"{kind}.keys[{n}]")
        case Typing(text=text):
            _check_text(f"{kind}.text", text, _UNTYPABLE, "press the key of that name instead")
        case Script(code=code):
            _check_text(f"{kind}.code", code, _UNSENDABLE, "write it as an escape such as \\x00")
        case Scroll(dx=dx, dy=dy) if abs(dx) > MAX_SCROLL or abs(dy) > MAX_SCROLL:
            raise ActionError(f"{kind}.dx, dy are {shown(dx)}, {shown(dy)}; allowed: -{MAX_SCROLL} to {MAX_SCROLL}")
        case Wait(seconds=float() | int() as seconds) if not 0 <= seconds <= MAX_WAIT_S:
            raise ActionError(f"{kind}.seconds is {shown(seconds)}; allowed: 0 to {MAX_WAIT_S:g}")


def fit(action: Action, width: int, height: int) -> Action:
    """The action as it fits the screen: a point beyond is brought to the edge, as pyautogui does, and that is noted.

    All else is as `check` has it.
    """
    x, y = getattr(action, "x", None), getattr(action, "y", None)
    if x is not None and y is not None:
        there = min(max(x, 0), width - 1), min(max(y, 0), height - 1)
        if there != (x, y):
            kind = action.__struct_config__.tag
            note(f"{kind}: ({shown(x)}, {shown(y)}) is off the {width}x{height} screen; taken: {there}")
            action = msgspec.structs.replace(action, x=there[0], y=there[1])
    check(action, width, height)
    return action


def _check_point(kind: str, x: int | None, y: int | None, width: int, height: int) -> None:
    if (x is None) != (y is None):
        raise ActionError(f"{kind}: x and y go together: give both, or neither to act at the pointer")
    for name, value, size in (("x", x, width), ("y", y, height)):
        if value is not None and not 0 <= value < size:
            raise ActionError(
                f"{kind}.{name} is {shown(value)}; allowed: 0 to {size - 1} on this {width}x{height} screen"
            )


def _check_text(field: str, text: str, refused: re.Pattern[str], remedy: str) -> None:
    if len(text) > MAX_TEXT:
        raise ActionError(f"{field} has {len(text)} characters; allowed: at most {MAX_TEXT}: send it in parts")
    if found := refused.search(text):
        raise ActionError(f"{field} holds {found[0]!r} at character {found.start()}, which cannot be sent; {remedy}")
