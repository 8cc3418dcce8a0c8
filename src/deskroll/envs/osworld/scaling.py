"""Scaling: a screen shown in another size, with all that is known of its elements; `actions.pixels` leads back."""

from __future__ import annotations

import io
import re

import msgspec

from deskroll.actions.pixels import Picture
from deskroll.envs.osworld.elements import Element

_PLACES = re.compile(r'(:screencoord|:size)="\((-?\d{1,7}), ?(-?\d{1,7})\)"')


class Scale(Picture, frozen=True):
    """From a screen to the picture of it that an agent is shown, and back."""

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
        x, y = self._along(element.x, element.y)
        width, height = self._along(element.width, element.height)
        return msgspec.structs.replace(element, x=x, y=y, width=max(width, 1), height=max(height, 1))

    def tree(self, tree: str) -> str:
        """A tree, as XML, with the places and sizes that its elements have on the picture."""
        if self.screen == self.shown:
            return tree

        def moved(found: re.Match[str]) -> str:
            given = int(found[2]), int(found[3])
            x, y = self._along(*given)
            if found[1] == ":size":  # what is there at all does not vanish
                x, y = max(x, min(given[0], 1)), max(y, min(given[1], 1))
            return f'{found[1]}="({x}, {y})"'

        return _PLACES.sub(moved, tree)

    def _along(self, x: int, y: int) -> tuple[int, int]:
        return x * self.shown[0] // self.screen[0], y * self.shown[1] // self.screen[1]
