"""Unpacking of what servers compress, within a limit: of a bomb, the first so many bytes are seen and no more."""

from __future__ import annotations

import zlib

from deskroll.envs.web.errors import PageError
from deskroll.errors import plain

ACCEPTED = "gzip, deflate"
"""What to tell servers; everything else has no unpacker here that can be bounded."""
_GZIP_OR_ZLIB = 47


class Unpacker:
    """Takes a body piece by piece and keeps at most `most` bytes of what it unpacks to."""

    def __init__(self, encoding: str, most: int) -> None:
        name = encoding.strip().lower()
        if name not in ("", "identity", "gzip", "x-gzip", "deflate"):
            raise PageError(f"it is packed as {plain(name, 40)!r}; allowed: {ACCEPTED}, each by itself")
        self._most = most
        self._kept = bytearray()
        self._packed = name not in ("", "identity")
        self._deflate = name == "deflate"
        self._stream = zlib.decompressobj(_GZIP_OR_ZLIB)
        self._begun = False

    @property
    def full(self) -> bool:
        """Whether the limit is reached, or the packed stream has ended: more need not be read."""
        return len(self._kept) >= self._most or (self._packed and self._stream.eof)

    @property
    def ended(self) -> bool:
        """Whether the packed stream came to its own end; True where nothing is packed."""
        return not self._packed or not self._begun or self._stream.eof

    def feed(self, piece: bytes) -> None:
        """Take the next piece."""
        room = self._most - len(self._kept)
        if room <= 0:
            return
        self._kept += self._unpacked(piece, room)[:room] if self._packed else piece[:room]

    def unpacked(self) -> bytes:
        """What was unpacked so far."""
        return bytes(self._kept)

    def _unpacked(self, piece: bytes, room: int) -> bytes:
        try:
            unpacked = self._stream.decompress(piece, room)
        except zlib.error:
            if not self._deflate or self._begun:
                raise PageError("it is packed in a broken way") from None
            # Some servers send deflate without zlib's frame.
            self._stream = zlib.decompressobj(-zlib.MAX_WBITS)
            self._begun = True
            return self._unpacked(piece, room)
        self._begun = True
        return unpacked
