"""Scaling: a screen shown in another size, and actions on that picture brought back to the real one.

Guarantees: a pixel of the picture leads to the pixel of the screen that its centre lies on, so every point that can
be named is on the screen, and the corners are corners.
"""

from __future__ import annotations

import io
from typing import Any

import msgspec

from deskroll.actions import Action
from deskroll.actions.union import Script
from deskroll.envs.osworld.elements import Element
from deskroll.errors import ActionError
from deskroll.types import Record


class Scale(Record, frozen=True):
    """From a screen to the picture of it that an agent is shown, and back."""

    screen: tuple[int, int]
    shown: tuple[int, int]

    def picture(self, screen: bytes) -> bytes:
        """The screen in the size that is shown."""
        if self.screen == self.shown:
            return screen
        from PIL import Image  # noqa: PLC0415  (only those who want another size need it)

        with Image.open(io.BytesIO(screen)) as opened:
            scaled = opened.convert("RGB").resize(self.shown, Image.Resampling.LANCZOS)
        out = io.BytesIO()
        scaled.save(out, "PNG", compress_level=1)
        return out.getvalue()

    def element(self, element: Element) -> Element:
        """An element where it is on the picture."""
        if self.screen == self.shown:
            return element
        (width, seen_width), (height, seen_height) = self._along(0), self._along(1)
        return msgspec.structs.replace(
            element,
            x=element.x * seen_width // width,
            y=element.y * seen_height // height,
            width=max(element.width * seen_width // width, 1),
            height=max(element.height * seen_height // height, 1),
        )

    def back(self, action: Action) -> Action:
        """An action on the picture, as one on the screen."""
        if self.screen == self.shown:
            return action
        if isinstance(action, Script):
            raise ActionError("a program cannot be brought to the screen's own size; write plain pyautogui calls")
        moved: dict[str, Any] = {}
        for name, real, seen in (("x", *self._along(0)), ("y", *self._along(1))):
            value = getattr(action, name, None)
            if isinstance(value, int):
                moved[name] = (2 * value + 1) * real // (2 * seen)
        return msgspec.structs.replace(action, **moved) if moved else action

    def _along(self, axis: int) -> tuple[int, int]:
        return self.screen[axis], self.shown[axis]
