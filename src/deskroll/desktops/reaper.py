"""The reaper: finds desktops whose owner is gone, and nothing else.

Every desktop is noted with its owner before it starts (`notes.py`). A pool takes over or removes what it finds at its
start; `reap` removes what there is without one.
"""

from __future__ import annotations

from deskroll.desktops.notes import Note
from deskroll.desktops.providers.base import Provider
from deskroll.errors import DesktopError
from deskroll.types import Record


async def orphans(provider: Provider) -> list[Note]:
    """Desktops of this provider's kind whose owner is gone."""
    return [note for note in await provider.notes() if note.orphaned()]


class Reaped(Record, frozen=True, omit_defaults=False):
    """What became of one orphan."""

    note: Note
    error: str = ""
    """Why it could not be removed; empty: it was."""


async def reap(provider: Provider) -> list[Reaped]:
    """Remove every orphan; one that cannot be removed keeps nobody from the others."""
    outcomes = []
    for note in await orphans(provider):
        try:
            await provider.remove(note)
        except DesktopError as error:
            outcomes.append(Reaped(note=note, error=str(error)))
        else:
            outcomes.append(Reaped(note=note))
    return outcomes
