"""UITarsAgent: ByteDance's UI-TARS models, versions 1 and 1.5, and what was trained from them (DART's).

Version 1 writes points in a grid of 1000 by 1000, version 1.5 in pixels of the image as its processor resizes it (both
sides multiples of 28). History: all texts, the last `max_images` screens. The notation is the models' own;
whoever wants the words of their training context it, too, sets `prompt`.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import ClassVar, Literal

import msgspec
from pydantic import Field, field_validator

from deskroll.actions import Action, Answer, Fail, Reading, Wait
from deskroll.actions.pixels import THOUSAND, Grid, smart_resize
from deskroll.actions.uitars_text import parse, with_box_tokens
from deskroll.agents.base import AgentContext
from deskroll.agents.texts import TextAgent, TextSettings
from deskroll.models.messages import Message

SYSTEM_PROMPT = "You are a helpful assistant."
PROMPT = r"""You operate a computer through its screen. Below are a task and what was done so far, with pictures of the
screen. Decide on the next action.

## Output Format
```
Thought: ...
Action: ...
```

## Action Space
click(start_box='<|box_start|>(x1,y1)<|box_end|>')
left_double(start_box='<|box_start|>(x1,y1)<|box_end|>')
right_single(start_box='<|box_start|>(x1,y1)<|box_end|>')
drag(start_box='<|box_start|>(x1,y1)<|box_end|>', end_box='<|box_start|>(x3,y3)<|box_end|>')
hotkey(key='')
type(content='') # a final \n submits what was typed
scroll(start_box='<|box_start|>(x1,y1)<|box_end|>', direction='down or up or right or left')
wait() # look again a little later
finished(content='xxx') # write quotes and line ends in content with a backslash, as in a Python text
call_user() # the task cannot be done, or needs a person

## Note
- Think in {language}.
- `Thought` holds a short plan, and ends with one sentence that names the next action and what it is done to.

## User Instruction
{instruction}
"""
_FACTOR = 28
_OF_DART = re.compile(r"(?<![a-z])dart", re.IGNORECASE)
_CANNOT = re.compile(
    r"无法|不可行|不能完成|无法完成|做不到|\b(?:infeasible|unfeasible|not feasible|impossible|not possible|unable to)\b"
    r"|\b(?:can(?:not|'t| not)) be (?:done|completed|performed|accomplished|achieved)\b",
    re.IGNORECASE,
)
"""How DART's models say in words that a task cannot be done."""


class UITarsSettings(TextSettings):
    """Options of the UI-TARS agent."""

    version: Literal["1", "1.5"] = "1.5"
    """Which models they are: it decides what their coordinates mean."""
    language: str = "English"
    """What the model thinks in."""
    prompt: str = PROMPT
    """What the model is told first; {instruction} and {language} are filled in."""
    min_pixels: int = Field(default=100 * _FACTOR**2, ge=1)
    """Version 1.5: the server's processor enlarges images below so many pixels."""
    max_pixels: int = Field(default=16384 * _FACTOR**2, ge=_FACTOR**2)
    """Version 1.5: the server's processor shrinks images beyond so many pixels."""
    call_user_tolerance: int = Field(default=3, ge=0)
    """How many calls for the user are answered by waiting, before one means that the task cannot be done."""
    give_up: Literal["auto", "uitars", "dart"] = "auto"
    """How models say that a task cannot be done: `uitars` by calling the user so often; `dart` by the first such call,
    or by a `finished` whose content says so; `auto`: as DART's models do, where the model's name begins a word so."""

    @field_validator("version", mode="before")
    @classmethod
    def _as_text(cls, value: object) -> object:
        """Whoever writes 1.5 in a file or on a command line gives a number."""
        return f"{value:g}" if isinstance(value, int | float) and not isinstance(value, bool) else value


class UITarsAgent(TextAgent):
    """One attempt of a UI-TARS model."""

    Settings: ClassVar[type[UITarsSettings]] = UITarsSettings
    name = "uitars"

    def __init__(self, context: AgentContext, settings: UITarsSettings) -> None:
        super().__init__(context, settings)
        family = "dart" if _OF_DART.search(context.model_name) else "uitars"
        self._is_dart = (family if settings.give_up == "auto" else settings.give_up) == "dart"
        self._patience = 0 if self._is_dart else settings.call_user_tolerance

    def opening(self, instruction: str) -> tuple[Sequence[Message], str]:
        """The prompt, in a message of its own; screens follow in theirs."""
        prompt = self.settings.prompt.replace("{language}", self.settings.language)
        prompt = prompt.replace("{instruction}", instruction)
        return [Message.system(SYSTEM_PROMPT), Message.user(prompt)], ""

    def kept(self, text: str) -> str:
        """With the special tokens that servers leave out of their answers."""
        return with_box_tokens(text)

    def read(self, text: str) -> Reading:
        """Read `Thought: ... Action: ...`."""
        reading = parse(text, self._grid(), self._called)
        if not self._is_dart:
            return reading
        return msgspec.structs.replace(reading, actions=tuple(map(_given_up, reading.actions)))

    def _grid(self) -> Grid:
        options = self.settings
        if options.version == "1":
            return Grid(cells=THOUSAND, screen=self.screen)
        cells = smart_resize(self.image, factor=_FACTOR, least=options.min_pixels, most=options.max_pixels)
        return Grid(cells=cells, screen=self.screen)

    def _called(self) -> Action:
        """Nobody is there to be called: the model waits instead, until it has asked often enough."""
        if self._patience == 0:
            return Fail()
        self._patience -= 1
        return Wait()


def _given_up(action: Action) -> Action:
    """FAIL for an answer that says that the task cannot be done."""
    return Fail() if isinstance(action, Answer) and _CANNOT.search(action.text) else action
