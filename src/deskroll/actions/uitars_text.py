"""UI-TARS' notation: `Thought: ...`, then `Action: click(start_box='(100,200)')`, read without running it.

Reads what versions 1 and 1.5 and their hosted siblings write: boxes as `(x,y)`, `<|box_start|>(x,y)<|box_end|>`,
`[x1, y1, x2, y2]` (its middle counts) and `<point>x y</point>`; several actions, one a line; quotes inside a text that
were not escaped. A text's `\\n`, `\\'`, `\\"`, `\\t` and `\\\\` are escapes, as the model is told.

Guarantees: any text gives actions that fit the screen, or an `ActionError` that says how to write it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import get_args

from deskroll import actions as act
from deskroll.actions import Action, Button, Reading, fit
from deskroll.actions.fields import choice
from deskroll.actions.keys import chord
from deskroll.actions.noting import note
from deskroll.actions.pixels import Grid, Size
from deskroll.errors import ActionError, plain

WAIT_S = 5.0
"""Seconds of a `wait()`, as the model is told."""
WHEEL = 5
"""Clicks of the wheel in a `scroll(...)`, as in OSWorld's own agent."""
_MARK = re.compile(r"^[ \t`*]*action[*]*\s*[:：]", re.IGNORECASE | re.MULTILINE)
_ANY_MARK = re.compile(r"action\s*[:：]", re.IGNORECASE)
_FIRST = re.compile(r"[\s`]*[A-Za-z_]+[ \t]*\(")
_THOUGHT = re.compile(r"\s*(?:thought|reflection|action_summary)\s*[:：]\s*", re.IGNORECASE)
_CALL = re.compile(r"^[ \t`]*([A-Za-z_]+)[ \t]*\(", re.MULTILINE)
_ARGUMENT = re.compile(
    r"\s*(\w+)\s*=\s*(?:(['\"])(.*?)\2|(\[[^]]*\]|\([^)]*\)|[^'\"\s][^,]*?))\s*(?:,(?=\s*\w+\s*=)|$)",
    re.DOTALL,
)
_NUMBER = re.compile(r"-?\d{1,9}(?:\.\d{1,9})?")
_TAG = re.compile(r"<[^<>]{0,20}>")
_ESCAPE = re.compile(r"\\([nrt'\"\\])")
_ESCAPED = {"n": "\n", "r": "\r", "t": "\t"}
_CLOSINGS = 8
"""How many closing brackets are tried as the end of a call, from the last one on."""
_LINES = 8
"""How many lines that look like calls a text may hold."""
_WHEEL = {"up": (0, WHEEL), "down": (0, -WHEEL), "left": (-WHEEL, 0), "right": (WHEEL, 0)}

CALL_USER = "call_user"
_AT = ("start_box", "point", "start_point")
_TO = ("end_box", "end_point")

Arguments = Mapping[str, str]


def parse(text: str, grid: Grid, call_user: Callable[[], Action] = act.Fail) -> Reading:
    """What a reply says and does, each action made to fit the screen; `call_user` is asked what such a call means."""
    thought, wanted = _split(text)
    actions: list[Action] = []
    for name, arguments in _calls(wanted):
        kind = _ACTIONS[name]
        try:
            actions += [call_user()] if name == CALL_USER else kind.actions(arguments, grid)
        except ActionError as error:
            raise ActionError(f"{name}: {error}") from None
        for each in arguments:
            if each not in kind.takes:
                note(f"{name} has the unknown parameter {plain(each, 40)!r}, which was ignored")
    if not actions:
        raise ActionError(f"there is no action in the reply; end it with a line  Action: {_EXAMPLE}")
    return Reading(thought=thought, actions=tuple(fit(action, *grid.screen) for action in actions))


def with_box_tokens(text: str) -> str:
    """The reply with the special tokens around its boxes, which servers leave out of what they return."""
    return re.sub(r"((?:start|end)_box=)(['\"])(\(\d+,\s*\d+\))\2", r"\1\2<|box_start|>\3<|box_end|>\2", text)


def _split(text: str) -> tuple[str, str]:
    # The thought may speak of an action, and a text that is typed, too: a call follows the mark, which begins a line.
    marks = [each for each in _MARK.finditer(text) if _FIRST.match(text, each.end())]
    marks = marks or list(_ANY_MARK.finditer(text))
    if marks:
        before, wanted = text[: marks[-1].start()], text[marks[-1].end() :]
    else:  # some replies are the bare call, after the thought or alone
        found = next((each for each in _CALL.finditer(text) if each[1] in _ACTIONS), None)
        place = found.start() if found else len(text)
        before, wanted = text[:place], text[place:]
    heading = _THOUGHT.match(before)
    return before[heading.end() if heading else 0 :].strip(), wanted


def _calls(wanted: str) -> Iterator[tuple[str, Arguments]]:
    """Names and arguments of the calls, each of which begins a line."""
    starts = [each for n, each in enumerate(_CALL.finditer(wanted)) if n == 0 or each[1] in _ACTIONS]
    ends = [each.start() for each in starts] + [len(wanted)]
    n = 0
    while n < len(starts):
        name, begin = starts[n][1], starts[n].end()
        if name not in _ACTIONS:
            raise ActionError(f"{plain(name, 40)}: there is no such action; allowed: {', '.join(_ACTIONS)}")
        # A line of a text that is typed may look like a call: then this one ends later.
        for after in range(n + 1, min(n + 1 + _LINES, len(ends))):
            arguments = _between(wanted[begin : ends[after]])
            if arguments is not None:
                yield name, arguments
                n = after
                break
        else:
            said = plain(wanted[begin : ends[n + 1]], 80)
            raise ActionError(f"{name}: its arguments cannot be read: {said!r}; write it like {_ACTIONS[name].example}")


def _between(body: str) -> Arguments | None:
    """The arguments up to the last closing bracket, or up to an earlier one, or, where it was cut off, all of them."""
    close = len(body)
    for _ in range(_CLOSINGS):
        close = body.rfind(")", 0, close)
        if close < 0:
            break
        if (arguments := _arguments(body[:close].rstrip())) is not None:
            return arguments
    return _arguments(body.rstrip())


def _arguments(body: str) -> Arguments | None:
    """The arguments by name; None where it does not consist of them."""
    given: dict[str, str] = {}
    at = 0
    while at < len(body):
        found = _ARGUMENT.match(body, at)
        if found is None:
            return None
        given[found[1]] = found[4] if found[3] is None else found[3]
        at = found.end()
    return given


def _point(arguments: Arguments, grid: Grid, names: tuple[str, ...] = _AT) -> Size:
    box = next((arguments[name] for name in names if arguments.get(name)), None)
    if box is None:
        raise ActionError(f"{names[0]} is missing; write it like {names[0]}='(100,200)'")
    numbers = [float(each) for each in _NUMBER.findall(_TAG.sub(" ", box))]
    if len(numbers) == 2:
        return grid.pixel(*numbers)
    if len(numbers) == 4:
        return grid.pixel((numbers[0] + numbers[2]) / 2, (numbers[1] + numbers[3]) / 2)
    raise ActionError(f"{names[0]} is {plain(box, 60)!r}; allowed: a point such as (100,200)")


def _drag(arguments: Arguments, grid: Grid) -> list[Action]:
    start, end = _point(arguments, grid), _point(arguments, grid, _TO)
    return [act.MoveTo(*start), act.DragTo(*end)]


def _scroll(arguments: Arguments, grid: Grid) -> list[Action]:
    if "direction" not in arguments and any(map(arguments.get, _TO)):
        return _drag(arguments, grid)  # as on a touch screen
    direction = arguments.get("direction", "").strip().lower()
    if direction not in _WHEEL:
        raise ActionError(f"direction is {plain(direction, 40)!r}; allowed: {', '.join(_WHEEL)}")
    there: list[Action] = []
    if any(map(arguments.get, _AT)):
        there = [act.MoveTo(*_point(arguments, grid))]
    return [*there, act.Scroll(*_WHEEL[direction])]


def _keys(arguments: Arguments) -> tuple[str, ...]:
    line = arguments.get("key") or arguments.get("hotkey") or arguments.get("press") or ""
    line = re.sub(r"\b(page)[ _]+(up|down)\b", r"\1\2", line, flags=re.IGNORECASE)
    keys = tuple(key for word in line.split() for key in chord(word))
    if not keys:
        raise ActionError("key is missing; write it like key='ctrl c'")
    return keys


def _hotkey(arguments: Arguments, grid: Grid) -> list[Action]:
    keys = _keys(arguments)
    return [act.Press(keys[0]) if len(keys) == 1 else act.Hotkey(keys)]


def _type(arguments: Arguments, grid: Grid) -> list[Action]:
    if "content" not in arguments:
        raise ActionError("content is missing; write it like type(content='some text')")
    return [act.Typing(_unescaped(arguments["content"]))]


def _button(arguments: Arguments, grid: Grid, kind: type[act.MouseDown | act.MouseUp]) -> list[Action]:
    there: list[Action] = [act.MoveTo(*_point(arguments, grid))] if any(map(arguments.get, _AT)) else []
    button: Button = choice(arguments.get("button", "left"), "button", get_args(Button))  # type: ignore[assignment]
    return [*there, kind(button)]


def _finished(arguments: Arguments, grid: Grid) -> list[Action]:
    content = _unescaped(arguments.get("content", "")).strip()
    return [act.Answer(content)] if content else [act.Done()]


def _unescaped(text: str) -> str:
    return _ESCAPE.sub(lambda found: _ESCAPED.get(found[1], found[1]), text)


@dataclass(frozen=True)
class _Kind:
    """How one action is read, and written."""

    actions: Callable[[Arguments, Grid], list[Action]]
    example: str
    takes: frozenset[str] = frozenset(_AT)
    """The names of its arguments."""


_DRAG, _KEY = frozenset((*_AT, *_TO)), frozenset(("key", "hotkey", "press"))
_HELD = frozenset((*_AT, "button"))
_EXAMPLE = "click(start_box='(100,200)')"
_ACTIONS: dict[str, _Kind] = {
    "click": _Kind(lambda a, g: [act.Click("left", *_point(a, g))], _EXAMPLE),
    "left_single": _Kind(lambda a, g: [act.Click("left", *_point(a, g))], "left_single(start_box='(100,200)')"),
    "left_double": _Kind(lambda a, g: [act.DoubleClick(*_point(a, g))], "left_double(start_box='(100,200)')"),
    "right_single": _Kind(lambda a, g: [act.RightClick(*_point(a, g))], "right_single(start_box='(100,200)')"),
    "hover": _Kind(lambda a, g: [act.MoveTo(*_point(a, g))], "hover(start_box='(100,200)')"),
    "move_to": _Kind(lambda a, g: [act.MoveTo(*_point(a, g))], "move_to(start_box='(100,200)')"),
    "mouse_down": _Kind(lambda a, g: _button(a, g, act.MouseDown), "mouse_down(start_box='(100,200)')", _HELD),
    "mouse_up": _Kind(lambda a, g: _button(a, g, act.MouseUp), "mouse_up(start_box='(100,200)')", _HELD),
    "drag": _Kind(_drag, "drag(start_box='(100,200)', end_box='(300,400)')", _DRAG),
    "select": _Kind(_drag, "select(start_box='(100,200)', end_box='(300,400)')", _DRAG),
    "hotkey": _Kind(_hotkey, "hotkey(key='ctrl c')", _KEY),
    "press": _Kind(_hotkey, "press(key='enter')", _KEY),
    "keydown": _Kind(lambda a, g: [act.KeyDown(key) for key in _keys(a)], "keydown(key='shift')", _KEY),
    "keyup": _Kind(lambda a, g: [act.KeyUp(key) for key in _keys(a)], "keyup(key='shift')", _KEY),
    "release": _Kind(lambda a, g: [act.KeyUp(key) for key in _keys(a)], "release(key='shift')", _KEY),
    "type": _Kind(_type, "type(content='some text')", frozenset({"content"})),
    "scroll": _Kind(_scroll, "scroll(start_box='(100,200)', direction='down')", _DRAG | {"direction"}),
    "wait": _Kind(lambda a, g: [act.Wait(WAIT_S)], "wait()", frozenset()),
    "finished": _Kind(_finished, "finished(content='')", frozenset({"content"})),
    "error_env": _Kind(lambda a, g: [act.Fail()], "error_env()", frozenset()),
    CALL_USER: _Kind(lambda a, g: [act.Fail()], "call_user()", frozenset()),
}
