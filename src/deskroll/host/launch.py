"""Starts bubblewrap for a worker that is root: enters the control group, gives up root, becomes bubblewrap.

Stands alone and runs without site-packages, since it is paid for at every start. What the sandbox is to see may be
closed to everybody but root (a Python in root's home); so it is bound to a place that the new user can reach, in a
mount namespace of its own, which nobody else sees and which ends with the sandbox.

    launch.py UID COUNT FILES... COUNT FOLDERS... COMMAND...    FILES: each a cgroup.procs; FOLDERS: to bind
"""

from __future__ import annotations

import ctypes
import os
import sys

STAGE = "/sys"
"""Where folders are bound, as 0, 1, ...: there on every Linux, and of no use to bubblewrap."""
_CLONE_NEWNS = 0x20000
_MS_NOSUID, _MS_NODEV, _MS_BIND, _MS_REC, _MS_PRIVATE = 2, 4, 4096, 16384, 1 << 18

_libc = ctypes.CDLL(None, use_errno=True)


def _mount(source: str, target: str, kind: str, flags: int, options: str = "") -> None:
    if _libc.mount(source.encode(), target.encode(), kind.encode(), flags, options.encode()) != 0:
        raise OSError(ctypes.get_errno(), f"cannot mount {target}: {os.strerror(ctypes.get_errno())}")


def _stage(folders: list[str]) -> None:
    if _libc.unshare(_CLONE_NEWNS) != 0:
        raise OSError(ctypes.get_errno(), f"cannot make a mount namespace: {os.strerror(ctypes.get_errno())}")
    _mount("none", "/", "", _MS_REC | _MS_PRIVATE)
    files = [os.open(folder, os.O_PATH | os.O_CLOEXEC) for folder in folders]
    _mount("stage", STAGE, "tmpfs", _MS_NOSUID | _MS_NODEV, "mode=0755,size=65536")
    for number, file in enumerate(files):
        os.mkdir(f"{STAGE}/{number}")  # noqa: PTH102  (pathlib takes longer to import than all of this to run)
        _mount(f"/proc/self/fd/{file}", f"{STAGE}/{number}", "", _MS_BIND)


def _become(uid: int) -> None:
    os.setgroups([])
    os.setresgid(uid, uid, uid)
    os.setresuid(uid, uid, uid)


def _take_counted(words: list[str]) -> tuple[list[str], list[str]]:
    """So many words as the first one says, and those after them."""
    end = 1 + int(words[0])
    return words[1:end], words[end:]


def main() -> None:
    """Do as the command line says."""
    uid, *words = sys.argv[1:]
    groups, words = _take_counted(words)
    folders, command = _take_counted(words)
    try:
        for file in groups:
            with open(file, "w") as group:  # noqa: PTH123
                group.write("0")
        _stage(folders)
        _become(int(uid))
        os.execve(command[0], command, {})  # noqa: S606
    except OSError as error:
        sys.exit(f"the sandbox cannot be prepared: {error}")


if __name__ == "__main__":
    main()
