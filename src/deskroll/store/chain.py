"""The chain: each line of a journal ends in the CRC-32 of everything that stands before that number in the file.

    {"type":"started",…,"crc":"0a1b2c3d"}

So the last line vouches for the whole file, by one pass over its bytes: whatever was changed, lost, doubled or put
between is seen, and walking along the lines shows where. Lines without the number are of an older form; they stand
before all others.
"""

from __future__ import annotations

from binascii import crc32

_FIELD = b',"crc":"'
_END = b'"}'
_LONG = len(_FIELD) + 8 + len(_END)
_DIGITS = slice(len(_FIELD) - _LONG, -len(_END))
START = 0
"""The state before the first line: the CRC-32 of nothing."""


def state_after(data: bytes, state: int = START) -> int:
    """The state after more bytes."""
    return crc32(data, state)


def linked(line: bytes, state: int) -> bytes:
    """A line without its number (newline included), with it."""
    body = line[:-2]
    return b"%b%b%08x%b\n" % (body, _FIELD, crc32(body, state), _END)


def is_linked(line: bytes) -> bool:
    """Whether a line (without its newline) has a number, right or wrong."""
    return line[-_LONG : 8 - _LONG] == _FIELD and line.endswith(_END)


def follow(data: bytes | bytearray, state: int = START) -> int | None:
    """The state after whole lines; None where they are not as they were written, by the number of the last one."""
    view = memoryview(data)[:-1]
    tail = bytes(view[-_LONG:])
    if not data.endswith(b"\n") or not is_linked(tail):
        return None
    found = crc32(view[:-_LONG], state)
    return crc32(tail + b"\n", found) if tail[_DIGITS] == b"%08x" % found else None


def holds(data: bytes | bytearray, state: int = START) -> bool:
    """Whether whole lines are as they were written."""
    return follow(data, state) is not None


def claimed_state(line: bytes) -> int | None:
    """The state after a line and its newline, if the number of that line is right; None where it has none."""
    if not is_linked(line):
        return None
    try:
        return crc32(line[-_LONG:] + b"\n", int(line[_DIGITS], 16))
    except ValueError:
        return None


class Chain:
    """The chain of one journal, as its writer goes on with it."""

    def __init__(self, before: bytes) -> None:
        self._state = crc32(before)

    def link(self, line: bytes) -> bytes:
        """The next line, with its number."""
        whole = linked(line, self._state)
        self._state = crc32(whole, self._state)
        return whole
