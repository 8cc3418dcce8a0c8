"""NoteStore: where a provider keeps the notes of its desktops (`desktops/notes.py` says what a note is).

On this host they are files, `HostNotes`. Machines that are seen from several hosts keep them elsewhere, in their tags
for example: that is another class made from `NoteStore`, and nothing else of a provider changes.
"""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from typing import Any

from deskroll.desktops.notes import Note, NoteFolder
from deskroll.host.runtime_folder import runtime_root


class NoteStore(ABC):
    """The notes of one provider's desktops, of the kind that it writes."""

    async def add(self, note: Any) -> None:
        """Note a desktop that is about to be started; nothing to do where starting it writes the note (tags)."""

    @abstractmethod
    async def list(self) -> list[Any]:
        """Every note within reach, whoever the owner is, oldest first."""

    @abstractmethod
    async def write(self, note: Any) -> None:
        """Replace a note of ours."""

    @abstractmethod
    async def claim(self, note: Note) -> Any:
        """Become the owner of an orphan; None when it is somebody else's, who was faster, or gone."""

    @abstractmethod
    async def renew(self, desktop_id: str) -> None:
        """Put off the time at which a desktop of ours counts as an orphan."""

    async def remove(self, desktop_id: str) -> None:
        """Forget a desktop that is gone; nothing to do where its note went with it."""


class HostNotes(NoteStore):
    """Notes in files of this host."""

    def __init__(self, provider: str, kind: type[Note]) -> None:
        self._provider = provider
        self._kind = kind

    @property
    def notebook(self) -> NoteFolder[Any]:
        """The files."""
        return NoteFolder(runtime_root(), self._kind)

    async def add(self, note: Any) -> None:
        """See `NoteStore`."""
        self.notebook.open(note)

    async def list(self) -> list[Any]:
        """See `NoteStore`; what was never started is tidied away."""
        notebook = self.notebook
        await asyncio.to_thread(notebook.tidy)
        return await asyncio.to_thread(notebook.list, self._provider)

    async def write(self, note: Any) -> None:
        """See `NoteStore`."""
        self.notebook.write(note)

    async def claim(self, note: Note) -> Any:
        """See `NoteStore`."""
        return await asyncio.to_thread(self.notebook.claim, note)

    async def renew(self, desktop_id: str) -> None:
        """See `NoteStore`."""
        await asyncio.to_thread(self.notebook.renew, desktop_id)

    async def remove(self, desktop_id: str) -> None:
        """See `NoteStore`."""
        self.notebook.close(desktop_id)
