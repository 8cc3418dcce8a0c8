"""Notes: who owns each model server that deskroll started on this host; written before it is started.

<root>/models/                    the root is that of `host/runtime_folder.py`
  <id>/                           0700, one folder a server, gone when it is gone
    note.json
    http                          the unix socket that it listens on
    rpc/                          sockets of its processes among each other
    model/                        links to weights and to what was not written beside them (`folder.py`)
  logs/<id>.log                   what it printed; kept, the newest of them
"""

from __future__ import annotations

import logging
import secrets
import shutil
import time
from pathlib import Path

import msgspec

from deskroll.errors import ConfigError
from deskroll.host.owner import Owner
from deskroll.host.runtime_folder import LONGEST_SOCKET_PATH, runtime_root
from deskroll.types import Record

_log = logging.getLogger(__name__)
KEPT_LOGS = 40
_NOTE = "note.json"


class ServerNote(Record, frozen=True):
    """Who owns a server."""

    id: str
    """Its mark, too."""
    owner: Owner
    created_at: float
    model: str = ""
    """What it serves, for people."""

    def orphaned(self) -> bool:
        """Whether its owner is gone; where that cannot be seen from here, it is not."""
        return self.owner.alive() is False


class ServerNotes:
    """The notes under one root."""

    def __init__(self, root: Path | None = None) -> None:
        self.root = (root or runtime_root()) / "models"

    def folder(self, server_id: str) -> Path:
        """The folder of one server."""
        return self.root / server_id

    def socket(self, server_id: str) -> Path:
        """Where it listens."""
        return self.folder(server_id) / "http"

    def log(self, server_id: str) -> Path:
        """What it prints."""
        return self.root / "logs" / f"{server_id}.log"

    def open(self, model: str) -> ServerNote:
        """Note that a server of this process is about to be started."""
        server_id = secrets.token_hex(4)
        if len(str(self.socket(server_id))) > LONGEST_SOCKET_PATH:
            raise ConfigError(f"{self.root} is too long for sockets: set DESKROLL_RUNTIME_DIR to a shorter folder")
        note = ServerNote(id=server_id, owner=Owner.this_process(), created_at=time.time(), model=model)
        self.root.mkdir(mode=0o700, exist_ok=True)
        (self.root / "logs").mkdir(mode=0o700, exist_ok=True)
        # Made under another name and then renamed: there is never a folder without a note.
        part = self.root / f".{server_id}"
        (part / "rpc").mkdir(mode=0o700, parents=True)
        part.chmod(0o700)
        (part / _NOTE).write_bytes(msgspec.json.encode(note))
        part.rename(self.folder(server_id))
        self._drop_old_logs()
        return note

    def list(self) -> list[ServerNote]:
        """All notes, oldest first; what cannot be read is logged and left alone."""
        notes = []
        for folder in self.root.glob("[!.]*/"):
            try:
                notes.append(msgspec.json.decode((folder / _NOTE).read_bytes(), type=ServerNote))
            except FileNotFoundError:  # that of the logs, or closed at this moment
                continue
            except (msgspec.MsgspecError, OSError) as error:
                _log.warning("%s is not a note that can be read: %s; remove that folder", folder / _NOTE, error)
        return sorted(notes, key=lambda note: note.created_at)

    def close(self, server_id: str) -> None:
        """A server is gone; its log stays."""
        shutil.rmtree(self.folder(server_id), ignore_errors=True)

    def _drop_old_logs(self) -> None:
        logs = sorted((self.root / "logs").glob("*.log"), key=lambda path: path.stat().st_mtime)
        for path in logs[:-KEPT_LOGS]:
            if not self.folder(path.stem).exists():
                path.unlink(missing_ok=True)
