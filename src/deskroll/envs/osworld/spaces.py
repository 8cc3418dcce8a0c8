"""The action spaces that deskroll brings along.

Where elements are marked on the screen, each lets the model name a mark instead of a pixel, and tells it so: `mark` in
computer_13 and claude_computer_use, `tag_3` in pyautogui's code, as OSWorld's agents write it (`tags`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import msgspec

from deskroll.actions import COMPUTER_ACTIONS, Action, Wait, claude, computer13, pyautogui_code
from deskroll.envs.osworld.action_space import ActionSpace
from deskroll.envs.osworld.tags import Marks, decode_tagged, place_of
from deskroll.errors import ActionError
from deskroll.types import Tool

_USE = "Use the mouse and the keyboard of the computer whose screen you see. Coordinates are pixels of the screen."
_BOXES = "On the screen elements are in boxes with numbers."
_MARK = {"type": "integer", "minimum": 1, "description": "The number of a box on the screen, instead of coordinates."}


def _parameters(required: str, properties: Mapping[str, object]) -> dict[str, Any]:
    return {"type": "object", "properties": properties, "required": [required]}


def _with(tool: Tool, words: str, properties: Mapping[str, object]) -> Tool:
    """The tool with more to say, and with these parameters, too."""
    parameters = {**tool.parameters, "properties": {**tool.parameters["properties"], **properties}}
    return msgspec.structs.replace(tool, description=f"{tool.description} {words}", parameters=parameters)


def _described() -> str:
    lines = []
    for kind in COMPUTER_ACTIONS:
        fields = [field.name if field.required else f"[{field.name}]" for field in msgspec.structs.fields(kind)]
        lines.append(f"{kind.__struct_config__.tag}({', '.join(fields)})")
    return "; ".join([*lines, "WAIT([seconds])", "DONE()", "FAIL()"])


class Computer13(ActionSpace):
    """OSWorld's actions, by name."""

    tool: ClassVar[Tool] = Tool(
        name="computer",
        description=(
            f"{_USE} Call it with DONE when the task is done, with FAIL when it cannot be done. "
            f"Actions and their parameters ([optional]): {_described()}."
        ),
        parameters=_parameters(
            "action_type",
            {
                "action_type": {
                    "type": "string",
                    "enum": [*(str(kind.__struct_config__.tag) for kind in COMPUTER_ACTIONS), "WAIT", "DONE", "FAIL"],
                },
                "parameters": {"type": "object", "description": "The action's own parameters, by name."},
            },
        ),
    )
    marked_tool: ClassVar[Tool | None] = _with(
        tool, f"{_BOXES} Instead of x and y, give mark: the number of a box.", {"mark": _MARK}
    )

    def actions(self, arguments: Mapping[str, Any], width: int, height: int, marks: Marks | None) -> Sequence[Action]:
        """See `ActionSpace`."""
        given = dict(arguments)
        inner = given.get("parameters")
        for place in (given, inner) if isinstance(inner, dict) else (given,):
            if "mark" in place:
                x, y = place_of(place.pop("mark"), marks)
                place |= {"x": x, "y": y}
        return (computer13.decode(given, width, height),)


class Pyautogui(ActionSpace):
    """Python code with pyautogui."""

    tool: ClassVar[Tool] = Tool(
        name="run_pyautogui",
        description=(
            "Run Python code with pyautogui on the computer whose screen you see; it is imported already, and so is "
            "time. Coordinates are pixels of the screen. Nothing of one call is there in the next. Instead of code: "
            "WAIT, DONE when the task is done, FAIL when it cannot be done."
        ),
        parameters=_parameters("code", {"code": {"type": "string", "description": "e.g. pyautogui.click(100, 200)"}}),
    )
    marked_tool: ClassVar[Tool | None] = _with(
        tool,
        f"{_BOXES} tag_3 is the middle of the box with the number 3, as a tuple (x, y): pyautogui.click(tag_3).",
        {"code": {"type": "string", "description": "e.g. pyautogui.click(tag_3)"}},
    )

    def actions(self, arguments: Mapping[str, Any], width: int, height: int, marks: Marks | None) -> Sequence[Action]:
        """See `ActionSpace`."""
        code = arguments.get("code")
        if not isinstance(code, str):
            raise ActionError("code is missing, or no text; write pyautogui calls, or one of WAIT, DONE, FAIL")
        return (
            pyautogui_code.decode(code, width, height) if marks is None else decode_tagged(code, width, height, marks)
        )


class ClaudeComputerUse(ActionSpace):
    """The actions of Anthropic's computer tool."""

    tool: ClassVar[Tool] = Tool(
        name="computer",
        description=f"{_USE} action: done when the task is done, fail when it cannot be done.",
        parameters=_parameters(
            "action",
            {
                "action": {"type": "string", "enum": list(claude.ACTIONS)},
                "coordinate": {"type": "array", "items": {"type": "integer"}, "minItems": 2, "maxItems": 2},
                "start_coordinate": {"type": "array", "items": {"type": "integer"}, "minItems": 2, "maxItems": 2},
                "text": {"type": "string", "description": "What to type, a key or keys such as ctrl+s, or keys held."},
                "scroll_direction": {"type": "string", "enum": ["up", "down", "left", "right"]},
                "scroll_amount": {"type": "integer"},
                "duration": {"type": "number", "description": "Seconds, of wait and hold_key."},
            },
        ),
    )
    marked_tool: ClassVar[Tool | None] = _with(
        tool, f"{_BOXES} Instead of coordinate, give mark: the number of a box.", {"mark": _MARK}
    )

    def actions(self, arguments: Mapping[str, Any], width: int, height: int, marks: Marks | None) -> Sequence[Action]:
        """See `ActionSpace`."""
        given = dict(arguments)
        if "mark" in given:
            given["coordinate"] = list(place_of(given.pop("mark"), marks))
        # What only looks is a wait of no time: the screen is shown after every action.
        return claude.decode(given, width, height) or (Wait(seconds=0.0),)
