"""Messages between a provider and its keepers: JSON records over sequenced-packet sockets.

A request travels by way of the zygote that forks the keeper, with two descriptors: the keeper's end of the link to the
provider, and the listening socket of the guest, so that nothing inside the desktop can touch the socket's file. The
link is also the lifeline: when the owner closes it, or dies, the keeper takes the desktop away.
"""

from __future__ import annotations

from deskroll.desktops.base import DesktopSpec
from deskroll.errors import DeathCause
from deskroll.types import Record


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


Report = Booted | Lost | Failed
