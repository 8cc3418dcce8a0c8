"""PNG of a picture made of square cells: 4 bits a pixel, a palette of 16 colours.

A picture is a column of bands, one for each row of cells. Within a band all lines of pixels are equal, so with PNG's
filter Up all but the first are zeros. Bands are deflated each for itself and kept, so that a change of one cell costs
the bands that it touches and not the whole picture.
"""

from __future__ import annotations

import functools
import struct
import zlib

CELL = 16
"""Pixels of a cell's side."""
_ADLER = 65521
_PALETTE = bytes.fromhex(
    "2e3440 bf616a a3be8c ebcb8b 5e81ac b48ead 88c0d0 e5e9f0 4c566a d08770 8fbcbb f0d9a8 81a1c1 c9a2c6 a9d8e6 ffffff"
)
# What a cell's bytes (two pixels each) differ by from those of the cell above, by both their colours.
_DIFFERENCE = [[bytes([(here - above) * 17 & 255]) * (CELL // 2) for here in range(16)] for above in range(16)]


def encode(rows: list[bytes], width: int, height: int) -> bytes:
    """The picture whose rows of cells have these colours (0 to 15, one byte a cell)."""
    above, left, bands, adler = bytes(len(rows[0])), height, [], 1
    for row in rows:
        lines = min(CELL, left)
        band, its_adler = _band(above, row, width, lines)
        bands.append(band)
        adler = _combine(adler, its_adler, lines * ((width + 1) // 2 + 1))
        above, left = row, left - lines
    # A zlib stream: header, the bands, an empty last block, checksum.
    data = b"".join((b"\x78\x01", *bands, b"\x03\x00", struct.pack(">I", adler)))
    head = struct.pack(">IIBBBBB", width, height, 4, 3, 0, 0, 0)
    parts = (_chunk(b"IHDR", head), _chunk(b"PLTE", _PALETTE), _chunk(b"IDAT", data), _chunk(b"IEND", b""))
    return b"\x89PNG\r\n\x1a\n" + b"".join(parts)


@functools.lru_cache(maxsize=8192)
def _band(above: bytes, row: bytes, width: int, lines: int) -> tuple[bytes, int]:
    """The deflated lines of one row of cells, and the checksum of what they were."""
    size = (width + 1) // 2
    first = b"".join([_DIFFERENCE[a][b] for a, b in zip(above, row, strict=True)])[:size]
    raw = b"\x02" + first + (b"\x02" + bytes(size)) * (lines - 1)
    deflate = zlib.compressobj(1, zlib.DEFLATED, -15)
    # A full flush ends on a byte and refers to nothing before it: such pieces can be put together in any order.
    return deflate.compress(raw) + deflate.flush(zlib.Z_FULL_FLUSH), zlib.adler32(raw)


def _combine(one: int, two: int, size: int) -> int:
    """The Adler-32 of two pieces of data from those of each; `size` is that of the second."""
    low, low_two = one & 0xFFFF, two & 0xFFFF
    high = ((one >> 16) + (two >> 16) + size * (low - 1)) % _ADLER
    return high << 16 | (low + low_two - 1) % _ADLER


def _chunk(kind: bytes, data: bytes) -> bytes:
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
