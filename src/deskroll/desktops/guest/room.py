"""Whether a desktop has room left: for files where programs write, and in memory.

A desktop without either answers requests and shows a screen, but nothing that an agent does in it works.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path

from deskroll.errors import DesktopLost

LEAST_DISK = 8 << 20
LEAST_FILES = 64
LEAST_MEMORY = 64 << 20


def check_room(folders: Iterable[str]) -> None:
    """Raise `DesktopLost` when there is too little of either to work with."""
    for folder in folders:
        disk = os.statvfs(folder)
        if disk.f_bavail * disk.f_frsize < LEAST_DISK:
            raise DesktopLost(f"no space left in {folder}: {disk.f_bavail * disk.f_frsize >> 20} MB free")
        if disk.f_files and disk.f_favail < LEAST_FILES:
            raise DesktopLost(f"no space left in {folder}: {disk.f_favail} more files possible")
    if (memory := _available_memory()) is not None and memory < LEAST_MEMORY:
        raise DesktopLost(f"no memory left: {memory >> 20} MB free")


def _available_memory() -> int | None:
    """Bytes that programs can still get from the machine, None where the kernel does not say."""
    for line in Path("/proc/meminfo").read_text().splitlines():
        if line.startswith("MemAvailable:"):
            return int(line.split()[1]) * 1024
    return None
