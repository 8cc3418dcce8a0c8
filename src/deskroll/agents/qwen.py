"""QwenAgent: Qwen's vision models with their `computer_use` tool.

The tool is described in the system prompt and called in the text, so that the server needs no parser of tool calls;
calls that a server takes out of the text all the same are put back. Qwen3-VL writes points in a grid of 1000 by 1000
(`relative`), Qwen2.5-VL in pixels of the image as its processor resizes it (`absolute`).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar, Literal

import msgspec
from pydantic import Field

from deskroll.actions import Reading
from deskroll.actions.pixels import THOUSAND, Grid, Size, smart_resize
from deskroll.actions.qwen_text import NAME, as_text, parse
from deskroll.agents.texts import TextAgent, TextSettings
from deskroll.models.messages import Message
from deskroll.types import Completion

_DESCRIPTION = """\
The mouse and the keyboard of a computer, and pictures of its screen.
* The screen has {width}x{height} pixels.
* Programs need a moment to start and to react: where nothing seems to happen, wait, and look at the next picture.
* Find the place of an element in the newest picture before pointing at it, and aim at its centre.
* Where a click had no effect, try again a little beside the last point."""
_ACTIONS = {
    "key": "Press keys in the given order and release them in reverse.",
    "type": "Type a text.",
    "mouse_move": "Move the pointer to (x, y).",
    "left_click": "Click the left button at (x, y).",
    "left_click_drag": "Drag with the left button to (x, y).",
    "right_click": "Click the right button at (x, y).",
    "middle_click": "Click the middle button at (x, y).",
    "double_click": "Double-click the left button at (x, y).",
    "triple_click": "Triple-click the left button at (x, y).",
    "scroll": "Turn the wheel.",
    "hscroll": "Turn the wheel sideways.",
    "wait": "Wait for some seconds.",
    "terminate": "End the task, and say whether it was done.",
    "answer": "Answer a question.",
}
SYSTEM_PROMPT = """\
# Tools

You may call one or more functions to assist with the user query.

You are provided with function signatures within <tools></tools> XML tags:
<tools>
{tools}
</tools>

For each function call, return a json object with function name and arguments within <tool_call></tool_call> XML tags:
<tool_call>
{"name": <function-name>, "arguments": <args-json-object>}
</tool_call>

# Response format

Every reply has two parts and nothing else:
1) Action: one short sentence that says what is done next.
2) One <tool_call>...</tool_call> block, which holds only {"name": <function-name>, "arguments": <args-json-object>}.

The last reply calls the tool with action=terminate."""
PROMPT = """\
The task: {instruction}

Nothing has been done yet. The picture shows the screen now: what is the next step?"""


class QwenSettings(TextSettings):
    """Options of the Qwen agent."""

    coordinates: Literal["relative", "absolute"] = "relative"
    """What points mean: `relative` to a grid of 1000 by 1000 (Qwen3-VL), or `absolute` pixels (Qwen2.5-VL)."""
    system_prompt: str = SYSTEM_PROMPT
    """What the model is told first; {tools} becomes the description of the tool."""
    factor: int = Field(default=28, ge=1, le=1000)
    """`absolute`: both sides of the resized image are multiples of this."""
    min_pixels: int = Field(default=56 * 56, ge=1)
    """`absolute`: the server's processor enlarges images below so many pixels."""
    max_pixels: int = Field(default=16384 * 28 * 28, ge=28 * 28)
    """`absolute`: the server's processor shrinks images beyond so many pixels."""
    pixels_a_click: int = Field(default=1, ge=1, le=10_000)
    """How many of a scroll's `pixels` are one click of the wheel; 1, as OSWorld's own agent takes them."""


class QwenAgent(TextAgent):
    """One attempt of a Qwen-VL model."""

    Settings: ClassVar[type[QwenSettings]] = QwenSettings
    name = "qwen"

    def opening(self, instruction: str) -> tuple[Sequence[Message], str]:
        """The tool, and the task with the first screen."""
        tools = msgspec.json.encode(_tool(self._cells())).decode()
        system = self.settings.system_prompt.replace("{tools}", tools)
        return [Message.system(system)], PROMPT.replace("{instruction}", instruction)

    def said(self, completion: Completion) -> str:
        """With the calls that a server has taken out of it."""
        calls = [as_text(call.name, call.arguments) for call in completion.tool_calls]
        return "\n".join([completion.text, *calls]) if calls else completion.text

    def read(self, text: str) -> Reading:
        """Read the calls of `computer_use`."""
        return parse(text, Grid(cells=self._cells(), screen=self.screen), self.settings.pixels_a_click)

    def _cells(self) -> Size:
        options = self.settings
        if options.coordinates == "relative":
            return THOUSAND
        return smart_resize(self.image, factor=options.factor, least=options.min_pixels, most=options.max_pixels)


def _tool(cells: Size) -> dict[str, Any]:
    width, height = cells
    actions = "\n".join(f"* `{name}`: {what}" for name, what in _ACTIONS.items())
    properties = {
        "action": {"description": f"\n{actions}\n", "enum": list(_ACTIONS), "type": "string"},
        "keys": {"description": "Required only by `action=key`.", "type": "array"},
        "text": {"description": "Required only by `action=type` and `action=answer`.", "type": "string"},
        "coordinate": {"description": "The x,y coordinates for mouse actions.", "type": "array"},
        "pixels": {"description": "The amount of scrolling.", "type": "number"},
        "time": {"description": "The seconds to wait.", "type": "number"},
        "status": {"description": "The status of the task.", "type": "string", "enum": ["success", "failure"]},
    }
    return {
        "type": "function",
        "function": {
            "name_for_human": NAME,
            "name": NAME,
            "description": _DESCRIPTION.format(width=width, height=height),
            "parameters": {"properties": properties, "required": ["action"], "type": "object"},
            "args_format": "Format the arguments as a JSON object.",
        },
    }
