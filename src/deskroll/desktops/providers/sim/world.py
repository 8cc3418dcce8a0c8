"""SimWorld: the machine room. Outlives providers, so that a second one in the same world plays the next start.

Owns the desktops by id and the tokens that lead to them, counts, and keeps `violations`: a sentence for each time that
a desktop saw two leases between two resets, or was used before it was ready and checked. An empty list is the proof
that whoever handed the desktops out did it right.
"""

from __future__ import annotations

import secrets

from deskroll.desktops.notes import Note, renewed
from deskroll.desktops.providers.sim.desktop import SimDesktop, State
from deskroll.errors import DesktopLost

MAX_GONE = 10_000
"""Tokens of stopped desktops that are remembered, to tell a late holder that the desktop is gone."""


class SimWorld:
    """All machines that there are."""

    def __init__(self) -> None:
        self.desktops: dict[str, SimDesktop] = {}
        self.violations: list[str] = []
        self.boots = 0
        """Boots that were begun."""
        self.resets = 0
        """Resets that were begun."""
        self.stops = 0
        """Machines that were taken away, by a stop or because their boot failed."""
        self.alive = 0
        """Machines that run, in whatever state."""
        self.peak_alive = 0
        self._made = 0
        self._tokens: dict[str, SimDesktop] = {}
        self._gone: dict[str, str] = {}

    def number(self) -> int:
        """The number of the next machine."""
        self._made += 1
        return self._made

    def add(self, desktop: SimDesktop) -> None:
        """Set up a machine, which boots."""
        self.desktops[desktop.id] = desktop
        self.boots += 1
        self.move(desktop, State.BOOTING)

    def remove(self, desktop: SimDesktop) -> None:
        """Take a machine away, if it is still there."""
        if self.desktops.get(desktop.id) is desktop:
            del self.desktops[desktop.id]
            self.stops += 1
            self.revoke(desktop, gone=True)
            self.move(desktop, State.DEAD)

    def move(self, desktop: SimDesktop, state: State) -> None:
        """Change the state of a machine."""
        self.alive += (state is not State.DEAD) - (desktop.state is not State.DEAD)
        self.peak_alive = max(self.peak_alive, self.alive)
        desktop.state = state

    def grant(self, desktop: SimDesktop) -> None:
        """Give a machine a token, unless it has one."""
        if not desktop.token:
            desktop.token = secrets.token_urlsafe(16)
            self._tokens[desktop.token] = desktop

    def revoke(self, desktop: SimDesktop, *, gone: bool = False) -> None:
        """Make a machine's token worthless; `gone`: because the machine is."""
        token, desktop.token = desktop.token, ""
        if self._tokens.pop(token, None) is not None and gone:
            self._gone[token] = desktop.id
            if len(self._gone) > MAX_GONE:
                del self._gone[next(iter(self._gone))]

    def find(self, token: str) -> SimDesktop | None:
        """The machine that a token leads to; raises `DesktopLost` when that was stopped."""
        desktop = self._tokens.get(token)
        if desktop is None and token in self._gone:
            raise DesktopLost(f"simulated desktop {self._gone[token]} was stopped")
        return desktop

    def notes(self) -> list[Note]:
        """The note of every machine, oldest first, renewed where its provider is open."""
        for desktop in self.desktops.values():
            if desktop.keeper.is_open:
                desktop.note = renewed(desktop.note)
        return [desktop.note for desktop in self.desktops.values()]
