"""PromptAgent: OSWorld's baseline for any chat model: it writes pyautogui code, or WAIT, DONE or FAIL, in a code block.

Plain code becomes actions; code that is more than plain calls runs inside the desktop (see `actions.pyautogui_code`).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from pydantic import Field

from deskroll.actions.code_text import parse
from deskroll.actions.reading import Reading
from deskroll.agents.base import Surroundings
from deskroll.agents.texts import TextAgent, TextSettings
from deskroll.models.messages import Message

SYSTEM_PROMPT = """\
You carry out tasks on a desktop computer by writing Python code that moves its mouse and types on its keyboard.
At each step you are shown the desktop: a picture of the screen ({width}x{height} pixels), an accessibility tree, or
both.

Write code that uses `pyautogui`, one line or several, inside one code block:
```python
# your code here
```
- Take coordinates from what you are shown, and check them: there is no picture to search for, so
  `pyautogui.locateCenterOnScreen` and `pyautogui.screenshot()` are of no use.
- Every block stands alone: no name of an earlier one is known. Between several actions, pause shortly
  (`time.sleep(0.5)`).
- Instead of code a block may hold one word: WAIT when the computer needs time, DONE when the task is done, FAIL when it
  cannot be done. Give up only when nothing is left to try.

The password of the computer's user, for sudo, is '{password}'.
First think shortly about what you see and what was done so far; then give the block, and nothing after it."""
TASK = "The task: "
NEXT = "This is the desktop now. What is the next step?"


class PromptSettings(TextSettings):
    """Options of the baseline."""

    system_prompt: str = SYSTEM_PROMPT
    """What the model is told first; {width}, {height} and {password} are filled in."""
    client_password: str = "password"  # noqa: S105  (OSWorld's own, for sudo inside the desktop)
    """The password of the desktop's user, which the model is told."""
    max_images: int = Field(default=3, ge=1, le=1000)
    """The most screens, and the most accessibility trees, in a request: the last ones."""


class PromptAgent(TextAgent):
    """One attempt of the baseline."""

    Settings: ClassVar[type[PromptSettings]] = PromptSettings
    name = "prompt"

    def __init__(self, surroundings: Surroundings, settings: PromptSettings) -> None:
        super().__init__(surroundings, settings)
        self._options = settings

    def opening(self, instruction: str) -> tuple[Sequence[Message], str]:
        """The rules and the task in the system prompt."""
        width, height = self.screen
        system = self._options.system_prompt
        for name, value in (("width", width), ("height", height), ("password", self._options.client_password)):
            system = system.replace(f"{{{name}}}", str(value))
        return [Message.system(f"{system}\n{TASK}{instruction}")], NEXT

    def read(self, text: str) -> Reading:
        """Read the code blocks."""
        return parse(text, self.screen)
