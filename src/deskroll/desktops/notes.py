"""Notes: who owns each desktop that deskroll started on this host, and until when.

    <root>/                     0711, owned by the user that runs deskroll
      desktops/<id>/            0700, one folder a desktop, gone when it is gone
        note.json               written before the desktop is started, renewed by its owner

The root is `$DESKROLL_RUNTIME_DIR`, else `/run/deskroll` for root, else a folder of the user's in `$XDG_RUNTIME_DIR`
or the temporary folder. A folder that somebody else owns is refused.

A desktop is an orphan when the process that owns it is gone; where that cannot be seen (another host, another pid
namespace), when its note has run out. Only orphans may be taken over or removed, by nobody but one.
"""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import functools
import os
import shutil
import tempfile
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Generic, TypeVar

import msgspec

from deskroll.errors import BootError
from deskroll.types import Record

TTL_S = 120.0
"""For how long a note holds where its owner cannot be seen."""
RENEW_S = 30.0


class Owner(Record, frozen=True):
    """A process, such that no other process is ever taken for it."""

    host: str
    """The kernel's boot and the pid namespace: within one such, pids can be compared."""
    pid: int
    start: int
    """Start time in clock ticks, since pids are used again."""

    @classmethod
    def this_process(cls) -> Owner:
        """Who we are."""
        return cls(host=host_id(), pid=os.getpid(), start=process_start("self"))

    def alive(self) -> bool | None:
        """Whether the process runs; None where that cannot be seen from here."""
        if self.host != host_id():
            return None
        return process_start(self.pid) == self.start


class Note(Record, frozen=True):
    """Who owns a desktop: noted before it starts."""

    id: str
    provider: str
    owner: Owner
    created_at: float
    expires_at: float
    width: int
    height: int
    endpoint: str = ""
    """Where it answers, or will."""

    def orphaned(self) -> bool:
        """Whether the owner is gone for good."""
        alive = self.owner.alive()
        return time.time() > self.expires_at if alive is None else not alive


N = TypeVar("N", bound=Note)


@functools.cache
def boot_id() -> str:
    """Names this boot of this host."""
    return Path("/proc/sys/kernel/random/boot_id").read_text().strip()


@functools.cache
def host_id() -> str:
    """Names this boot of this host and our pid namespace."""
    return f"{boot_id()}/{Path('/proc/self/ns/pid').readlink()}"


def process_start(pid: int | str) -> int:
    """Start time of a process in clock ticks since boot, 0 when it is gone."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return 0
    return int(stat.rpartition(")")[2].split()[19])


def runtime_root() -> Path:
    """The root of everything that desktops keep on this host; made when missing."""
    root = Path(os.environ.get("DESKROLL_RUNTIME_DIR") or _default_root()).resolve()
    try:
        root.mkdir(mode=0o711, parents=True, exist_ok=True)
        owner = root.stat().st_uid
        if owner == os.getuid():
            root.chmod(0o711)  # whatever the umask is: where root starts desktops, they are other users
    except OSError as error:
        raise BootError(f"cannot make {root}: {error}; set DESKROLL_RUNTIME_DIR to a folder of yours") from error
    if owner != os.getuid():
        raise BootError(
            f"{root} belongs to user {owner}, not to you ({os.getuid()}); set DESKROLL_RUNTIME_DIR to a folder of yours"
        )
    return root


def _default_root() -> Path:
    if os.getuid() == 0:
        return Path("/run/deskroll")
    base = os.environ.get("XDG_RUNTIME_DIR")
    return Path(base, "deskroll") if base else Path(tempfile.gettempdir(), f"deskroll-{os.getuid()}")


class Notebook(Generic[N]):
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
        part.mkdir(mode=0o700)
        (part / "note.json").write_bytes(msgspec.json.encode(note))
        part.rename(folder)
        return folder

    def write(self, note: N) -> None:
        """Replace a desktop's note, never half of it."""
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
            raise BootError(f"{file} is no note of a desktop: {error}; remove that folder") from error

    def list(self, provider: str = "") -> list[N]:
        """All notes, or those of one provider, oldest first. A folder that vanishes meanwhile is left out."""
        notes = []
        for folder in (self.root / "desktops").glob("[!.]*"):
            base = Notebook(self.root, Note).read(folder.name) if provider else None
            if provider and (base is None or base.provider != provider):
                continue
            note = self.read(folder.name)
            if note is not None:
                notes.append(note)
        return sorted(notes, key=lambda note: note.created_at)

    def renew(self, desktop_id: str) -> None:
        """Put off the time at which a desktop of ours counts as an orphan."""
        with self._locked(), contextlib.suppress(FileNotFoundError):  # it may be stopped at this very moment
            note = self.read(desktop_id)
            if note is not None and note.owner == Owner.this_process():
                self.write(msgspec.structs.replace(note, expires_at=time.time() + TTL_S))

    def claim(self, note: N) -> N | None:
        """Become the owner of an orphan; None when it is none any more, or somebody else was faster."""
        with self._locked():
            now = self.read(note.id)
            if now is None or not now.orphaned():
                return None
            ours = msgspec.structs.replace(now, owner=Owner.this_process(), expires_at=time.time() + TTL_S)
            self.write(ours)
            return ours

    def close(self, desktop_id: str) -> None:
        """Remove a desktop's folder, note and all."""
        shutil.rmtree(self.folder(desktop_id), ignore_errors=True)

    @contextmanager
    def _locked(self) -> Iterator[None]:
        with (self.root / "notes.lock").open("w") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            yield


async def keep_renewing(notebook: Notebook[N], desktop_ids: Iterable[str]) -> None:
    """Renew the notes of those desktops that `desktop_ids` holds at the time, until cancelled."""
    while True:
        await asyncio.sleep(RENEW_S)
        for desktop_id in list(desktop_ids):
            await asyncio.to_thread(notebook.renew, desktop_id)
