"""Reading: what a model's reply says, and what it does."""

from __future__ import annotations

import msgspec

from deskroll.actions import Action


class Reading(msgspec.Struct, frozen=True, kw_only=True):
    """A reply, read."""

    thought: str = ""
    actions: tuple[Action, ...] = ()
