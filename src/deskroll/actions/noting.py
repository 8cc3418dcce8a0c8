"""Notes: where the action that is performed is not quite what the model wrote.

Whoever reads actions leaves them (`note`), whoever keeps the step collects them (`noting`); elsewhere they are dropped.
Guarantees: a collector holds the notes of its own block alone, each once, few and short whatever a model writes.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

from deskroll.errors import plain

MOST = 20
"""Notes that one block may leave."""
_LONGEST = 200
_collected: ContextVar[list[str] | None] = ContextVar("notes_on_actions", default=None)


def note(text: str) -> None:
    """Leave a note with whoever collects them."""
    notes, text = _collected.get(), plain(text, _LONGEST)
    if notes is not None and text not in notes and len(notes) < MOST:
        notes.append(text)


@contextmanager
def noting() -> Iterator[list[str]]:
    """Collect what is noted in the block."""
    notes: list[str] = []
    token = _collected.set(notes)
    try:
        yield notes
    finally:
        _collected.reset(token)
