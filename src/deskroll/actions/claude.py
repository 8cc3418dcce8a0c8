"""Anthropic's computer-use tool: its inputs, from `computer_20241022` on, and those of the later toolset.

An input is an object with `action` and that action's parameters. The toolset (`computer_toolset_20260801`)
puts the action into the block's name instead: read it as `decode({"action": block.name, **block.input}, …)`.

Coordinates are pixels of the desktop; an agent that shows the model a smaller picture scales them itself.
`screenshot`, `zoom` and `cursor_position` only look: they need no Action, and the agent answers them from
what it observes. `done` and `fail` are OSWorld's own, which end the task.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from deskroll import actions as act
from deskroll.actions import Action, Button, fit
from deskroll.actions.fields import choice, given, integer, number, pixel, sequence, shown, text
from deskroll.actions.keys import KEYSYMS, canonical_key, chord
from deskroll.errors import ActionError

MAX_REPEAT = 100
"""Times that one `key` may repeat."""
WAIT_S = 1.0
"""Seconds written for a `Wait` that has none: the tool knows no wait until the screen has settled."""

Parameters = Mapping[str, object]
_DIRECTIONS = {"up": (0, 1), "down": (0, -1), "left": (-1, 0), "right": (1, 0)}


def decode(tool_input: object, width: int, height: int) -> list[Action]:
    """Read one input into the actions it amounts to, each made to fit the screen; none if it only looks."""
    if not isinstance(tool_input, Mapping):
        raise ActionError(f"the input is {shown(tool_input)}; allowed: an object with action and its parameters")
    name = choice(tool_input.get("action"), "action", _TOOLS)
    tool = _TOOLS[name]
    rest = {field: value for field, value in tool_input.items() if field != "action"}
    try:
        actions = tool.actions(given(rest, "it", tool.required, tool.optional, whose=name))
        return [fit(action, width, height) for action in actions]
    except ActionError as error:
        raise ActionError(f"{name}: {error}") from None


def encode(action: Action) -> list[dict[str, object]]:
    """Write an action as the inputs it takes; `ActionError` where the tool has none (a key down alone)."""
    match action:
        case act.Click() | act.RightClick() | act.DoubleClick():
            return _encode_click(action)
        case act.Scroll(dx=dx, dy=dy):
            return _encode_scroll(dx, dy)
        case _:
            return [_encode_other(action)]


def _point(there: Parameters, field: str = "coordinate") -> tuple[int, int] | tuple[None, None]:
    if field not in there:
        return None, None
    x, y = sequence(there[field], field, "[x, y]", 2)
    return pixel(x, f"{field}[0]"), pixel(y, f"{field}[1]")


def _move(there: Parameters, field: str = "coordinate") -> list[Action]:
    x, y = _point(there, field)
    return [] if x is None or y is None else [act.MoveTo(x, y)]


def _drag(there: Parameters) -> list[Action]:
    # The first version drags from where the pointer is, later ones say where the drag starts.
    start, (x, y) = _move(there, "start_coordinate"), _point(there)
    drag: list[Action] = [] if x is None or y is None else [act.DragTo(x, y)]
    return [*start, *_held(_modifiers(there), drag)]


def _click(there: Parameters, button: Button, clicks: int = 1) -> list[Action]:
    x, y = _point(there)
    return _held(_modifiers(there), [act.Click(button, x, y, clicks)])


def _scroll(there: Parameters) -> list[Action]:
    right, up = _DIRECTIONS[choice(there["scroll_direction"], "scroll_direction", _DIRECTIONS)]
    amount = integer(there["scroll_amount"], "scroll_amount")
    if amount < 0:
        raise ActionError(f"scroll_amount is {shown(amount)}; allowed: 0 or more; scroll_direction gives the way")
    return [*_move(there), *_held(_modifiers(there), [act.Scroll(dx=right * amount, dy=up * amount)])]


def _look_at_region(there: Parameters) -> list[Action]:
    for n, corner in enumerate(sequence(there["region"], "region", "[left, top, right, bottom]", 4)):
        number(corner, f"region[{n}]")
    return []


def _strokes(there: Parameters) -> list[Action]:
    """Read xdotool's syntax: chords separated by spaces, keys within a chord joined by +."""
    times = integer(there.get("repeat", 1), "repeat")
    if not 1 <= times <= MAX_REPEAT:
        raise ActionError(f"repeat is {shown(times)}; allowed: 1 to {MAX_REPEAT}")
    line = text(there["text"], "text")
    # Blank text is the space bar, or Return or Tab as a character.
    chords = [chord(part, "text") for part in line.split()] or [(canonical_key(line, "text"),)]
    strokes: list[Action] = [act.Press(keys[0]) if len(keys) == 1 else act.Hotkey(keys) for keys in chords]
    return strokes * times


def _hold(there: Parameters) -> list[Action]:
    return _held(chord(text(there["text"], "text"), "text"), [act.Wait(number(there["duration"], "duration"))])


def _wait(there: Parameters) -> list[Action]:
    return [act.Wait(number(there["duration"], "duration") if "duration" in there else None)]


def _modifiers(there: Parameters) -> tuple[str, ...]:
    # The first implementations called it `key`, later ones `text`; an empty one holds nothing.
    for field in ("text", "key"):
        if field in there and (held := text(there[field], field).strip()):
            return chord(held, field)
    return ()


def _held(keys: Sequence[str], during: list[Action]) -> list[Action]:
    return [*(act.KeyDown(key) for key in keys), *during, *(act.KeyUp(key) for key in reversed(keys))]


@dataclass(frozen=True)
class _Tool:
    """An action's parameters, over all versions of the tool, and how to read them."""

    required: tuple[str, ...]
    optional: tuple[str, ...]
    actions: Callable[[Parameters], list[Action]]


_AT = ("coordinate", "text", "key")
_LOOK = _Tool((), (), lambda _: [])
_TOOLS: dict[str, _Tool] = {
    "key": _Tool(("text",), ("repeat",), _strokes),
    "hold_key": _Tool(("text", "duration"), (), _hold),
    "type": _Tool(("text",), (), lambda p: [act.Typing(text(p["text"], "text"))]),
    "mouse_move": _Tool(("coordinate",), (), _move),
    "left_mouse_down": _Tool((), ("coordinate",), lambda p: [*_move(p), act.MouseDown()]),
    "left_mouse_up": _Tool((), ("coordinate",), lambda p: [*_move(p), act.MouseUp()]),
    "left_click": _Tool((), _AT, lambda p: _click(p, "left")),
    "right_click": _Tool((), _AT, lambda p: _held(_modifiers(p), [act.RightClick(*_point(p))])),
    "middle_click": _Tool((), _AT, lambda p: _click(p, "middle")),
    "double_click": _Tool((), _AT, lambda p: _held(_modifiers(p), [act.DoubleClick(*_point(p))])),
    "triple_click": _Tool((), _AT, lambda p: _click(p, "left", 3)),
    "left_click_drag": _Tool(("coordinate",), ("start_coordinate", "text"), _drag),
    "scroll": _Tool(("scroll_direction", "scroll_amount"), ("coordinate", "text"), _scroll),
    "wait": _Tool((), ("duration",), _wait),
    "screenshot": _LOOK,
    "cursor_position": _LOOK,
    "zoom": _Tool(("region",), (), _look_at_region),
    "done": _Tool((), (), lambda _: [act.Done()]),
    "fail": _Tool((), (), lambda _: [act.Fail()]),
}
ACTIONS = tuple(_TOOLS)
"""The names of all actions."""


def _encode_click(action: act.Click | act.RightClick | act.DoubleClick) -> list[dict[str, object]]:
    at: dict[str, object] = {} if action.x is None else {"coordinate": [action.x, action.y]}
    match action:
        case act.RightClick():
            names = ["right_click"]
        case act.DoubleClick() | act.Click(button="left", num_clicks=2):
            names = ["double_click"]
        case act.Click(button="left", num_clicks=3):
            names = ["triple_click"]
        case act.Click(button=button, num_clicks=clicks):
            names = [f"{button}_click"] * clicks
    return [{"action": name, **at} for name in names]


def _encode_scroll(dx: int, dy: int) -> list[dict[str, object]]:
    turns = [("right" if dx > 0 else "left", abs(dx)), ("up" if dy > 0 else "down", abs(dy))]
    turns = [turn for turn in turns if turn[1]] or turns[1:]
    return [{"action": "scroll", "scroll_direction": way, "scroll_amount": amount} for way, amount in turns]


def _encode_other(action: Action) -> dict[str, object]:
    tool_input: dict[str, object]
    match action:
        case act.MoveTo(x=x, y=y):
            tool_input = {"action": "mouse_move", "coordinate": [x, y]}
        case act.DragTo(x=x, y=y):
            tool_input = {"action": "left_click_drag", "coordinate": [x, y]}
        case act.MouseDown(button="left"):
            tool_input = {"action": "left_mouse_down"}
        case act.MouseUp(button="left"):
            tool_input = {"action": "left_mouse_up"}
        case act.Typing(text=line):
            tool_input = {"action": "type", "text": line}
        case act.Press(key=key):
            tool_input = {"action": "key", "text": _keysym(key)}
        case act.Hotkey(keys=keys):
            tool_input = {"action": "key", "text": "+".join(map(_keysym, keys))}
        case act.Wait(seconds=seconds):
            tool_input = {"action": "wait", "duration": WAIT_S if seconds is None else seconds}
        case _:
            raise ActionError(f"the computer-use tool has no action for {action}")
    return tool_input


def _keysym(name: str) -> str:
    key = canonical_key(name)
    # xdotool's own short names, which models know better than which side of the keyboard was meant.
    short = {"shift": "shift", "ctrl": "ctrl", "alt": "alt", "win": "super"}
    return short.get(key) or KEYSYMS.get(key, key)
