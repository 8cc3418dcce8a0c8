"""The reaper: finds desktops whose owner is gone, and nothing else.

Every desktop is noted with its owner before it starts (`notes.py`). A pool takes over or removes what it finds at its
start; `reap` removes what there is without one.
"""

from __future__ import annotations

from deskroll.desktops.base import Provider
from deskroll.desktops.notes import Note


async def orphans(provider: Provider) -> list[Note]:
    """Desktops of this provider's kind whose owner is gone."""
    return [note for note in await provider.notes() if note.orphaned()]


async def reap(provider: Provider) -> list[Note]:
    """Remove every orphan and return their notes."""
    found = await orphans(provider)
    for note in found:
        await provider.remove(note)
    return found
