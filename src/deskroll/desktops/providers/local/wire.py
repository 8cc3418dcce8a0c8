"""Messages between a provider, its nursery and the keepers: JSON records over sequenced-packet sockets.

A request travels with two descriptors: the keeper's end of the link to the provider, and the listening socket of
the guest, so that nothing inside the desktop can touch the socket's file. The link is also the lifeline: when the
owner closes it, or dies, the keeper takes the desktop away.
"""

from __future__ import annotations

import array
import socket

import msgspec

from deskroll.desktops.base import DesktopSpec
from deskroll.errors import DeathCause
from deskroll.types import Record

LARGEST = 256 * 1024


class Request(Record, frozen=True):
    """Start one desktop."""

    id: str
    folder: str
    shims: str
    spec: DesktopSpec
    isolation: str
    uid: int
    """The host user that it runs as."""
    token: str = ""


class Started(Record, frozen=True, tag="started"):
    """A keeper has taken the desktop on."""

    keeper_pid: int


class Booted(Record, frozen=True, tag="booted"):
    """The desktop can be used."""

    sandbox_pid: int
    cgroup: bool
    seconds: dict[str, float]


class Lost(Record, frozen=True, tag="lost"):
    """A part of the desktop died; what is left of it still answers, with an error that says so."""

    message: str
    cause: DeathCause = DeathCause.UNKNOWN


class Failed(Record, frozen=True, tag="failed"):
    """The desktop did not come up, or is gone; the keeper has removed it."""

    message: str
    cause: DeathCause = DeathCause.UNKNOWN


Report = Started | Booted | Lost | Failed


def send_request(sock: socket.socket, request: Request, files: list[int]) -> None:
    """Send a request with its descriptors."""
    rights = (socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", files))
    sock.sendmsg([msgspec.json.encode(request)], [rights])


def receive_request(sock: socket.socket) -> tuple[Request, list[int]] | None:
    """Wait for a request; None when the provider has closed its end."""
    # Close-on-exec from the first moment: a program in the desktop that inherited one could pose as its guest.
    space = socket.CMSG_SPACE(2 * array.array("i").itemsize)
    data, ancillary, _, _ = sock.recvmsg(LARGEST, space, socket.MSG_CMSG_CLOEXEC)
    if not data:
        return None
    files = array.array("i")
    for level, kind, payload in ancillary:
        if (level, kind) == (socket.SOL_SOCKET, socket.SCM_RIGHTS):
            files.frombytes(payload[: len(payload) - len(payload) % files.itemsize])
    return msgspec.json.decode(data, type=Request), files.tolist()


def encode_report(report: Report) -> bytes:
    """A report as it travels."""
    return msgspec.json.encode(report)


def decode_report(data: bytes) -> Report:
    """A report as it was."""
    report: Report = msgspec.json.decode(data, type=Report)
    return report
