"""Action spaces: what a model is told of the computer, and how its calls become actions.

A space is a start-up setting, the same for all tasks of a run. Where elements are marked on the screen, each space lets
the model name a mark instead of a pixel: `mark` in computer_13 and claude_computer_use, `tag_3` in pyautogui's code, as
OSWorld's agents write it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec

from deskroll.actions import COMPUTER_ACTIONS, Action, Done, Fail, claude, computer13, pyautogui_code
from deskroll.actions.union import Wait
from deskroll.errors import ActionError
from deskroll.types import Tool, ToolRequest

Marks = Sequence[tuple[int, int]]
"""The pixel that each mark stands for; the first one is mark 1."""
_TAG = re.compile(r"\btag_(\d{1,4})\b")
_MARK = "The number of a mark on the screen, instead of coordinates."


@dataclass(frozen=True)
class Space:
    """One way to act."""

    name: str
    tool: Tool
    actions: Callable[[Mapping[str, Any], int, int, Marks], Sequence[Action]]

    def decode(self, call: ToolRequest, width: int, height: int, marks: Marks = ()) -> Sequence[Action]:
        """The actions of a call on a screen of that size; `ActionError` says what is wrong with it."""
        try:
            raw: Any = msgspec.json.decode(call.arguments)
        except (msgspec.DecodeError, RecursionError) as error:
            raise ActionError(f"{call.name}: the arguments are no JSON: {error}") from None
        if not isinstance(raw, dict):
            raise ActionError(f"{call.name}: the arguments are no object; see the tool's parameters")
        return self.actions(raw, width, height, marks)


def _place(number: object, marks: Marks) -> tuple[int, int]:
    if not isinstance(number, int) or isinstance(number, bool) or not 1 <= number <= len(marks):
        there = f"allowed: 1 to {len(marks)}" if marks else "nothing is marked on this screen: give coordinates"
        raise ActionError(f"mark is {str(number)[:40]}; {there}")
    return marks[number - 1]


# --- computer_13 -----------------------------------------------------------------------------------------------------


def _computer_13(raw: Mapping[str, Any], width: int, height: int, marks: Marks) -> Sequence[Action]:
    given = dict(raw)
    inner = given.get("parameters")
    for place in (given, inner) if isinstance(inner, dict) else (given,):
        if "mark" in place:
            x, y = _place(place.pop("mark"), marks)
            place |= {"x": x, "y": y}
    return (computer13.decode(given, width, height),)


def _described() -> str:
    lines = []
    for kind in COMPUTER_ACTIONS:
        fields = [field.name if field.required else f"[{field.name}]" for field in msgspec.structs.fields(kind)]
        lines.append(f"{kind.__struct_config__.tag}({', '.join(fields)})")
    return "; ".join([*lines, "WAIT([seconds])", "DONE()", "FAIL()"])


_COMPUTER_13 = Tool(
    name="computer",
    description=(
        "Use the mouse and the keyboard of the computer whose screen you see. Coordinates are pixels of the screen. "
        "Call it with DONE when the task is done, with FAIL when it cannot be done. "
        f"Actions and their parameters ([optional]): {_described()}."
    ),
    parameters={
        "type": "object",
        "properties": {
            "action_type": {
                "type": "string",
                "enum": [*(str(kind.__struct_config__.tag) for kind in COMPUTER_ACTIONS), "WAIT", "DONE", "FAIL"],
            },
            "parameters": {"type": "object", "description": "The action's own parameters, by name."},
        },
        "required": ["action_type"],
    },
)


# --- pyautogui -------------------------------------------------------------------------------------------------------


def _pyautogui(raw: Mapping[str, Any], width: int, height: int, marks: Marks) -> Sequence[Action]:
    code = raw.get("code")
    if not isinstance(code, str):
        raise ActionError("code is missing, or no text; write pyautogui calls, or one of WAIT, DONE, FAIL")

    def place(found: re.Match[str]) -> str:
        x, y = _place(int(found[1]), marks)
        return f"{x}, {y}"

    return pyautogui_code.decode(_TAG.sub(place, code), width, height)


_PYAUTOGUI = Tool(
    name="run_pyautogui",
    description=(
        "Run Python code with pyautogui on the computer whose screen you see; it is imported already, and so is time. "
        "Coordinates are pixels of the screen. Nothing of one call is there in the next. Instead of code: WAIT, DONE "
        "when the task is done, FAIL when it cannot be done."
    ),
    parameters={
        "type": "object",
        "properties": {"code": {"type": "string", "description": "e.g. pyautogui.click(100, 200)"}},
        "required": ["code"],
    },
)


# --- claude_computer_use ---------------------------------------------------------------------------------------------


def _claude(raw: Mapping[str, Any], width: int, height: int, marks: Marks) -> Sequence[Action]:
    given = dict(raw)
    if given.get("action") in ("done", "fail"):
        return (Done() if given["action"] == "done" else Fail(),)
    if "mark" in given:
        given["coordinate"] = list(_place(given.pop("mark"), marks))
    # What only looks is a wait of no time: the screen is shown after every action.
    return claude.decode(given, width, height) or (Wait(seconds=0.0),)


_CLAUDE = Tool(
    name="computer",
    description=(
        "Use the mouse and the keyboard of the computer whose screen you see. Coordinates are pixels of the screen. "
        "action: done when the task is done, fail when it cannot be done."
    ),
    parameters={
        "type": "object",
        "properties": {
            "action": {"type": "string", "enum": [*claude.ACTIONS, "done", "fail"]},
            "coordinate": {"type": "array", "items": {"type": "integer"}, "minItems": 2, "maxItems": 2},
            "start_coordinate": {"type": "array", "items": {"type": "integer"}, "minItems": 2, "maxItems": 2},
            "text": {"type": "string", "description": "What to type, a key or keys such as ctrl+s, or keys held."},
            "scroll_direction": {"type": "string", "enum": ["up", "down", "left", "right"]},
            "scroll_amount": {"type": "integer"},
            "duration": {"type": "number", "description": "Seconds, of wait and hold_key."},
        },
        "required": ["action"],
    },
)

SPACES: Mapping[str, Space] = {
    each.name: each
    for each in (
        Space("computer_13", _COMPUTER_13, _computer_13),
        Space("pyautogui", _PYAUTOGUI, _pyautogui),
        Space("claude_computer_use", _CLAUDE, _claude),
    )
}
"""By the names that configurations use."""
