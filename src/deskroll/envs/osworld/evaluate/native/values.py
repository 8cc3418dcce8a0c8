"""What native getters hand to native metrics, and how they say that there is nothing to judge."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from deskroll.types import Record


class File(Record, frozen=True):
    """A file, as it was when it was fetched."""

    name: str
    """Its last name: the ending says what it is."""
    data: bytes

    def text(self) -> str:
        """As text, with line ends as Python reads them; `Unreadable` where it is none."""
        try:
            return self.data.decode("utf-8").replace("\r\n", "\n").replace("\r", "\n")
        except UnicodeDecodeError as error:
            raise Unreadable(f"{self.name} is no UTF-8 text: {error.reason} at byte {error.start}") from None


class Unreadable(ValueError):
    """A document is not what its name says, or too large to be looked at."""


class NotComparable(ValueError):
    """A metric was given something that it does not compare: the task's own mistake."""


def file_of(given: object, what: str) -> File:
    """A getter's value, which must be a file."""
    if not isinstance(given, File):
        raise NotComparable(f"evaluator.{what} must give a file")
    return given


def rules_of(expected: object) -> Mapping[str, Any]:
    """The rules of a task."""
    if not isinstance(expected, Mapping):
        raise NotComparable("evaluator.expected must be of type rule, with rules")
    return expected
