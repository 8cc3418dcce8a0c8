"""What the state machine wants done. The pool carries it out and reports back what came of it."""

from __future__ import annotations

import msgspec

from deskroll.desktops.base import Address, DesktopSpec
from deskroll.desktops.pool.queue import Request
from deskroll.errors import DeskrollError
from deskroll.events import Event


class Boot(msgspec.Struct, frozen=True):
    """Start a desktop; answer with `made_clean` or `boot_failed`."""

    id: str
    spec: DesktopSpec


class Check(msgspec.Struct, frozen=True):
    """Check its health; answer with `checked` or `check_failed`."""

    id: str
    address: Address
    generation: int


class Revert(msgspec.Struct, frozen=True):
    """Put it back to the clean state of `spec`; answer with `made_clean` or `revert_failed`."""

    id: str
    spec: DesktopSpec


class Stop(msgspec.Struct, frozen=True):
    """Take it away; answer with `stopped` or `stop_failed`."""

    id: str


class Grant(msgspec.Struct, frozen=True):
    """The request is served."""

    request: Request
    address: Address


class Refuse(msgspec.Struct, frozen=True):
    """The request will not be served."""

    request_id: str
    error: DeskrollError


class Revoke(msgspec.Struct, frozen=True):
    """The holder has lost its lease."""

    lease_id: str
    desktop_id: str
    client: str
    reason: str


class Report(msgspec.Struct, frozen=True):
    """Something that people or programs may want to know of."""

    event: Event


Effect = Boot | Check | Revert | Stop | Grant | Refuse | Revoke | Report
