"""The one Action union: everything an agent can do in a step.

Owns the vocabulary that agents, environments and desktops share, and its validation. The thirteen computer
actions are OSWorld's computer_13; `Script` is pyautogui source that is more than plain calls and therefore
runs inside the desktop; `ToolCall` and `Answer` belong to environments without a screen.

Guarantees: an Action that `check` let through can be performed on a screen of that size. Codecs to and from
other notations live beside this file, one notation a file, and speak in `Action`s only:
`computer13`, `pyautogui_code`, `claude`; and those that read a whole reply of a model, thought and all
(`reading`): `uitars_text`, `qwen_text`, `code_text`.
"""

from deskroll.actions.keys import KEYS, canonical_key
from deskroll.actions.union import (
    ACTIONS,
    COMPUTER_ACTIONS,
    Action,
    Answer,
    Button,
    Click,
    ComputerAction,
    Done,
    DoubleClick,
    DragTo,
    Fail,
    Hotkey,
    KeyDown,
    KeyUp,
    MouseDown,
    MouseUp,
    MoveTo,
    Press,
    RightClick,
    Script,
    Scroll,
    ToolCall,
    Typing,
    Wait,
    check,
    fit,
)

__all__ = [
    "ACTIONS",
    "COMPUTER_ACTIONS",
    "KEYS",
    "Action",
    "Answer",
    "Button",
    "Click",
    "ComputerAction",
    "Done",
    "DoubleClick",
    "DragTo",
    "Fail",
    "Hotkey",
    "KeyDown",
    "KeyUp",
    "MouseDown",
    "MouseUp",
    "MoveTo",
    "Press",
    "RightClick",
    "Script",
    "Scroll",
    "ToolCall",
    "Typing",
    "Wait",
    "canonical_key",
    "check",
    "fit",
]
