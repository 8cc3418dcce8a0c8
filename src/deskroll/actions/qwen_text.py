"""Qwen-VL's `computer_use` calls: `<tool_call>{"name": "computer_use", "arguments": {...}}</tool_call>` in a text.

Reads Qwen2.5-VL's and Qwen3-VL's, several in a reply, the last one without its closing tag where it was forgotten, and
a bare JSON object alone in its line. What stands before the first call is the thought.

Guarantees: any text gives actions that fit the screen, or an `ActionError` that says how to write it.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import msgspec

from deskroll import actions as act
from deskroll.actions import Action, Button, Reading, fit
from deskroll.actions.fields import choice, number, sequence, shown
from deskroll.actions.fields import text as read_text
from deskroll.actions.keys import chord
from deskroll.actions.noting import note
from deskroll.actions.pixels import Grid, Size
from deskroll.errors import ActionError

NAME = "computer_use"
_decode_one = json.JSONDecoder().raw_decode
_OPEN, _CLOSE = "<tool_call>", "</tool_call>"
_EXAMPLE = (
    '<tool_call>{"name": "computer_use", "arguments": {"action": "left_click", "coordinate": [x, y]}}</tool_call>'
)
_THINKING = re.compile(r"</?think(?:ing)?>")
_ACTION_LINE = re.compile(r"^\s*action\s*:\s*", re.IGNORECASE)

_PARAMETERS = frozenset({"action", "keys", "key", "text", "coordinate", "pixels", "time", "status"})
"""Those that any action has."""

Arguments = Mapping[str, object]


def parse(text: str, grid: Grid, pixels_a_click: int = 1) -> Reading:
    """What a reply says and does, each action made to fit the screen; `scroll` counts so many pixels as one click."""
    calls = list(_calls(text))
    if not calls:
        raise ActionError(f"there is no call of {NAME} in the reply; end it with  {_EXAMPLE}")
    actions: list[Action] = []
    for call in calls:
        actions += _actions(_arguments(call), grid, pixels_a_click)
    return Reading(thought=_thought(text), actions=tuple(fit(action, *grid.screen) for action in actions))


def as_text(name: str, arguments: str) -> str:
    """A call as the model wrote it, where its server has taken it out of the text."""
    given = arguments.strip() or "{}"
    return f'{_OPEN}\n{{"name": {msgspec.json.encode(name).decode()}, "arguments": {given}}}\n{_CLOSE}'


def _thought(text: str) -> str:
    before = (
        text.partition(_OPEN)[0] if _OPEN in text else "\n".join(each for each in text.split("\n") if "{" not in each)
    )
    return _ACTION_LINE.sub("", _THINKING.sub("", before)).strip()


def _calls(text: str) -> Iterator[str]:
    if _OPEN in text:
        yield from _tagged(text)
        return
    for line in text.split("\n"):
        bare = line.strip().strip("`")
        if bare.startswith("{") and bare.endswith("}") and '"arguments"' in bare:
            yield bare


def _tagged(text: str) -> Iterator[str]:
    """What follows each opening tag: one JSON value, whose texts may hold tags, or what precedes the closing tag."""
    at = text.find(_OPEN)
    while at >= 0:
        start = at + len(_OPEN)
        start += len(text[start:]) - len(text[start:].lstrip())
        try:
            _, end = _decode_one(text, start)
        except (ValueError, RecursionError):
            end = start + len(text[start:].partition(_CLOSE)[0])
        yield text[start:end].strip()
        at = text.find(_OPEN, end)


def _arguments(call: str) -> Arguments:
    read = _object(call, "the call")
    name = read.get("name")
    if name != NAME:
        raise ActionError(f"there is no tool {shown(name)}; write {_EXAMPLE}")
    arguments = read.get("arguments")
    if isinstance(arguments, str):
        return _object(arguments, "arguments")
    if not isinstance(arguments, Mapping):
        raise ActionError(f"arguments is {shown(arguments)}; allowed: an object with action and its parameters")
    return arguments


def _object(text: str, what: str) -> Mapping[str, Any]:
    try:
        read = msgspec.json.decode(text)
    except (msgspec.DecodeError, UnicodeError, RecursionError) as error:
        raise ActionError(f"{what} is not valid JSON ({error}); write {_EXAMPLE}") from None
    if not isinstance(read, dict):
        raise ActionError(f"{what} is {shown(read)}; write {_EXAMPLE}")
    return read


def _actions(given: Arguments, grid: Grid, pixels_a_click: int) -> list[Action]:
    # Models fill in parameters of other actions, too: those are left alone.
    there = {name: value for name, value in given.items() if value is not None}
    name = choice(there.get("action"), "action", (*_ACTIONS, "scroll", "hscroll"))
    for each in there:
        if each not in _PARAMETERS:
            note(f"{name} has the unknown parameter {shown(each)}, which was ignored")
    try:
        if name in ("scroll", "hscroll"):
            return _scroll(there, grid, pixels_a_click, across=name == "hscroll")
        return _ACTIONS[name](there, grid)
    except ActionError as error:
        raise ActionError(f"{name}: {error}") from None


def _point(given: Arguments, grid: Grid) -> Size | tuple[None, None]:
    if "coordinate" not in given:
        return None, None
    x, y = sequence(given["coordinate"], "coordinate", "[x, y]", 2)
    return grid.pixel(number(x, "coordinate[0]"), number(y, "coordinate[1]"))


def _place(given: Arguments, grid: Grid) -> Size:
    x, y = _point(given, grid)
    if x is None or y is None:
        raise ActionError("coordinate is missing; allowed: [x, y]")
    return x, y


def _click(given: Arguments, grid: Grid, button: Button = "left", clicks: int = 1) -> list[Action]:
    x, y = _point(given, grid)
    return [act.Click(button, x, y, clicks)]


def _scroll(given: Arguments, grid: Grid, pixels_a_click: int, *, across: bool) -> list[Action]:
    if "pixels" not in given:
        raise ActionError("pixels is missing; allowed: a number, above 0 for up (or right), below 0 for down (or left)")
    pixels = number(given["pixels"], "pixels")
    clicks = int(pixels / pixels_a_click) or (pixels > 0) - (pixels < 0)
    there: list[Action] = [act.MoveTo(*_place(given, grid))] if "coordinate" in given else []
    return [*there, act.Scroll(dx=clicks) if across else act.Scroll(dy=clicks)]


def _key(given: Arguments, grid: Grid) -> list[Action]:
    keys = given.get("keys", given.get("key", given.get("text")))
    words = [keys] if isinstance(keys, str) else sequence(keys, "keys", "a list of keys, e.g. ['ctrl', 's']")
    written = [read_text(word, f"keys[{n}]") for n, word in enumerate(words)]
    names = tuple(key for word in written if word for key in chord(word.strip() or word, "keys"))
    if not names:
        raise ActionError("keys is empty; give at least one key, e.g. ['ctrl', 's']")
    return [act.Press(names[0]) if len(names) == 1 else act.Hotkey(names)]


def _terminate(given: Arguments, grid: Grid) -> list[Action]:
    status = choice(given.get("status", "success"), "status", ("success", "failure"))
    return [act.Done() if status == "success" else act.Fail()]


_ACTIONS: dict[str, Callable[[Arguments, Grid], list[Action]]] = {
    "key": _key,
    "type": lambda a, g: [act.Typing(read_text(a.get("text"), "text"))],
    "mouse_move": lambda a, g: [act.MoveTo(*_place(a, g))],
    "left_click": _click,
    "left_click_drag": lambda a, g: [act.DragTo(*_place(a, g))],
    "right_click": lambda a, g: [act.RightClick(*_point(a, g))],
    "middle_click": lambda a, g: _click(a, g, "middle"),
    "double_click": lambda a, g: [act.DoubleClick(*_point(a, g))],
    "triple_click": lambda a, g: _click(a, g, clicks=3),
    "wait": lambda a, g: [act.Wait(number(a["time"], "time") if "time" in a else None)],
    "terminate": _terminate,
    "answer": lambda a, g: [act.Answer(read_text(a.get("text"), "text"))],
}
