"""What runs on this machine."""

from __future__ import annotations

import contextlib
from pathlib import Path

import psutil

_PARTS = ("bwrap", "deskroll-guest", "Xvfb")


def desktop_processes(runtime: Path) -> set[int]:
    """The processes of all desktops below this runtime folder, whoever their parent is now."""
    found = set()
    for process in psutil.process_iter(["name", "cmdline"]):
        names = (process.info["name"], (process.info["cmdline"] or [""])[0])
        if any(name in _PARTS or name.startswith("desk-local") for name in names) and _is_below(process.pid, runtime):
            found.add(process.pid)
    return found


def _is_below(pid: int, runtime: Path) -> bool:
    """Whether its command, its environment or what is mounted for it names the folder."""
    name = runtime.name.encode()
    for file in ("cmdline", "environ", "mountinfo"):
        with contextlib.suppress(OSError):
            if name in Path(f"/proc/{pid}/{file}").read_bytes():
                return True
    return False
