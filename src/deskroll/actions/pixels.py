"""Pixels: from the coordinates that a model writes to those of the screen.

Models write points in a grid of their own: a thousand by a thousand over whatever they see, or the pixels of the image
as their own processor has resized it. `Grid` maps both to the screen. Others name the pixels of the picture that they
are shown, which may have another size than the screen: that is `Picture`'s.

Guarantees: a point of a grid, its edges included, is a pixel of the screen; any other point counts as the nearest one
of the edge, and that is noted. A pixel of a picture leads to the pixel of the screen that its centre lies on; what is
none of its pixels is an `ActionError` that names the range (who reads what a model wrote makes it `fit` before).
"""

from __future__ import annotations

import math

import msgspec

from deskroll.actions import Action, Script
from deskroll.actions.noting import note
from deskroll.errors import ActionError

Size = tuple[int, int]
"""Width and height."""
THOUSAND: Size = (1000, 1000)


class Grid(msgspec.Struct, frozen=True, kw_only=True):
    """A model's own coordinates over a screen."""

    cells: Size
    """Where its coordinates end: 0 to this, in each direction."""
    screen: Size

    def pixel(self, x: float, y: float) -> Size:
        """The pixel that a point means."""
        columns, rows = self.cells
        there = min(max(x, 0.0), float(columns)), min(max(y, 0.0), float(rows))
        if there != (x, y):
            note(f"({x:g}, {y:g}) is off the screen, which is {columns}x{rows}; taken: ({there[0]:g}, {there[1]:g})")
        x, y = there
        width, height = self.screen
        return min(int(x * width / columns), width - 1), min(int(y * height / rows), height - 1)


class Picture(msgspec.Struct, frozen=True, kw_only=True):
    """A screen as it is shown, in its own size or in another one."""

    shown: Size
    screen: Size

    def pixel(self, x: int, y: int) -> Size:
        """The pixel of the screen that a pixel of the picture stands for."""
        width, height = self.shown
        if not (0 <= x < width and 0 <= y < height):
            raise ActionError(
                f"the point ({x}, {y}) is off the picture; allowed: x 0 to {width - 1}, y 0 to {height - 1}"
            )
        return (2 * x + 1) * self.screen[0] // (2 * width), (2 * y + 1) * self.screen[1] // (2 * height)

    def back(self, action: Action) -> Action:
        """An action on the picture, as one on the screen."""
        if self.screen == self.shown:
            return action
        if isinstance(action, Script):
            raise ActionError("a program cannot be brought to the screen's own size; write plain pyautogui calls")
        x, y = getattr(action, "x", None), getattr(action, "y", None)
        if x is None or y is None:
            return action
        there = dict(zip(("x", "y"), self.pixel(x, y), strict=True))
        return msgspec.structs.replace(action, **there)


def smart_resize(size: Size, *, factor: int, least: int, most: int) -> Size:
    """The size to which the processors of Qwen's vision models resize an image.

    Both sides become multiples of `factor`, and their product lies between `least` and `most` pixels.
    """
    width, height = size
    columns, rows = (max(factor, round(side / factor) * factor) for side in size)
    if columns * rows > most:
        shrink = math.sqrt(width * height / most)
        return tuple(max(factor, math.floor(side / shrink / factor) * factor) for side in size)  # type: ignore[return-value]
    if columns * rows < least:
        grow = math.sqrt(least / (width * height))
        return tuple(math.ceil(side * grow / factor) * factor for side in size)  # type: ignore[return-value]
    return columns, rows
