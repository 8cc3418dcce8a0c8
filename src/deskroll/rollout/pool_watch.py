"""PoolWatch: the pool as the run sees it: its status at hand, which desktops died, and whether it serves anybody.

Guarantee: a pool that serves nobody for `wait` seconds ends the run with one error, and no episode is spent on it;
those that need a desktop wait until then.
"""

from __future__ import annotations

import asyncio
import logging
import time
from typing import Protocol

from deskroll.clocks import running_time
from deskroll.desktops.pool import Pool, PoolStatus
from deskroll.desktops.pool.slot import State
from deskroll.desktops.service import PoolClient
from deskroll.errors import DeskrollError, PoolGone
from deskroll.rollout.deaths import Deaths

_log = logging.getLogger(__name__)
_LOOK_S = 0.5


class HasPool(Protocol):
    """Whoever knows the pool."""

    @property
    def pool(self) -> Pool | PoolClient | None:
        """None while there is none."""


class PoolWatch:
    """Runs beside a runtime: `await watch()`."""

    def __init__(self, desktops: HasPool, deaths: Deaths, wait: float) -> None:
        self.status: PoolStatus | None = None
        """What it said last; None while it says nothing."""
        self.gone: asyncio.Future[DeskrollError] = asyncio.get_running_loop().create_future()
        """Why the run cannot go on."""
        self._desktops = desktops
        self._deaths = deaths
        self._wait = wait
        self._why = ""
        """Why it serves nobody; empty while it does."""
        self._served_at = running_time()

    async def watch(self) -> None:
        """Look, for ever."""
        while True:
            pool = self._desktops.pool
            why = "" if pool is None else await self._look(pool)
            if not why:
                self._served_at = running_time()
            if bool(why) != bool(self._why):
                waits = f"{why}; the run waits for up to {self._wait:g} s until it does again"
                _log.warning("%s", waits if why else "the pool serves desktops again")
            self._why = why
            if why and self._silent_s >= self._wait and not self.gone.done():
                self.gone.set_result(self._error())
            await asyncio.sleep(_LOOK_S)

    def attention(self) -> list[str]:
        """What of it needs attention, in a line."""
        if not self._why:
            return []
        return [
            f"the pool has served nobody for {self._silent_s:.0f} s; at {self._wait:g} s the run stops: {self._why}"
        ]

    @property
    def _silent_s(self) -> float:
        return running_time() - self._served_at

    async def _look(self, pool: Pool | PoolClient) -> str:
        """Why it serves nobody at this moment; empty: it does."""
        try:
            self.status = status = await pool.status()
        except DeskrollError as error:
            self.status = None
            return str(error)
        self._deaths.hear_pool(status, time.monotonic())
        drained = status.draining and not status.states[State.LEASED]
        return "the pool is drained; end that with:  deskroll pool resize" if drained else ""

    def _error(self) -> PoolGone:
        return PoolGone(
            f"the pool has served nobody for {self._silent_s:.0f} s ({self._why}); the run stops here, and no episode "
            "was spent on that: start the pool again, and resume the run"
        )
