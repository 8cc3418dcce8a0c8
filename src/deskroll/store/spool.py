"""Spool: where an attempt is written on this machine before it is uploaded to an object store.

Each is a folder in the machine's temporary folder, locked (`flock`) by the process that writes it: the lock is gone
with the process, however it ends and whatever pid namespace it was in. `sweep` removes those that nobody holds. What
could not be uploaded is given another name, and nobody but people removes it.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import tempfile
from pathlib import Path

_NAME = "deskroll-attempt-"
_NEW = "deskroll-new-"
_KEPT = "deskroll-kept-"
_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


class Spool:
    """One folder, until it is removed or kept."""

    def __init__(self) -> None:
        # It gets the name that a sweep looks for once it is locked.
        made = tempfile.mkdtemp(prefix=f"{_NEW}{os.getpid()}-")
        self._fd = os.open(made, _FOLDER)
        fcntl.flock(self._fd, fcntl.LOCK_EX)
        self.folder = made
        self._rename(_NEW, _NAME)

    def remove(self) -> None:
        """Its content is elsewhere."""
        shutil.rmtree(self.folder, ignore_errors=True)
        os.close(self._fd)

    def keep(self) -> str:
        """Its content is nowhere else: it stays, and this is where."""
        self._rename(_NAME, _KEPT)
        os.close(self._fd)
        return self.folder

    def _rename(self, old: str, new: str) -> None:
        above, _, name = self.folder.rpartition("/")
        renamed = f"{above}/{new}{name.removeprefix(old)}"
        os.rename(self.folder, renamed)  # noqa: PTH104
        self.folder = renamed


def sweep() -> None:
    """Remove the folders of processes that were killed."""
    for path in Path(tempfile.gettempdir()).glob(f"{_NAME}*"):
        with contextlib.suppress(OSError):  # gone meanwhile, held by a live process, or another user's
            fd = os.open(path, _FOLDER)
            try:
                if os.fstat(fd).st_uid == os.getuid():
                    fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    shutil.rmtree(path, ignore_errors=True)
            finally:
                os.close(fd)
