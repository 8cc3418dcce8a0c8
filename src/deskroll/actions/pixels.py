"""Pixels: from the coordinates that a model writes to those of the screen.

Models write points in a grid of their own: a thousand by a thousand over whatever they see, or the pixels of the image
as their own processor has resized it. `Grid` maps both to the screen. Guarantees: a point of the grid, its edges
included, is a pixel of the screen; any other is an `ActionError` that names the range.
"""

from __future__ import annotations

import math

import msgspec

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
        if not (0 <= x <= columns and 0 <= y <= rows):
            raise ActionError(f"the point ({x:g}, {y:g}) is off the screen; allowed: x 0 to {columns}, y 0 to {rows}")
        width, height = self.screen
        return min(int(x * width / columns), width - 1), min(int(y * height / rows), height - 1)


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
