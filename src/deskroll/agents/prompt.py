"""PromptAgent: OSWorld's baseline for any chat model: what to do stands in a code block, and no tool is called.

The run's action space says what a block holds: pyautogui code, or JSON objects (computer_13, claude_computer_use);
WAIT, DONE and FAIL may stand in its place. Plain code becomes actions; code that is more than plain calls runs inside
the desktop (see `actions.pyautogui_code`).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

import msgspec
from pydantic import Field

from deskroll.actions import Action, Reading
from deskroll.actions.code_text import objects, parse
from deskroll.agents.base import AgentContext
from deskroll.agents.texts import TextAgent, TextSettings
from deskroll.errors import AgentError
from deskroll.models.messages import Message
from deskroll.types import Tool, ToolRequest

SYSTEM_PROMPT = """\
You carry out tasks on a desktop computer by {means}.
At each step you are shown the desktop: a picture of the screen ({width}x{height} pixels), an accessibility tree, or
both.

{rules}
- Instead of that a block may hold one word: WAIT when the computer needs time, DONE when the task is done, FAIL when it
  cannot be done. Give up only when nothing is left to try.

The password of the computer's user, for sudo, is '{password}'.
First think shortly about what you see and what was done so far; then give the block, and nothing after it."""
CODE_MEANS = "writing Python code that moves its mouse and types on its keyboard"
CODE_RULES = """\
Write code that uses `pyautogui`, one line or several, inside one code block:
```python
# your code here
```
- {description}
- Take coordinates from what you are shown, and check them: there is no picture to search for, so
  `pyautogui.locateCenterOnScreen` and `pyautogui.screenshot()` are of no use.
- Every block stands alone: no name of an earlier one is known. Between several actions, pause shortly
  (`time.sleep(0.5)`)."""
JSON_MEANS = "writing down, as JSON, what its mouse and its keyboard are to do"
JSON_RULES = """\
Write one action, or several in a list, inside one code block:
```json
{"your": "action"}
```
- {description}
- An action is an object of this JSON schema: {schema}
- Take coordinates from what you are shown, and check them."""
TASK = "The task: "
NEXT = "This is the desktop now. What is the next step?"


class PromptSettings(TextSettings):
    """Options of the baseline."""

    system_prompt: str = SYSTEM_PROMPT
    """What the model is told first; {means}, {rules}, {width}, {height} and {password} are filled in."""
    client_password: str = "password"  # noqa: S105  (OSWorld's own, for sudo inside the desktop)
    """The password of the desktop's user, which the model is told."""
    max_images: int = Field(default=3, ge=1, le=1000)
    """The most screens, and the most accessibility trees, in a request: the last ones."""


class PromptAgent(TextAgent):
    """One attempt of the baseline."""

    Settings: ClassVar[type[PromptSettings]] = PromptSettings
    name = "prompt"

    def __init__(self, context: AgentContext, settings: PromptSettings) -> None:
        super().__init__(context, settings)
        if len(context.tools) != 1:
            raise AgentError(f"agent prompt writes for one tool, and the environment has {len(context.tools)}")
        self._tool = context.tools[0]
        self._decode = context.decode
        self._coded = self._tool.parameters.get("required") == ["code"]
        """Whether what a block holds is the tool's one argument, and code."""

    def opening(self, instruction: str) -> tuple[Sequence[Message], str]:
        """The rules and the task in the system prompt."""
        filled = {
            "means": CODE_MEANS if self._coded else JSON_MEANS,
            "rules": _rules(self._tool, coded=self._coded),
            "width": str(self.image[0]),
            "height": str(self.image[1]),
            "password": self.settings.client_password,
        }
        system = self.settings.system_prompt
        for name, value in filled.items():
            system = system.replace(f"{{{name}}}", value)
        return [Message.system(f"{system}\n{TASK}{instruction}")], NEXT

    def read(self, text: str) -> Reading:
        """Read the code blocks."""
        if self._coded:
            return parse(text, lambda source: self._called({"code": source}))
        return parse(text, self._objects, "json")

    def _objects(self, source: str) -> Sequence[Action]:
        return [action for each in objects(source) for action in self._called(each)]

    def _called(self, arguments: object) -> Sequence[Action]:
        written = msgspec.json.encode(arguments).decode()
        return self._decode(ToolRequest(id="", name=self._tool.name, arguments=written))


def _rules(tool: Tool, *, coded: bool) -> str:
    schema = msgspec.json.encode(tool.parameters).decode()
    rules = CODE_RULES if coded else JSON_RULES
    return rules.replace("{description}", tool.description).replace("{schema}", schema)
