"""Tracker: where else the numbers of a training run go, beside its own folder.

Its methods may block: each tracker has a thread of its own (`tracking.py`). Whatever it raises costs its numbers, and
nothing of the run.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

from deskroll.types import Record


class Tracked(Record, frozen=True):
    """The run that is tracked."""

    name: str
    id: str
    """The same after a resume, and no other run's."""
    folder: str
    step: int
    """How many steps were taken before: what was told of later ones no longer holds."""
    settings: dict[str, Any]
    """Of the training run, with secrets masked."""


class Tracker(Protocol):
    """One place that numbers go to."""

    def open(self, run: Tracked) -> None:
        """Begin, or go on with a run that was tracked before."""

    def log(self, step: int, values: Mapping[str, float]) -> None:
        """Take numbers of a step, by their names."""

    def close(self) -> None:
        """Send what is left."""
