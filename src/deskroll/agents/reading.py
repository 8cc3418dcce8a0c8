"""Reading: what a model's reply says, and what it does."""

from __future__ import annotations

from deskroll.actions import Action
from deskroll.types import Record


class Reading(Record, frozen=True):
    """A reply, read."""

    thought: str = ""
    actions: tuple[Action, ...] = ()
