"""Owner: a process, named such that no other process is ever taken for it, whoever has its number by now.

An owner says on which host and boot it runs, so that others know whether they can see if it still does. A mark is the
same as a word, for names of files, folders and control groups.
"""

from __future__ import annotations

import functools
import hashlib
import os
from pathlib import Path

from deskroll.types import Record


class Owner(Record, frozen=True):
    """A process, such that no other process is ever taken for it."""

    host: str
    """The kernel's boot and the pid namespace: within one such, pids can be compared."""
    pid: int
    start: int
    """Start time in clock ticks, since pids are used again."""

    @classmethod
    def this_process(cls) -> Owner:
        """Who we are."""
        return cls(host=host_id(), pid=os.getpid(), start=process_start("self"))

    @property
    def is_of_this_boot(self) -> bool:
        """Whether it ran, or runs, on this boot of this host."""
        return self.host.partition("/")[0] == boot_id()

    def alive(self) -> bool | None:
        """Whether the process runs; None where that cannot be seen from here."""
        if self.host != host_id():
            return None
        return process_start(self.pid) == self.start


@functools.cache
def boot_id() -> str:
    """Names this boot of this host."""
    return Path("/proc/sys/kernel/random/boot_id").read_text().strip()


@functools.cache
def host_id() -> str:
    """Names this boot of this host and our pid namespace."""
    return f"{boot_id()}/{Path('/proc/self/ns/pid').readlink()}"


def process_start(pid: int | str) -> int:
    """Start time of a process in clock ticks since boot; 0 when it is gone, or dead and only not waited for."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return 0
    return 0 if fields[0] in "ZX" else int(fields[19])


def is_stopped(pid: int) -> bool:
    """Whether a process stands still until somebody sends it SIGCONT (Ctrl-Z, kill -STOP, a debugger)."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] in "Tt"
    except OSError:
        return False


def owner_mark() -> str:
    """Names this process such that no other is ever taken for it; three words with dashes between them."""
    return f"{host_mark()}-{os.getpid()}-{process_start('self')}"


def host_mark() -> str:
    """The first word of every mark that is made on this host and boot."""
    return hashlib.sha256(host_id().encode()).hexdigest()[:8]


def is_left(mark: str) -> bool:
    """Whether this is the mark of a process of this host that is gone."""
    pid, start = _process_of(mark)
    return pid > 0 and process_start(pid) != start


def marked_process(mark: str) -> int:
    """The number of the process of this host that has this mark; 0 where it is gone, or of another host."""
    pid, start = _process_of(mark)
    return pid if pid > 0 and process_start(pid) == start else 0


def _process_of(mark: str) -> tuple[int, int]:
    """The number and the start that a mark of this host holds; zeros: it is none."""
    here, _, process = mark.partition("-")
    pid, _, start = process.partition("-")
    known = here == host_mark() and pid.isdigit() and start.isdigit()
    return (int(pid), int(start)) if known else (0, 0)
