"""What one part of an evaluator came to."""

from __future__ import annotations

from deskroll.types import Record


class Verdict(Record, frozen=True):
    """A value with its reason."""

    value: float
    reason: str
