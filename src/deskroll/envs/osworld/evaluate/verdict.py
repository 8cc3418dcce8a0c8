"""What one part of an evaluator came to."""

from __future__ import annotations

from deskroll.types import Record


class Verdict(Record, frozen=True):
    """A value with its reason."""

    value: float
    reason: str
    found: str | None = None
    """What was judged, in brief; None where there was nothing."""
    expected: str | None = None
    """What it was compared with, in brief."""
