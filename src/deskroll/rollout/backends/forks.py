"""Messages between the coordinator and the template that forks its workers, over a sequenced-packet socket."""

from __future__ import annotations

import array
import socket

from deskroll.types import Record


class Forked(Record, frozen=True, tag="forked"):
    """A worker was started for the socket that came next."""

    pid: int


class Buried(Record, frozen=True, tag="buried"):
    """A worker ended; `code` as `subprocess` has it: negative for a signal."""

    pid: int
    code: int


class Refused(Record, frozen=True, tag="refused"):
    """No worker could be started for the socket that came next."""

    message: str


Told = Forked | Buried | Refused


def send_socket(control: socket.socket, link: socket.socket) -> None:
    """Ask for a worker at the other end of `link`."""
    control.sendmsg([b"fork"], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", [link.fileno()]))])


def receive_socket(control: socket.socket) -> socket.socket | None:
    """Wait for a request; None when the coordinator is gone."""
    data, ancillary, _, _ = control.recvmsg(16, socket.CMSG_SPACE(array.array("i").itemsize), socket.MSG_CMSG_CLOEXEC)
    files = array.array("i")
    for level, kind, payload in ancillary:
        if (level, kind) == (socket.SOL_SOCKET, socket.SCM_RIGHTS):
            files.frombytes(payload[: len(payload) - len(payload) % files.itemsize])
    return socket.socket(fileno=files[0]) if data and files else None
