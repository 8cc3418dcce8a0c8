"""Unpacking of what servers compress, within a limit: of a bomb, the first so many bytes are seen and no more."""

from __future__ import annotations

import zlib

from deskroll.envs.web.errors import PageError
from deskroll.errors import plain

ACCEPTED = "gzip, deflate"
"""What to tell servers; everything else has no unpacker here that can be bounded."""
MOST_MEMBERS = 1_000
"""Parts that a gzip stream may have; each of them costs, however little is in it."""
_GZIP_OR_ZLIB = 47
_GZIP = b"\x1f\x8b"


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
        self._members = 1
        self._beyond = b""
        """What came after the end of the stream, as far as it may be the beginning of its next part."""
        self._over = False

    @property
    def full(self) -> bool:
        """Whether the limit is reached, or nothing that follows belongs to the page: more need not be read."""
        return len(self._kept) >= self._most or self._over

    @property
    def ended(self) -> bool:
        """Whether the packed stream came to its own end; True where nothing is packed."""
        return not self._packed or not self._begun or self._stream.eof

    def feed(self, piece: bytes) -> None:
        """Take the next piece."""
        if not self._packed:
            self._keep(piece)
            return
        while piece and not self.full:
            if self._stream.eof:
                piece = self._next_member(self._beyond + piece)
            else:
                self._keep(self._unpacked(piece, self._most - len(self._kept)))
                piece = self._stream.unused_data

    def unpacked(self) -> bytes:
        """What was unpacked so far."""
        return bytes(self._kept)

    def _keep(self, data: bytes) -> None:
        self._kept += data[: self._most - len(self._kept)]

    def _next_member(self, data: bytes) -> bytes:
        """Begin the next part of a stream of several, and return what is to be unpacked; anything else is the end."""
        self._beyond = b""
        if self._deflate or not (data.startswith(_GZIP) or data == _GZIP[:1]):
            self._over = True
            return b""
        if len(data) == 1:
            self._beyond = data
            return b""
        self._members += 1
        if self._members > MOST_MEMBERS:
            raise PageError(f"it is packed in more than {MOST_MEMBERS} parts")
        self._stream = zlib.decompressobj(_GZIP_OR_ZLIB)
        return data

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
