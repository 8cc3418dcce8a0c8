"""Lease: a desktop that is ours for a time.

A lease is an address, not a tunnel: its holder talks to the desktop directly. Guarantees: once the lease is over, each
call on its desktop raises `LeaseLost`. Calls that are under way end so too: with the address, where the fence is hard;
elsewhere none goes on for longer than the lease was known to hold.
"""

from __future__ import annotations

import asyncio
import contextlib
import math
from collections.abc import Callable

from deskroll.clocks import time_limit
from deskroll.desktops.base import Address, DesktopSpec
from deskroll.desktops.guest.client import GuestDesktop
from deskroll.errors import DeathCause, LeaseLost


def _no_end() -> float:
    return math.inf


class Lease:
    """What a pool hands out. Ends with the `async with` block that it came from, or before that, when it is lost."""

    def __init__(
        self, lease_id: str, address: Address, spec: DesktopSpec, *, seconds_left: Callable[[], float] = _no_end
    ) -> None:
        self.id = lease_id
        self.address = address
        self.spec = spec
        self.lost = ""
        """Why it was lost; empty while it holds."""
        self.suspect = ""
        """Why its holder thinks that something is wrong with the desktop: then it is replaced, not reset."""
        self.on_lost: Callable[[Lease], None] | None = None
        """Called once when it is lost."""
        self.death: DeathCause | None = None
        """Where the cause of the desktop's death lies, as its keepers say; None: they know of no death."""
        self.on_death: Callable[[Lease], None] | None = None
        """Called once when that is known."""
        self._died = asyncio.Event()
        self._seconds_left = seconds_left
        self._desktop: GuestDesktop | None = None

    @property
    def desktop(self) -> GuestDesktop:
        """The desktop itself; its connection is made on first use."""
        if self._desktop is None:
            self._desktop = GuestDesktop(self.address, hold=self)
        return self._desktop

    def remaining(self) -> float:
        """Seconds for which it still holds; raises `LeaseLost` when it is over."""
        seconds = 0.0 if self.lost else self._seconds_left()
        if seconds <= 0:
            why = self.lost or "the pool could not be reached in time"
            raise LeaseLost(f"lease {self.id} on desktop {self.address.id} is over: {why}; lease another desktop")
        return seconds

    @property
    def settled(self) -> bool:
        """Whether every request of its holder was answered, so that none can arrive later."""
        return self._desktop is None or not self._desktop.abandoned

    def lose(self, reason: str) -> None:
        """End it against its holder's will."""
        if not self.lost:
            self.lost = reason
            if self.on_lost is not None:
                self.on_lost(self)

    def die(self, cause: DeathCause) -> None:
        """The desktop has died. The lease goes on until its holder, who finds out by itself, gives it back."""
        if self.death is None:
            self.death = cause
            self._died.set()
            if self.on_death is not None:
                self.on_death(self)

    async def cause_of_death(self, within: float) -> DeathCause | None:
        """What those who keep the desktop say of its death; None when they have said nothing by then."""
        with contextlib.suppress(TimeoutError):
            async with time_limit(within):
                await self._died.wait()
        return self.death

    async def close(self) -> None:
        """Let go of the desktop's connection; whoever made the lease gives the desktop back."""
        if self._desktop is not None:
            await self._desktop.close()
