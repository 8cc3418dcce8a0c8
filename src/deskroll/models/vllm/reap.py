"""Reap: end what a dead owner left of its model servers, and so free the memory that they hold.

Guarantees: only servers with a note whose owner is known to be gone, and of these only processes with the server's
mark. A server whose owner lives, or cannot be seen from here, is left alone.
"""

from __future__ import annotations

import time

from deskroll.models.vllm.family import end_family, family
from deskroll.models.vllm.notes import ServerNotes
from deskroll.types import Record


class Reaped(Record, frozen=True):
    """A server whose owner was gone."""

    id: str
    model: str
    age_s: float
    """Since it was started."""
    pids: tuple[int, ...] = ()
    """Its processes that were still there."""


async def reap_servers(notes: ServerNotes, *, dry_run: bool = False) -> list[Reaped]:
    """End all such servers; `dry_run`: only say which."""
    reaped = []
    for note in notes.list():
        if not note.orphaned():
            continue
        pids = family(note.id) if dry_run else await end_family(note.id)
        if not dry_run:
            notes.close(note.id)
        age = time.time() - note.created_at
        reaped.append(Reaped(id=note.id, model=note.model, age_s=age, pids=tuple(sorted(pids))))
    return reaped
