"""What a zygote tells whoever holds it, over a sequenced-packet socket.

A request is a message for the fork, with the descriptors that it gets; its first byte says how many those are.
"""

from __future__ import annotations

from deskroll.types import Record

READY = b"ready"
"""The first word: everything is imported."""


class Forked(Record, frozen=True, tag="forked"):
    """A fork was made for the oldest request without an answer."""

    pid: int


class Refused(Record, frozen=True, tag="refused"):
    """No fork could be made for the oldest request without an answer."""

    message: str


class Ended(Record, frozen=True, tag="ended"):
    """A fork has ended; `code` as `subprocess` has it: negative for a signal."""

    pid: int
    code: int


Told = Forked | Refused | Ended
