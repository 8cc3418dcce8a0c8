"""Watching over one desktop, in its keeper: until it has to go, and where the cause of that lies.

Guarantees: that a cause lies outside is said only of what nothing inside can bring about: the end of the namespace's
first process, or of the stack that is its way to the network, while its own memory limit had killed nobody. That it
lies inside is said of a part that failed or crashed, and of a kill by that limit (`memory.py` tells it from kills for
want of memory elsewhere). Nothing else is said for certain: whoever inside or outside sends a signal to a part, the
part's end looks the same.
"""

from __future__ import annotations

import os
import select
import socket
from collections.abc import Callable
from pathlib import Path

import msgspec

from deskroll.desktops.guest.session import CRASHES, Loss
from deskroll.desktops.providers.local.wire import Failed, Lost
from deskroll.errors import DeathCause, plain
from deskroll.host.memory_watch import MemoryWatch

_LONGEST_WORD = 4096
"""Bytes that are read of what a guest says."""
_LOOK_S = 5.0
"""How often the kills for want of memory are looked at; one of the last two spans tells what is recent."""
_EXITING = 4
"""The flag of a process that is on its way out."""


class Watch:
    """What is watched of one desktop. Use `close`."""

    def __init__(self, link: socket.socket, guest: int) -> None:
        self.link, self.guest = link, guest
        self.memory: MemoryWatch | None = None
        """Of its control group; None: it has none."""
        self.first = -1
        """A pidfd of the first process of its namespaces; -1: it has none."""
        self.first_pid = 0
        self.way_out = -1
        """A pidfd of the stack that is its way to the network; -1: it has none."""

    def close(self) -> None:
        """Watch no more; the files are their owners' to close."""
        if self.memory is not None:
            self.memory.close()

    def until_gone(self, report: Callable[[Lost], None]) -> Failed:
        """Wait until the desktop has to go, and say why; nothing when its owner wants it so.

        A guest may say one thing, that it has lost a part, which is reported. It is as hostile as what runs beside it.
        """
        files = [file for file in (self.link.fileno(), self.guest, self.first, self.way_out) if file >= 0]
        heard = False
        while True:
            readable, _, _ = select.select(files, [], [], _LOOK_S)
            if not readable:
                self._look_at_memory()
            elif self.link.fileno() in readable:
                return Failed(message="")
            elif self.way_out in readable:
                return Failed(message="its way to the network died", cause=self._cause_of_lost_way())
            elif self.first in readable or not (said := os.read(self.guest, _LONGEST_WORD)):
                return self._end_of_all()
            elif heard:
                return Failed(message="its guest said more than it may", cause=DeathCause.INSIDE)
            else:
                heard = True
                report(self._loss(said))

    def _loss(self, said: bytes) -> Lost:
        try:
            loss = msgspec.json.decode(said, type=Loss)
        except msgspec.MsgspecError:
            loss = Loss(message=said.decode(errors="replace"))
        # Of itself a guest may only say that it was its own doing: whoever took it over would say anything else.
        inside = DeathCause.INSIDE in (loss.cause, self._cause_of_kills())
        return Lost(message=plain(loss.message), cause=DeathCause.INSIDE if inside else DeathCause.UNKNOWN)

    def _end_of_all(self) -> Failed:
        """The guest is gone, alone or with everything: the first process goes last, so it says which."""
        with_all = self.first >= 0 and _is_ending(self.first, self.first_pid)
        message = "the first process of its namespaces died" if with_all else "its guest died"
        return Failed(message=message, cause=self._cause_if(outside=with_all))

    def _cause_of_lost_way(self) -> DeathCause:
        ended = os.waitid(os.P_PIDFD, self.way_out, os.WEXITED | os.WNOWAIT)
        killed = ended is not None and ended.si_code == os.CLD_KILLED and ended.si_status not in CRASHES
        return self._cause_if(outside=killed)

    def _cause_if(self, *, outside: bool) -> DeathCause:
        """The cause of an end that looks as if it came from outside, or as if it could have come from anywhere."""
        kills = self._cause_of_kills()
        if kills is not None and kills is not DeathCause.OUTSIDE:
            return kills
        return DeathCause.OUTSIDE if outside else DeathCause.UNKNOWN

    def _cause_of_kills(self) -> DeathCause | None:
        return self.memory.cause_of_kills() if self.memory is not None else None

    def _look_at_memory(self) -> None:
        if self.memory is not None:
            self.memory.look()


def _is_ending(pidfd: int, pid: int) -> bool:
    """Whether a process is on its way out, or gone."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except (FileNotFoundError, ProcessLookupError):
        return True
    # Asked afterwards: while the process is there, its pid is nobody else's.
    ended = bool(select.select([pidfd], [], [], 0)[0])
    return ended or bool(int(fields[6]) & _EXITING)
