"""OSWorld's baseline notation: pyautogui source, or one of WAIT, DONE and FAIL, in blocks between ``` marks.

Several blocks are performed in their order; the words may also stand alone, without a block. What stands before the
first block is the thought. Guarantees: any text gives actions that fit the screen, or an `ActionError`.
"""

from __future__ import annotations

import re

from deskroll.actions import Action, Done, Fail, Wait
from deskroll.actions.pixels import Size
from deskroll.actions.pyautogui_code import decode
from deskroll.actions.reading import Reading
from deskroll.errors import ActionError

_FENCE = "```"
_PYTHON = re.compile(r"[ \t]*(?:python3?|py|code)?[ \t]*(?:\n|$)|[ \t]*(?:python3?|py|code)[ \t]+", re.IGNORECASE)
_OTHER = re.compile(r"[ \t]*([A-Za-z]+)[ \t]*\n")
_WORDS = {"WAIT": Wait, "DONE": Done, "FAIL": Fail}
_HINT = "write the code, or one of WAIT, DONE, FAIL, inside a block that begins with ```python and ends with ```"


def parse(text: str, screen: Size) -> Reading:
    """What a reply says and does."""
    bare = text.strip()
    if bare in _WORDS:
        return Reading(actions=(_WORDS[bare](),))
    thought, *blocks = text.split(_FENCE)
    sources = [_source(block) for block in blocks[::2]]  # what stands between blocks is talk
    sources = [source for source in sources if source.strip()]
    if not sources:
        raise ActionError(f"there is no code in the reply; {_HINT}")
    actions: list[Action] = []
    for source in sources:
        actions += decode(source, *screen)
    return Reading(thought=thought.strip(), actions=tuple(actions))


def _source(block: str) -> str:
    if python := _PYTHON.match(block):
        return block[python.end() :].rstrip()
    other = _OTHER.match(block)
    if other and other[1] not in _WORDS:
        raise ActionError(f"a block is of {other[1][:40]}; {_HINT}")
    return block.rstrip()
