"""What local desktops keep on the host, in the folders that `desktops/notes.py` draws.

<root>/
  shims-<hash>/             read-only files that every desktop sees (shims.py)
  desktops/<id>/
    note.json               a `LocalNote`
    guest.sock              where its guest answers
    inside/                 home and session, only for a desktop without namespaces (else they are in memory)
"""

from __future__ import annotations

from pathlib import Path

from deskroll.desktops.notes import Note, NoteFolder
from deskroll.errors import BootError
from deskroll.host.runtime_folder import LONGEST_SOCKET_PATH, runtime_root

PROVIDER = "local"
INSIDE = "inside"
"""The part of a desktop's folder that the desktop itself may write to; only where it has no namespaces of its own."""


class LocalNote(Note, frozen=True, kw_only=True):
    """The note of a local desktop, with what has to be ended when its owner and its keeper cannot."""

    isolation: str
    cgroup: bool = False
    sandbox_pid: int = 0
    """Process 1 of its namespaces, as the host sees it; 0 until it runs."""
    sandbox_start: int = 0
    """Start time of that process in clock ticks."""
    keeper_pid: int = 0
    keeper_start: int = 0


def notebook() -> NoteFolder[LocalNote]:
    """The notes of this host, as local desktops write them."""
    return NoteFolder(runtime_root(), LocalNote)


def socket_path(desktop_id: str) -> Path:
    """Where the guest of a desktop will answer; `BootError` where no socket can be."""
    folder = notebook().folder(desktop_id)
    if len(str(socket_of(folder))) > LONGEST_SOCKET_PATH:
        raise BootError(f"{folder} is too long a path for a socket; set DESKROLL_RUNTIME_DIR to a shorter one")
    return socket_of(folder)


def socket_of(folder: Path) -> Path:
    """Where the guest of the desktop in that folder answers."""
    return folder / "guest.sock"
