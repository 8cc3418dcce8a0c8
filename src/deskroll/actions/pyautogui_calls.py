"""pyautogui's calls: the parameters of each, in pyautogui 0.9.54's own order, and the Actions it amounts to.

A call that is legal but beyond the Actions (an image to find, a drag with another button, half a position)
raises `NotPlainError`; one that pyautogui itself would refuse raises `ActionError`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from deskroll import actions as act
from deskroll.actions import Action, Button
from deskroll.actions.fields import choice, given, integer, number, pixel, sequence, text
from deskroll.actions.keys import canonical_key, chord
from deskroll.errors import ActionError

MAX_REPEAT = 100
"""Clicks or presses that one call may unfold into; more stay a script."""
MULTI_CLICK_S = 0.25
"""Clicks further apart than this are no double click to a program, so their interval cannot be ignored."""

Arguments = Mapping[str, object]
Point = tuple[int, int] | tuple[None, None]
_BUTTONS: dict[str, Button] = {
    "left": "left",
    "primary": "left",
    "middle": "middle",
    "right": "right",
    "secondary": "right",
}


class NotPlainError(Exception):
    """The source means something that the Actions cannot say: keep it as a script."""


@dataclass(frozen=True)
class Call:
    """A call's parameters in order, and how to read its arguments."""

    required: tuple[str, ...]
    optional: tuple[str, ...]
    actions: Callable[[Arguments], list[Action]]


def perform(name: str, arguments: Sequence[object], keywords: Arguments) -> list[Action]:
    """Return what the call amounts to; wrong arguments are an `ActionError` that lists the right ones."""
    if name in ("hotkey", "shortcut"):
        return _hotkey(arguments)
    call = CALLS[name]
    parameters = [*call.required, *call.optional]
    if len(arguments) > len(parameters):
        raise ActionError(f"{len(arguments)} arguments; its parameters: {', '.join(parameters)}")
    positional = dict(zip(parameters, arguments, strict=False))
    if twice := positional.keys() & keywords.keys():
        raise ActionError(f"{min(twice)} is given twice")
    bound = given({**positional, **keywords}, "the call", call.required, call.optional, whose=name)
    if bound.get("logScreenshot"):
        raise NotPlainError  # it writes a file
    return call.actions(bound)


def _point(arguments: Arguments) -> Point:
    x, y = arguments.get("x"), arguments.get("y")
    if isinstance(x, list | tuple) and len(x) == 2 and y is None:
        x, y = x
    if x is None and y is None:
        return None, None
    # One coordinate alone depends on the pointer, four are a region, a string is an image to look for.
    if x is None or y is None or isinstance(x, str | list | tuple):
        raise NotPlainError
    return pixel(x, "x"), pixel(y, "y")


def _move(arguments: Arguments) -> list[Action]:
    x, y = _point(arguments)
    return [] if x is None or y is None else [act.MoveTo(x, y)]


def _button(arguments: Arguments) -> Button:
    return _BUTTONS[choice(arguments.get("button", "left"), "button", _BUTTONS)]


def _repeats(value: object, field: str, each: int = 1) -> int:
    count = integer(value, field)
    if not 1 <= count * each <= MAX_REPEAT:
        raise NotPlainError
    return count


def _click(arguments: Arguments) -> list[Action]:
    """Click; more than three clicks become several actions, since programs count no further than three."""
    x, y = _point(arguments)
    count = _repeats(arguments.get("clicks", 1), "clicks")
    if count > 1 and number(arguments.get("interval", 0), "interval") > MULTI_CLICK_S:
        raise NotPlainError
    parts = [3] * (count // 3) + ([count % 3] if count % 3 else [])
    return [act.Click(_button(arguments), x, y, part) for part in parts]


def _double_click(arguments: Arguments) -> list[Action]:
    clicks = _click({**arguments, "clicks": 2})
    return [act.DoubleClick(*_point(arguments))] if _button(arguments) == "left" else clicks


def _drag(arguments: Arguments) -> list[Action]:
    x, y = _point(arguments)
    whole = arguments.get("mouseDownUp", True) is True
    if x is None or y is None or _button(arguments) != "left" or not whole:
        raise NotPlainError
    return [act.DragTo(x, y)]


def _wheel(arguments: Arguments) -> int:
    return int(number(arguments["clicks"], "clicks"))


def _typewrite(arguments: Arguments) -> list[Action]:
    message = arguments["message"]
    return [act.Typing(message)] if isinstance(message, str) else _press({"keys": message})


def _press(arguments: Arguments) -> list[Action]:
    keys = arguments["keys"]
    names = [keys] if isinstance(keys, str) else sequence(keys, "keys", "a key, or a list of keys")
    each: list[Action] = [act.Press(_key(name)) for name in names]
    return each * _repeats(arguments.get("presses", 1), "presses", each=max(1, len(each)))


def _hotkey(arguments: Sequence[object]) -> list[Action]:
    as_list = bool(arguments) and isinstance(arguments[0], list | tuple)
    names = sequence(arguments[0], "keys", "a list of keys") if as_list else arguments
    return [act.Hotkey(tuple(key for name in names for key in chord(text(name, "key"))))]


def _key(name: object) -> str:
    return canonical_key(text(name, "key"))


_COMMON = ("logScreenshot", "_pause")
_CLICK = ("x", "y", "interval", "duration", "tween", *_COMMON)
_MULTI = ("x", "y", "interval", "button", "duration", "tween", *_COMMON)
_HOLD = ("x", "y", "button", "duration", "tween", *_COMMON)
_AT = ("x", "y", *_COMMON)
_VERTICAL = Call(("clicks",), _AT, lambda a: [*_move(a), act.Scroll(dy=_wheel(a))])
_TYPEWRITE = Call(("message",), ("interval", *_COMMON), _typewrite)

CALLS: dict[str, Call] = {
    "click": Call((), ("x", "y", "clicks", "interval", "button", "duration", "tween", *_COMMON), _click),
    "leftClick": Call((), _CLICK, lambda a: [act.Click("left", *_point(a))]),
    "rightClick": Call((), _CLICK, lambda a: [act.RightClick(*_point(a))]),
    "middleClick": Call((), _CLICK, lambda a: [act.Click("middle", *_point(a))]),
    "doubleClick": Call((), _MULTI, _double_click),
    "tripleClick": Call((), _MULTI, lambda a: _click({**a, "clicks": 3})),
    "mouseDown": Call((), _HOLD, lambda a: [*_move(a), act.MouseDown(_button(a))]),
    "mouseUp": Call((), _HOLD, lambda a: [*_move(a), act.MouseUp(_button(a))]),
    "moveTo": Call((), ("x", "y", "duration", "tween", *_COMMON), _move),
    "dragTo": Call((), ("x", "y", "duration", "tween", "button", *_COMMON, "mouseDownUp"), _drag),
    "scroll": _VERTICAL,
    "vscroll": _VERTICAL,
    "hscroll": Call(("clicks",), _AT, lambda a: [*_move(a), act.Scroll(dx=_wheel(a))]),
    "typewrite": _TYPEWRITE,
    "write": _TYPEWRITE,
    "press": Call(("keys",), ("presses", "interval", *_COMMON), _press),
    "keyDown": Call(("key",), _COMMON, lambda a: [act.KeyDown(_key(a["key"]))]),
    "keyUp": Call(("key",), _COMMON, lambda a: [act.KeyUp(_key(a["key"]))]),
    "sleep": Call(("seconds",), (), lambda a: [act.Wait(number(a["seconds"], "seconds"))]),
}
NAMES = frozenset({*CALLS, "hotkey", "shortcut"})
"""The calls that can be plain; all others stay a script."""
