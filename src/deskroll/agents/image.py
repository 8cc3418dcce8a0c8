"""Images as agents are shown them: their size, read from the head and without decoding the rest.

Guarantees: any bytes give a size within what the formats allow, or None.
"""

from __future__ import annotations

from deskroll.actions.pixels import Size

_PNG = b"\x89PNG\r\n\x1a\n"
_LARGEST = 65_535
_FRAMES = frozenset((*range(0xC0, 0xD0),)) - {0xC4, 0xC8, 0xCC}
"""The JPEG markers that begin a frame, which hold its size."""


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
