"""What native getters hand to native metrics, and how they say that there is nothing to judge."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from deskroll.types import Record

Config = Mapping[str, Any]
"""What a task says of a getter, or of what is expected."""


class File(Record, frozen=True):
    """A file, as it was when it was fetched."""

    name: str
    """Its last name: the ending says what it is."""
    data: bytes

    def text(self) -> str:
        """As text; what is not UTF-8 in it is replaced."""
        return self.data.decode(errors="replace")


class Unreadable(ValueError):
    """A document is not what its name says, or too large to be looked at."""
