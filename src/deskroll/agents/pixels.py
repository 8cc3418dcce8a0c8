"""Pixels: from the coordinates that a model writes to those of the screen.

Models write points in a grid of their own: a thousand by a thousand over whatever they see, or the pixels of the image
as their own processor has resized it. `Grid` maps both to the screen. Guarantees: a point of the grid, its edges
included, is a pixel of the screen; any other is an `ActionError` that names the range.
"""

from __future__ import annotations

import math

from deskroll.errors import ActionError
from deskroll.types import Record

Size = tuple[int, int]
"""Width and height."""
THOUSAND: Size = (1000, 1000)
_PNG = b"\x89PNG\r\n\x1a\n"
_LARGEST = 65_535
_FRAMES = frozenset((*range(0xC0, 0xD0),)) - {0xC4, 0xC8, 0xCC}
"""The JPEG markers that begin a frame, which hold its size."""


class Grid(Record, frozen=True):
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


def image_size(image: bytes) -> Size | None:
    """Width and height of a PNG or JPEG image; None where its head does not say."""
    size = _png_size(image) if image.startswith(_PNG) else _jpeg_size(image)
    return size if size is not None and all(0 < side <= _LARGEST for side in size) else None


def _png_size(image: bytes) -> Size | None:
    if image[12:16] != b"IHDR" or len(image) < 24:
        return None
    return int.from_bytes(image[16:20], "big"), int.from_bytes(image[20:24], "big")


def _jpeg_size(image: bytes) -> Size | None:
    at = 2
    while image[at : at + 1] == b"\xff" and len(image) >= at + 9:
        marker, length = image[at + 1], int.from_bytes(image[at + 2 : at + 4], "big")
        if marker in _FRAMES:
            return int.from_bytes(image[at + 7 : at + 9], "big"), int.from_bytes(image[at + 5 : at + 7], "big")
        at += 2 + length
    return None
