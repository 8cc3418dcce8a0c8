"""Turns a `Frame` into a PNG or JPEG file, fast enough to be no part of a step's time.

Guarantees: a PNG decodes to exactly the frame's pixels, for any size and stride. Nothing is kept between
calls, and a PNG needs less than a megabyte beside the frame and the result.

The PNG is put together here because no library comes near: numpy reorders the pixels in blocks of rows that
fit the processor's cache, and ISA-L deflates each block at once. On screens of programs, PNG's row filters
make the file no smaller, since deflate finds the repeated shapes by itself; but rows that repeat the row above need
no conversion at all with `up`, and where neighbouring pixels mostly differ (photographs, gradients) `sub` nearly
halves the file. A sample of each block decides.
"""

from __future__ import annotations

import io
import struct
from collections.abc import Iterator

import numpy as np
from isal import isal_zlib
from numpy.typing import NDArray
from PIL import Image

from deskroll.desktops.x11.capture import Frame

_SIGNATURE = b"\x89PNG\r\n\x1a\n"
_BLOCK_BYTES = 48 * 1920 * 4
"""Source bytes converted at a time: a block and its RGB stay in the cache until they are deflated."""
_DEFLATE_LEVEL = 1
"""Of screens, level 0 makes files a quarter larger or more, no faster; levels 2 and 3 gain next to nothing."""
_FILTER_NONE, _FILTER_SUB, _FILTER_UP = 0, 1, 2


def png(frame: Frame) -> bytes:
    """Encode losslessly, as 8-bit RGB."""
    compressor = isal_zlib.compressobj(_DEFLATE_LEVEL)
    data = [compressor.compress(block) for block in _scanlines(frame)]
    data.append(compressor.flush())
    header = struct.pack(">IIBBBBB", frame.width, frame.height, 8, 2, 0, 0, 0)
    return b"".join([_SIGNATURE, *_chunk(b"IHDR", [header]), *_chunk(b"IDAT", data), *_chunk(b"IEND", [])])


def jpeg(frame: Frame, quality: int = 80) -> bytes:
    """Encode with loss; `quality` is libjpeg's, 1 to 95."""
    if not 1 <= quality <= 95:
        raise ValueError(f"quality is {quality}; allowed: 1 to 95")
    size = (frame.width, frame.height)
    image = Image.frombuffer("RGB", size, frame.data, "raw", "BGRX", frame.stride, 1)
    out = io.BytesIO()
    image.save(out, "JPEG", quality=quality)
    return out.getvalue()


def _chunk(kind: bytes, data: list[bytes]) -> list[bytes]:
    """Return a PNG chunk in parts: length, kind, data, checksum."""
    checksum = isal_zlib.crc32(kind)
    for part in data:
        checksum = isal_zlib.crc32(part, checksum)
    return [struct.pack(">I", sum(map(len, data))), kind, *data, struct.pack(">I", checksum)]


def _scanlines(frame: Frame) -> Iterator[NDArray[np.uint8]]:
    """Yield blocks of rows as PNG wants them: a byte naming the filter, then the pixels in RGB.

    A block is only valid until the next one is asked for.
    """
    width, height = frame.width, frame.height
    source = np.ndarray((height, width, 4), np.uint8, frame.data, 0, (frame.stride, 4, 1))
    pixels = np.ndarray((height, width), "<u4", frame.data, 0, (frame.stride, 4))
    rows = max(1, min(height, _BLOCK_BYTES // (width * 4)))
    plain, lines = (np.empty((rows, 1 + width * 3), np.uint8) for _ in range(2))
    for top in range(0, height, rows):
        count = min(rows, height - top)
        new = _new_rows(pixels, top, count)
        if 2 * len(new) > count:  # picking rows out costs more than converting those that repeat
            part = slice(top, top + count)
            yield _in_rgb(source[part], pixels[part], plain)
            continue
        # A row like the one above it is all zeros after the `up` filter: on many screens, most rows.
        block = lines[:count]
        block.fill(0)
        block[:, 0] = _FILTER_UP
        if len(new):
            block[new] = _in_rgb(source[top + new], pixels[top + new], plain)
        yield block


def _new_rows(pixels: NDArray[np.uint32], top: int, count: int) -> NDArray[np.intp]:
    """Which of the rows from `top` on differ from the row above, counted from `top`."""
    first = max(top, 1)
    differs = (pixels[first : top + count] != pixels[first - 1 : top + count - 1]).any(1)
    return np.flatnonzero(differs if top else np.concatenate([[True], differs]))


def _in_rgb(source: NDArray[np.uint8], pixels: NDArray[np.uint32], scratch: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """Rows in RGB, each with the filter that suits them; in `scratch`, or new."""
    count, width = pixels.shape
    plain = scratch[:count]
    plain[:, 0] = _FILTER_NONE
    rgb = np.ndarray((count, width, 3), np.uint8, plain.data, 1, (1 + width * 3, 3, 1))
    for channel in range(3):  # three plain strided copies beat any one call that reorders
        rgb[:, :, channel] = source[:, :, 2 - channel]
    return plain if _is_flat(pixels[::8]) else _filter_sub(plain)


def _is_flat(sample: NDArray[np.uint32]) -> bool:
    """Say whether at least half of the pixels equal their left neighbours; the unused byte does not count."""
    same = ((sample[:, 1:] ^ sample[:, :-1]) & 0xFFFFFF) == 0
    return bool(2 * np.count_nonzero(same) >= same.size)


def _filter_sub(plain: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """Return the rows with each pixel given as the difference to the one on its left."""
    filtered = np.empty_like(plain)
    filtered[:, 0] = _FILTER_SUB
    filtered[:, 1:4] = plain[:, 1:4]
    np.subtract(plain[:, 4:], plain[:, 1:-3], out=filtered[:, 4:])
    return filtered
