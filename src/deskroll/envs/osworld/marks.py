"""Marks on a screen: a numbered box around each element, so that an agent can act by number."""

from __future__ import annotations

import io
from collections.abc import Sequence

import msgspec

from deskroll.envs.osworld.elements import Element


def mark(screen: bytes, found: Sequence[Element]) -> tuple[bytes, list[Element]]:
    """The screen with a box around each element, and the elements that have one: number n is the n-th of them.

    Of one that reaches beyond the screen, the part that is seen has the box, and is given back. What lies outside of
    the screen, or is a patch of one colour (nothing is to be seen there), gets none.
    """
    from PIL import Image, ImageDraw  # noqa: PLC0415  (only those who want marks need it)

    with Image.open(io.BytesIO(screen)) as opened:
        image = opened.convert("RGB")
    draw = ImageDraw.Draw(image)
    kept: list[Element] = []
    clean = image.copy()
    for each in found:
        box = (each.x, each.y, min(each.x + each.width, image.width), min(each.y + each.height, image.height))
        if box[2] <= box[0] or box[3] <= box[1] or clean.crop(box).getcolors(1) is not None:
            continue
        kept.append(msgspec.structs.replace(each, width=box[2] - box[0], height=box[3] - box[1]))
        draw.rectangle(box, outline="red", width=1)
        label = str(len(kept))
        place = (box[0], max(box[3], 11))
        draw.rectangle(draw.textbbox(place, label, anchor="lb", font_size=14), fill="black")
        draw.text(place, label, anchor="lb", fill="white", font_size=14)
    out = io.BytesIO()
    image.save(out, "PNG", compress_level=1)
    return out.getvalue(), kept
