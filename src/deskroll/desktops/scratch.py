"""Folders for the sockets of one process, below the runtime root.

Guarantees: private to this user; what a killed process left is removed by whoever makes the next folder of its kind.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import tempfile
from pathlib import Path

from deskroll.desktops.notes import LONGEST_SOCKET_PATH, host_id, process_start, runtime_root


def scratch_folder(kind: str, longest: str) -> Path:
    """A folder named after this process; `longest` is the longest path of a socket that will be in it.

    Where the root is too long for a socket, it is in the temporary folder instead, and is not swept.
    """
    root = runtime_root()
    here = hashlib.sha256(host_id().encode()).hexdigest()[:8]
    for old in root.glob(f"{kind}-{here}-*-*-*"):
        pid, start = old.name.split("-")[2:4]
        if process_start(pid) != int(start):
            shutil.rmtree(old, ignore_errors=True)
    name = f"{kind}-{here}-{os.getpid()}-{process_start('self')}-"
    short = len(str(root / name)) + len(f"12345678/{longest}") <= LONGEST_SOCKET_PATH
    return Path(tempfile.mkdtemp(prefix=name, dir=root if short else None))
