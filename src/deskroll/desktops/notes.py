"""Notes: who owns each desktop that deskroll started on this host, and until when.

    <root>/                     0711, owned by the user that runs deskroll
      desktops/<id>/            0700, one folder a desktop, gone when it is gone
        note.json               written before the desktop is started, renewed by its owner

The root is that of `host/runtime_folder.py`.

A desktop is an orphan when the process that owns it is gone; where that cannot be seen (another host, another pid
namespace), when its note has run out: by the clock of this boot where the owner has the same one, by the wall's
elsewhere. Only orphans may be taken over or removed, by nobody but one.
"""

from __future__ import annotations

import contextlib
import fcntl
import logging
import shutil
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Generic, TypeVar

import msgspec

from deskroll.clocks import boot_time
from deskroll.errors import BootError
from deskroll.host.owner import Owner
from deskroll.types import Record

_log = logging.getLogger(__name__)
TTL_S = 120.0
"""For how long a note holds where its owner cannot be seen."""
RENEW_S = 30.0
RENEWAL = "the renewal of desktops' notes"
"""What that is called where it is supervised."""


class Note(Record, frozen=True):
    """Who owns a desktop: noted before it starts."""

    id: str
    provider: str
    owner: Owner
    created_at: float
    expires_at: float
    """By the wall's clock, which is all that two hosts have in common."""
    width: int
    height: int
    endpoint: str = ""
    """Where it answers, or will."""
    expires_boot: float | None = None
    """By the clock of the owner's boot, which no step of the wall's changes."""

    def orphaned(self) -> bool:
        """Whether the owner is gone for good."""
        alive = self.owner.alive()
        if alive is not None:
            return not alive
        if self.expires_boot is not None and self.owner.is_of_this_boot:
            return boot_time() > self.expires_boot
        return time.time() > self.expires_at


N = TypeVar("N", bound=Note)


def renewed(note: N, owner: Owner | None = None) -> N:
    """A note that holds from now on for as long as any does; `owner`: that of somebody else."""
    ends = {"expires_at": time.time() + TTL_S, "expires_boot": boot_time() + TTL_S}
    return msgspec.structs.replace(note, owner=owner or note.owner, **ends)


class NoteFolder(Generic[N]):
    """The notes under one root, read as `kind`."""

    def __init__(self, root: Path, kind: type[N]) -> None:
        self.root = root
        self._kind = kind

    def folder(self, desktop_id: str) -> Path:
        """The folder of one desktop."""
        return self.root / "desktops" / desktop_id

    def open(self, note: N) -> Path:
        """Make the folder of a desktop that is about to be started, with its note in it."""
        folder = self.folder(note.id)
        folder.parent.mkdir(mode=0o711, exist_ok=True)
        folder.parent.chmod(0o711)
        # Made under another name and then renamed: there is never a folder without a note.
        part = folder.with_name(f".{note.id}")
        with self._lock():
            part.mkdir(mode=0o700)
            (part / "note.json").write_bytes(msgspec.json.encode(note))
            part.rename(folder)
        return folder

    def write(self, note: N) -> None:
        """Replace a desktop's note, never half of it."""
        with self._lock():
            self._write(note)

    def _write(self, note: N) -> None:
        folder = self.folder(note.id)
        part = folder / "note.part"
        part.write_bytes(msgspec.json.encode(note))
        part.replace(folder / "note.json")

    def read(self, desktop_id: str) -> N | None:
        """A desktop's note, None when it has none."""
        file = self.folder(desktop_id) / "note.json"
        try:
            return msgspec.json.decode(file.read_bytes(), type=self._kind)
        except FileNotFoundError:
            return None
        except msgspec.MsgspecError as error:
            raise BootError(f"{file} is not a note that can be read: {error}; remove that folder") from error

    def list(self, provider: str = "") -> list[N]:
        """All notes, or those of one provider, oldest first. What cannot be read is logged and left out."""
        notes = []
        for folder in (self.root / "desktops").glob("[!.]*/"):
            try:
                base = NoteFolder(self.root, Note).read(folder.name)
                note = self.read(folder.name) if base and provider in ("", base.provider) else None
            except BootError as error:
                _log.warning("%s", error)
                continue
            if note is not None:
                notes.append(note)
        return sorted(notes, key=lambda note: note.created_at)

    def tidy(self) -> None:
        """Remove folders of desktops that were never started: whoever made them was killed within a moment."""
        with self._lock():  # whoever makes one now has the lock
            for part in (self.root / "desktops").glob(".*/"):
                shutil.rmtree(part, ignore_errors=True)

    def renew(self, desktop_id: str) -> None:
        """Put off the time at which a desktop of ours counts as an orphan."""
        with self._lock(), contextlib.suppress(FileNotFoundError):  # it may be stopped at this very moment
            note = self.read(desktop_id)
            if note is not None and note.owner == Owner.this_process():
                self._write(renewed(note))

    def claim(self, note: N) -> N | None:
        """Become the owner of an orphan, or stay it; None when it is somebody else's, who was faster, or gone."""
        with self._lock():
            now = self.read(note.id)
            if now is None or not (now.orphaned() or now.owner == Owner.this_process()):
                return None
            ours = renewed(now, Owner.this_process())
            self._write(ours)
            return ours

    def close(self, desktop_id: str) -> None:
        """Remove a desktop's folder, note and all."""
        with self._lock():  # a renewal would put its note back while the folder is emptied
            shutil.rmtree(self.folder(desktop_id), ignore_errors=True)

    @contextmanager
    def _lock(self) -> Iterator[None]:
        with (self.root / "notes.lock").open("w") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            yield
