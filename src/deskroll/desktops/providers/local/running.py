"""One desktop as its provider holds it: the link to its keeper, and what has to be killed if the keeper cannot.

Guarantees: after `take_away` nothing of the desktop is left, whatever has happened to its keeper.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import select
import shutil
import signal
import socket
from collections.abc import Callable
from pathlib import Path

import msgspec

from deskroll.desktops.guest.marks import end_all_marked
from deskroll.desktops.providers.local.places import LocalNote, notebook
from deskroll.desktops.providers.local.wire import Booted, Failed, Lost, Report, Request
from deskroll.errors import BootError, DeathCause
from deskroll.host.control_group import ControlGroup
from deskroll.host.owner import process_start
from deskroll.host.zygote import ZygoteHandle

STOP_S = 10.0
"""The longest wait for a keeper to clean up; then it is done from here."""


class Running:
    """A desktop that was started here."""

    def __init__(self, desktop_id: str, folder: Path, isolation: str) -> None:
        self.id = desktop_id
        self.folder = folder
        self.isolation = isolation
        self.link, self.keeper_end = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.link.setblocking(False)
        self.watching: asyncio.Task[None] | None = None
        self.boot_seconds: dict[str, float] = {}
        self.keeper_pid = 0
        self._starting: asyncio.Task[None] | None = None
        self._pidfds: list[int] = []

    async def boot(self, zygote: ZygoteHandle, request: Request, listener: socket.socket) -> Booted:
        """Start its keeper, and wait until that says that the desktop can be used; raises `BootError` otherwise.

        The listener is closed as soon as the keeper has it.
        """
        self._starting = asyncio.create_task(self._start_keeper(zygote, request, listener))
        # Shielded: whatever happens to the caller, it is known whom to end.
        await asyncio.shield(self._starting)
        while True:
            match await _receive(self.link):
                case Booted() as report:
                    self._hold(report.sandbox_pid)
                    return report
                case Failed(message=message):
                    raise BootError(f"desktop {self.id} did not boot: {message}")
                case None:
                    raise BootError(f"desktop {self.id} did not boot: its keeper died")

    async def _start_keeper(self, zygote: ZygoteHandle, request: Request, listener: socket.socket) -> None:
        with self.keeper_end as theirs, listener:
            keeper = await zygote.fork(msgspec.json.encode(request), [theirs.fileno(), listener.fileno()])
        self.keeper_pid = keeper.pid
        self._hold(keeper.pid)

    def _hold(self, pid: int) -> None:
        """Keep hold of a process; one that has ended already leaves nothing to end."""
        with contextlib.suppress(ProcessLookupError):
            self._pidfds.append(os.pidfd_open(pid))

    async def take_away(self) -> None:
        """Let go of the lifeline and wait for the keeper; where the keeper cannot, do its work. May be repeated."""
        try:
            if self._starting is not None:
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(asyncio.gather(self._starting, return_exceptions=True), STOP_S)
            self.keeper_end.close()
            with contextlib.suppress(OSError):
                self.link.shutdown(socket.SHUT_WR)
            await asyncio.wait_for(self.watching or self.until_gone(_ignore), STOP_S)
        except (TimeoutError, OSError, ValueError):
            pass  # the keeper was killed or stopped: what it would have done follows
        finally:
            self.link.close()
            await asyncio.to_thread(self._sweep)

    async def until_gone(self, lost: Callable[[Lost], None]) -> Failed:
        """Wait until the keeper has ended, and return its last word; `lost` is told of parts that die before that."""
        # Out of its namespaces, nothing reaches the keeper; without them, it is a process like others.
        cause = DeathCause.OUTSIDE if self.isolation == "bwrap" else DeathCause.UNKNOWN
        last = Failed(message="its keeper died", cause=cause)
        while (report := await _receive(self.link)) is not None:
            match report:
                case Lost():
                    lost(report)
                case Failed():
                    last = report
        return last

    def _sweep(self) -> None:
        """Remove what a keeper that died before its desktop has left; after a sound one there is nothing to do."""
        for pidfd in self._pidfds:
            with contextlib.suppress(ProcessLookupError):
                signal.pidfd_send_signal(pidfd, signal.SIGKILL)
        while self._pidfds:
            pidfd = self._pidfds.pop()
            poll = select.poll()
            poll.register(pidfd, select.POLLIN)
            poll.poll(STOP_S * 1000)
            os.close(pidfd)
        if self.folder.exists():
            if self.isolation == "none":
                end_all_marked(self.id)
            ControlGroup.existing(self.id).remove()
            shutil.rmtree(self.folder, ignore_errors=True)


def remove_orphan(note: LocalNote) -> None:
    """Remove what is left of a desktop whose owner and keeper were both killed before they could clean up.

    Exactly what carries its id: its processes (by pid and start time, by control group, by the mark in their
    environment), its control groups and its folder. Doing so twice, or beside a keeper that is still at it, does no
    harm. The caller has made sure that nobody owns it.
    """
    for pid, start in ((note.keeper_pid, note.keeper_start), (note.sandbox_pid, note.sandbox_start)):
        if pid and process_start(pid) == start:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
    end_all_marked(note.id)
    ControlGroup.existing(note.id).remove()
    notebook().close(note.id)


def _ignore(_part: Lost) -> None:
    """For a desktop that is being taken away: which part goes first does not matter."""


async def _receive(link: socket.socket) -> Report | None:
    data = await asyncio.get_running_loop().sock_recv(link, 65536)
    report: Report | None = msgspec.json.decode(data, type=Report) if data else None
    return report
