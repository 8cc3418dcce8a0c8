"""What the state machine wants done. The pool carries it out and reports back what came of it."""

from __future__ import annotations

from dataclasses import dataclass

from deskroll.desktops.base import Address, DesktopSpec
from deskroll.desktops.pool.queue import Request
from deskroll.errors import DeskrollError
from deskroll.events import Event


@dataclass(frozen=True, slots=True)
class Boot:
    """Start a desktop; answer with `made_clean` or `boot_failed`."""

    id: str
    spec: DesktopSpec


@dataclass(frozen=True, slots=True)
class Check:
    """Check its health; answer with `checked` or `check_failed`."""

    id: str
    address: Address
    generation: int


@dataclass(frozen=True, slots=True)
class Revert:
    """Put it back to the clean state of `spec`; answer with `made_clean` or `revert_failed`."""

    id: str
    spec: DesktopSpec


@dataclass(frozen=True, slots=True)
class Stop:
    """Take it away; answer with `stopped` or `stop_failed`."""

    id: str


@dataclass(frozen=True, slots=True)
class Grant:
    """The request is served."""

    request: Request
    address: Address


@dataclass(frozen=True, slots=True)
class Refuse:
    """The request will not be served."""

    request_id: str
    error: DeskrollError


@dataclass(frozen=True, slots=True)
class Revoke:
    """The holder has lost its lease."""

    lease_id: str
    desktop_id: str
    client: str
    reason: str


@dataclass(frozen=True, slots=True)
class Report:
    """Something that people or programs may want to know of."""

    event: Event


Effect = Boot | Check | Revert | Stop | Grant | Refuse | Revoke | Report
