"""Memory and process limits of a desktop.

Where this process may make control groups (root), all programs of a desktop share one group
with `memory_mb` and `processes`; the kernel then ends the largest of them when memory runs out. Everywhere, each
process also carries rlimits: processes and threads of the desktop's own user namespace, no core files, and, without
a control group, `memory_mb` for each process. `doctor` tells which of the two this machine has.
"""

from __future__ import annotations

import contextlib
import os
import resource
import signal
import time
from pathlib import Path

from deskroll.desktops.base import DesktopSpec

CGROUP_ROOT = Path("/sys/fs/cgroup")
_PARENT = "deskroll"
_EMPTY_S = 10.0
"""How long killed processes may take to leave the group."""


class ControlGroup:
    """The control group of one desktop, in whichever version the kernel has."""

    def __init__(self, folders: tuple[Path, ...]) -> None:
        self.folders = folders
        """Its folder in each hierarchy of control groups; the memory one first."""

    @classmethod
    def existing(cls, name: str) -> ControlGroup:
        """The group that another process made."""
        return cls(tuple(_folders(name, (CGROUP_ROOT / "cgroup.controllers").exists())))

    @classmethod
    def create(cls, name: str, spec: DesktopSpec) -> ControlGroup | None:
        """Make the group, or return None where this process may not."""
        unified = (CGROUP_ROOT / "cgroup.controllers").exists()
        group = cls(tuple(_folders(name, unified)))
        try:
            group._fill(spec, unified)
        except OSError:
            # Not allowed here (no root, no delegation, a container): the rlimits below remain.
            group.remove()
            return None
        return group

    def _fill(self, spec: DesktopSpec, unified: bool) -> None:
        memory, pids = (self.folders * 2)[:2]
        if unified:
            (CGROUP_ROOT / "cgroup.subtree_control").write_text("+memory +pids")
            memory.parent.mkdir(exist_ok=True)
            (memory.parent / "cgroup.subtree_control").write_text("+memory +pids")
        for folder in self.folders:
            folder.mkdir(parents=True)
            if not (folder / "cgroup.procs").exists():
                raise OSError(f"{folder} is no control group: its controller is not mounted")
        limit = "memory.max" if unified else "memory.limit_in_bytes"
        (memory / limit).write_text(str(spec.memory_mb * 1024 * 1024))
        (pids / "pids.max").write_text(str(spec.processes))
        if unified and (memory / "memory.swap.max").exists():
            (memory / "memory.swap.max").write_text("0")

    def enter(self) -> None:
        """Put the calling process, and whatever it forks later, into the group."""
        for folder in self.folders:
            (folder / "cgroup.procs").write_text("0")

    def memory_in_use(self) -> tuple[int, int] | None:
        """Bytes that are in use for good (caches can be given back) and the limit; None where there is no group."""
        folder = self.folders[0]
        unified = (CGROUP_ROOT / "cgroup.controllers").exists()
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
        unified = (CGROUP_ROOT / "cgroup.controllers").exists()
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


def _folders(name: str, unified: bool) -> list[Path]:
    if unified:
        return [CGROUP_ROOT / _PARENT / name]
    return [CGROUP_ROOT / controller / _PARENT / name for controller in ("memory", "pids")]


def control_groups_available() -> bool:
    """Whether desktops here get a control group of their own."""
    group = ControlGroup.create(f"probe-{os.getpid()}", DesktopSpec())
    if group is not None:
        group.remove()
    return group is not None


def set_rlimits(spec: DesktopSpec, *, grouped: bool, own_namespace: bool) -> None:
    """Limit the calling process and its children."""
    if own_namespace:
        # Counted within the user namespace, so one desktop's processes do not use up another's. Without one it would
        # count everything that the user runs.
        _lower(resource.RLIMIT_NPROC, spec.processes)
    _lower(resource.RLIMIT_NOFILE, 4096)
    _lower(resource.RLIMIT_CORE, 0)
    if not grouped:
        _lower(resource.RLIMIT_DATA, spec.memory_mb * 1024 * 1024)


def _lower(what: int, limit: int) -> None:
    hard = resource.getrlimit(what)[1]
    if hard != resource.RLIM_INFINITY:
        limit = min(limit, hard)
    resource.setrlimit(what, (limit, limit))
