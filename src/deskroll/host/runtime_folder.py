"""The folder of everything that deskroll keeps on this host while it runs, and folders of single processes below it.

The root is `$DESKROLL_RUNTIME_DIR`, else `/run/deskroll` for root, else a folder of the user's in `$XDG_RUNTIME_DIR`
or the temporary folder. A folder that somebody else owns is refused.

Guarantees: a process's own folder is private to its user; `sweep_folders` removes those of processes that are gone,
and no others.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import stat
import tempfile
from pathlib import Path

from deskroll.errors import BootError
from deskroll.host.owner import host_mark, is_left, owner_mark

LONGEST_SOCKET_PATH = 107
"""Bytes; what lies under the root are mostly sockets."""
_KINDS = ("sim", "evaluator", "router")


def runtime_root() -> Path:
    """The root; made when missing."""
    root = Path(os.environ.get("DESKROLL_RUNTIME_DIR") or _default_root()).resolve()
    advice = "set DESKROLL_RUNTIME_DIR to a folder of yours"
    try:
        if not root.exists():
            root.mkdir(mode=0o711, parents=True, exist_ok=True)
            root.chmod(0o711)  # whatever the umask is: where root starts desktops, they are other users
        about = root.stat()
    except OSError as error:
        raise BootError(f"cannot make {root}: {error.strerror or error}; {advice}") from error
    if not stat.S_ISDIR(about.st_mode):
        raise BootError(f"{root} is not a folder; {advice}")
    if about.st_uid != os.getuid():
        raise BootError(f"{root} belongs to user {about.st_uid}, not to you ({os.getuid()}); {advice}")
    if about.st_mode & 0o022:
        raise BootError(
            f"others may write to {root}, and so to what controls your desktops: chmod go-w it, or {advice}"
        )
    return root


def _default_root() -> Path:
    if os.getuid() == 0:
        return Path("/run/deskroll")
    base = os.environ.get("XDG_RUNTIME_DIR")
    return Path(base, "deskroll") if base else Path(tempfile.gettempdir(), f"deskroll-{os.getuid()}")


def make_scratch_folder(kind: str, longest: str) -> Path:
    """A folder of this process; `longest` is the longest path of a socket that will be in it.

    Where the root is too long for a socket, it is in the temporary folder instead.
    """
    if kind not in _KINDS:
        raise ValueError(f"{kind!r} is not a kind of folder that is swept")
    sweep_folders()
    root, name = runtime_root(), f"{kind}-{owner_mark()}-"
    short = len(str(root / name)) + len(f"12345678/{longest}") <= LONGEST_SOCKET_PATH
    return Path(tempfile.mkdtemp(prefix=name, dir=root if short else None))


def sweep_folders() -> None:
    """Remove the folders of processes that are gone."""
    for root in (runtime_root(), Path(tempfile.gettempdir())):
        for kind in _KINDS:
            for path in root.glob(f"{kind}-{host_mark()}-*-*-*"):
                mark = path.name.removeprefix(f"{kind}-").rpartition("-")[0]
                with contextlib.suppress(FileNotFoundError):  # somebody else sweeps, too
                    if is_left(mark) and path.lstat().st_uid == os.getuid():
                        shutil.rmtree(path, ignore_errors=True)
