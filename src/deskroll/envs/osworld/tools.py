"""The computer as a tool: what a model is told of each action space."""

from __future__ import annotations

from typing import Any

import msgspec

from deskroll.actions import COMPUTER_ACTIONS
from deskroll.types import Tool


def _described() -> str:
    lines = []
    for kind in COMPUTER_ACTIONS:
        fields = [field.name if field.required else f"[{field.name}]" for field in msgspec.structs.fields(kind)]
        lines.append(f"{kind.__struct_config__.tag}({', '.join(fields)})")
    return "; ".join([*lines, "WAIT([seconds])", "DONE()", "FAIL()"])


_PARAMETERS: dict[str, Any] = {
    "type": "object",
    "properties": {
        "action_type": {
            "type": "string",
            "enum": [*(str(kind.__struct_config__.tag) for kind in COMPUTER_ACTIONS), "WAIT", "DONE", "FAIL"],
        },
        "parameters": {"type": "object", "description": "The action's own parameters, by name."},
    },
    "required": ["action_type"],
}

COMPUTER_13 = Tool(
    name="computer",
    description=(
        "Use the mouse and the keyboard of the computer whose screen you see. Coordinates are pixels of the screen. "
        "Call it with DONE when the task is done, with FAIL when it cannot be done. "
        f"Actions and their parameters ([optional]): {_described()}."
    ),
    parameters=_PARAMETERS,
)
