"""Two screens, compared: how much of them differs, and where.

A pixel differs when one of its colours does by more than `NOISE`. Screens count as the same while no larger a share of
them differs than is tolerated: a caret that blinks and a clock that goes on are small.
"""

from __future__ import annotations

import numpy as np
from PIL import Image, ImageDraw

from deskroll.types import Record

NOISE = 16
"""Steps of 255 by which a colour may be off."""
TOLERANCE = 0.001
"""The share of a screen that may differ: on 1920x1080 about a clock's worth."""
_GAP = 8


class Difference(Record, frozen=True, omit_defaults=False):
    """What differs between two screens."""

    pixels: int = 0
    share: float = 0.0
    """Of all pixels."""
    box: tuple[int, int, int, int] | None = None
    """Left, top, width and height of the smallest rectangle that holds all of it."""


def compare(stored: Image.Image, replayed: Image.Image) -> Difference:
    """Compare two screens; of different sizes, all of them differs."""
    if stored.size != replayed.size:
        width, height = replayed.size
        return Difference(pixels=width * height, share=1.0, box=(0, 0, width, height))
    one, two = (np.asarray(each.convert("RGB"), dtype=np.int16) for each in (stored, replayed))
    differs = (np.abs(one - two) > NOISE).any(axis=2)
    count = int(differs.sum())
    if not count:
        return Difference()
    rows, columns = np.flatnonzero(differs.any(axis=1)), np.flatnonzero(differs.any(axis=0))
    left, top = int(columns[0]), int(rows[0])
    box = (left, top, int(columns[-1]) - left + 1, int(rows[-1]) - top + 1)
    return Difference(pixels=count, share=count / differs.size, box=box)


def side_by_side(stored: Image.Image, replayed: Image.Image, found: Difference) -> Image.Image:
    """Both screens in one picture, the stored one on the left, what differs framed in red."""
    height = max(stored.height, replayed.height)
    whole = Image.new("RGB", (stored.width + _GAP + replayed.width, height), (255, 255, 255))
    whole.paste(stored, (0, 0))
    whole.paste(replayed, (stored.width + _GAP, 0))
    if found.box is not None:
        left, top, width, high = found.box
        draw = ImageDraw.Draw(whole)
        for shift in (0, stored.width + _GAP):
            frame = (shift + left - 2, top - 2, shift + left + width + 1, top + high + 1)
            draw.rectangle(frame, outline=(255, 0, 0), width=2)
    return whole
