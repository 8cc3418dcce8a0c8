"""What one process makes outside of its own memory: folders for its sockets, and names that tell whose something is.

Guarantees: folders are private to this user; what carries the mark of a process that is gone is known as left behind,
whoever has its number by now, and `sweep_folders` removes such folders.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import shutil
import tempfile
from pathlib import Path

from deskroll.desktops.notes import LONGEST_SOCKET_PATH, host_id, process_start, runtime_root

_KINDS = ("sim", "evaluator")


def owner_mark() -> str:
    """Names this process such that no other is ever taken for it; three words with dashes between them."""
    return f"{_here()}-{os.getpid()}-{process_start('self')}"


def is_left(mark: str) -> bool:
    """Whether this is the mark of a process of this host that is gone."""
    here, _, process = mark.partition("-")
    pid, _, start = process.partition("-")
    return here == _here() and pid.isdigit() and start.isdigit() and process_start(pid) != int(start)


def _here() -> str:
    return hashlib.sha256(host_id().encode()).hexdigest()[:8]


def scratch_folder(kind: str, longest: str) -> Path:
    """A folder of this process; `longest` is the longest path of a socket that will be in it.

    Where the root is too long for a socket, it is in the temporary folder instead.
    """
    if kind not in _KINDS:
        raise ValueError(f"{kind!r} is no kind of folder that is swept")
    sweep_folders()
    root, name = runtime_root(), f"{kind}-{owner_mark()}-"
    short = len(str(root / name)) + len(f"12345678/{longest}") <= LONGEST_SOCKET_PATH
    return Path(tempfile.mkdtemp(prefix=name, dir=root if short else None))


def sweep_folders() -> None:
    """Remove the folders of processes that are gone."""
    for root in (runtime_root(), Path(tempfile.gettempdir())):
        for kind in _KINDS:
            for path in root.glob(f"{kind}-{_here()}-*-*-*"):
                mark = path.name.removeprefix(f"{kind}-").rpartition("-")[0]
                with contextlib.suppress(FileNotFoundError):  # somebody else sweeps, too
                    if is_left(mark) and path.lstat().st_uid == os.getuid():
                        shutil.rmtree(path, ignore_errors=True)
