"""Control groups: limits on the memory and the processes of several programs together.

Where this process may make them (root), the kernel ends the largest of the programs when memory runs out. A group that
belongs to one process carries its mark, so that what is left of processes that were killed is known: `sweep_groups`
removes it.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import signal
import time
from pathlib import Path
from typing import Self

from deskroll.host.owner import is_left, owner_mark

CGROUP_ROOT = Path("/sys/fs/cgroup")
_PARENT = "deskroll"
_EMPTY_S = 10.0
"""How long killed processes may take to leave the group."""


class ControlGroup:
    """One control group, in whichever version the kernel has."""

    def __init__(self, folders: tuple[Path, ...]) -> None:
        self.folders = folders
        """Its folder in each hierarchy of control groups; the memory one first."""

    @classmethod
    def existing(cls, name: str) -> Self:
        """The group that another process made."""
        return cls(tuple(parent / name for parent in group_parents()))

    @classmethod
    def create(cls, name: str, *, memory_mb: int, processes: int) -> Self | None:
        """Make the group, or return None where this process may not."""
        group = cls.existing(name)
        try:
            group._fill(memory_mb, processes)
        except OSError:
            # Not allowed here (no root, no delegation, a container): limits of single processes remain.
            group.remove()
            return None
        return group

    @classmethod
    def create_own(cls, kind: str, *, memory_mb: int, processes: int) -> Self | None:
        """The same, under a name that tells which process it belongs to; `kind` is a word without dashes."""
        name = f"{kind}-{owner_mark()}-{secrets.token_hex(4)}"
        return cls.create(name, memory_mb=memory_mb, processes=processes)

    def _fill(self, memory_mb: int, processes: int) -> None:
        memory, pids = (self.folders * 2)[:2]
        unified = _is_unified()
        if unified:
            (CGROUP_ROOT / "cgroup.subtree_control").write_text("+memory +pids")
            memory.parent.mkdir(exist_ok=True)
            (memory.parent / "cgroup.subtree_control").write_text("+memory +pids")
        for folder in self.folders:
            folder.mkdir(parents=True)
            if not (folder / "cgroup.procs").exists():
                raise OSError(f"{folder} is not a control group: its controller is not mounted")
        limit = "memory.max" if unified else "memory.limit_in_bytes"
        (memory / limit).write_text(str(memory_mb * 1024 * 1024))
        (pids / "pids.max").write_text(str(processes))
        if unified and (memory / "memory.swap.max").exists():
            (memory / "memory.swap.max").write_text("0")

    @property
    def entrances(self) -> list[str]:
        """The files that put a process into it."""
        return [str(folder / "cgroup.procs") for folder in self.folders]

    def enter(self) -> None:
        """Put the calling process, and whatever it forks later, into the group."""
        for folder in self.folders:
            (folder / "cgroup.procs").write_text("0")

    def memory_in_use(self) -> tuple[int, int] | None:
        """Bytes that are in use for good (caches can be given back) and the limit; None where there is no group."""
        folder = self.folders[0]
        unified = _is_unified()
        usage, limit = ("current", "max") if unified else ("usage_in_bytes", "limit_in_bytes")
        try:
            used, most = (int((folder / f"memory.{name}").read_text()) for name in (usage, limit))
            stat = dict(line.split() for line in (folder / "memory.stat").read_text().splitlines())
        except (OSError, ValueError):
            return None
        return used - int(stat.get("inactive_file" if unified else "total_inactive_file", 0)), most

    def killed_for_memory(self) -> int:
        """How many of its processes the kernel has killed for want of memory, if the group ever reached its limit.

        Over its whole life, and also where the last want was the machine's: `MemoryWatch` tells these apart.
        """
        folder = self.folders[0]
        unified = _is_unified()
        try:
            lines = (folder / ("memory.events" if unified else "memory.oom_control")).read_text().splitlines()
            events = dict(line.split() for line in lines)
            reached = int(events.get("oom", 0)) if unified else int((folder / "memory.failcnt").read_text())
        except (OSError, ValueError):
            return 0
        return int(events.get("oom_kill", 0)) if reached else 0

    def remove(self) -> None:
        """End what is still in the group and remove it."""
        deadline = time.monotonic() + _EMPTY_S
        for folder in self.folders:
            while folder.exists():
                _kill_all(folder)
                try:
                    folder.rmdir()
                except OSError:
                    if time.monotonic() > deadline:
                        raise
                    time.sleep(0.005)  # the kernel tells of no event when the last process has left


def _kill_all(folder: Path) -> None:
    try:
        pids = (folder / "cgroup.procs").read_text().split()
    except OSError:
        return  # somebody else has removed it just now
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):
            os.kill(int(pid), signal.SIGKILL)


def _is_unified() -> bool:
    """Whether this kernel shows version 2 of control groups."""
    return (CGROUP_ROOT / "cgroup.controllers").exists()


def group_parents() -> list[Path]:
    """The folder of our groups in each hierarchy; the memory one first."""
    roots = [CGROUP_ROOT] if _is_unified() else [CGROUP_ROOT / controller for controller in ("memory", "pids")]
    return [root / _PARENT for root in roots]


def can_make_groups() -> bool:
    """Whether this process may make control groups here."""
    group = ControlGroup.create(f"probe-{os.getpid()}", memory_mb=64, processes=64)
    if group is not None:
        group.remove()
    return group is not None


def sweep_groups() -> None:
    """Remove the groups of processes that are gone, with whatever is still ending there."""
    for name in {folder.name for parent in group_parents() for folder in parent.glob("*-*-*-*-*/")}:
        if is_left(name.partition("-")[2].rpartition("-")[0]):
            with contextlib.suppress(OSError):  # somebody else's
                ControlGroup.existing(name).remove()
