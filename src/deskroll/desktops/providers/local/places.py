"""Where on the host the files of local desktops lie, and which desktops there are.

    <root>/                     0711, owned by the user that runs deskroll
      shims-<hash>/             read-only files that every desktop sees (shims.py)
      desktops/<id>/            0700, one folder a desktop, gone when it is gone
        note.json               who started it: written first
        guest.sock              where its guest answers
        inside/                 home and session, only for a desktop without namespaces (else they are in memory)

The root is `$DESKROLL_RUNTIME_DIR`, else `/run/deskroll` for root, else a folder of the user's in `$XDG_RUNTIME_DIR`
or the temporary folder. A folder that somebody else owns is refused.
"""

from __future__ import annotations

import os
import tempfile
import time
from pathlib import Path

import msgspec

from deskroll.errors import BootError
from deskroll.types import Record

_LONGEST_SOCKET_PATH = 107
INSIDE = "inside"
"""The part of a desktop's folder that the desktop itself may write to; only where it has no namespaces of its own."""


class Note(Record, frozen=True):
    """Who started a desktop, on file before it starts."""

    id: str
    owner_pid: int
    owner_start: int
    """Start time of the owner in clock ticks, so that another process with the same pid is not taken for it."""
    created_at: float
    width: int
    height: int
    isolation: str
    cgroup: bool = False
    sandbox_pid: int = 0
    """Process 1 of its namespaces, as the host sees it; 0 until it runs."""


def runtime_root() -> Path:
    """The root of everything that local desktops keep on this host; made when missing."""
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


def desktop_folder(root: Path, desktop_id: str) -> Path:
    """The folder of one desktop."""
    return root / "desktops" / desktop_id


def make_desktop_folder(root: Path, note: Note) -> Path:
    """Make the folder of a desktop with its note in it."""
    folder = desktop_folder(root, note.id)
    if len(str(folder / "guest.sock")) > _LONGEST_SOCKET_PATH:
        raise BootError(f"{folder} is too long a path for a socket; set DESKROLL_RUNTIME_DIR to a shorter one")
    folder.parent.mkdir(mode=0o711, exist_ok=True)
    folder.parent.chmod(0o711)
    folder.mkdir(mode=0o700)
    write_note(folder, note)
    return folder


def write_note(folder: Path, note: Note) -> None:
    """Write or replace a desktop's note, never half of it."""
    part = folder / "note.part"
    part.write_bytes(msgspec.json.encode(note))
    part.replace(folder / "note.json")


def process_start(pid: int | str) -> int:
    """Start time of a process in clock ticks since boot, 0 when it is gone."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return 0
    return int(stat.rpartition(")")[2].split()[19])


def new_note(desktop_id: str, width: int, height: int, isolation: str) -> Note:
    """The note of a desktop that this process is about to start."""
    return Note(
        id=desktop_id,
        owner_pid=os.getpid(),
        owner_start=process_start("self"),
        created_at=time.time(),
        width=width,
        height=height,
        isolation=isolation,
    )


def list_notes(root: Path) -> list[Note]:
    """The notes of all desktops under `root`, oldest first. A folder that vanishes meanwhile is left out."""
    notes = []
    for file in (root / "desktops").glob("*/note.json"):
        try:
            notes.append(msgspec.json.decode(file.read_bytes(), type=Note))
        except FileNotFoundError:
            continue
        except msgspec.MsgspecError as error:
            raise BootError(f"{file} is no note of a desktop: {error}; remove that folder") from error
    return sorted(notes, key=lambda note: note.created_at)


def owner_alive(note: Note) -> bool:
    """Whether the process that started the desktop still runs."""
    return process_start(note.owner_pid) == note.owner_start
