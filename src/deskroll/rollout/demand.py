"""Demand: how many desktops a run leases in all, by kind, as far as is known; its pool is told whenever that changes.

Each episode without an outcome leases one. An attempt that had one and is made again leases another; an episode that
ends without ever having had one leases none. An attempt that was lost with its worker counts as if it had had none: so
the number is now and then too small, never too large, and whoever asks for a desktop gets one all the same.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Mapping
from typing import Protocol

from deskroll.desktops.base import DesktopSpec
from deskroll.errors import DeskrollError
from deskroll.types import Episode

_log = logging.getLogger(__name__)


class Told(Protocol):
    """Whoever must know: a pool in this process, or a client of one elsewhere."""

    async def expect(self, leases: Mapping[DesktopSpec, int]) -> None:
        """So many leases there will be in all."""


_AGAIN_S = 1.0


class Demand:
    """The leases of one start of a run."""

    def __init__(self, specs: Mapping[str, DesktopSpec], left: Mapping[str, int]) -> None:
        self._specs = specs
        """By task, the desktop that it needs."""
        self.leases: Counter[DesktopSpec] = Counter()
        for task, number in left.items():
            if task in specs:
                self.leases[specs[task]] += number
        self._changed = asyncio.Event()
        self._over = False

    def judged(self, episode: Episode, again: bool) -> None:
        """An attempt has ended; `again`: another one follows."""
        spec = self._specs.get(episode.key.task)
        had = bool(episode.desktop)
        if spec is not None and had is again and not self._over:
            self.leases[spec] += 1 if again else -1
            self._changed.set()

    def end(self) -> None:
        """Nothing more will be leased."""
        self._over = True
        self.leases.clear()
        self._changed.set()

    async def keep_told(self, pool: Told) -> None:
        """Tell the pool of each change, for ever."""
        while True:
            await self._changed.wait()
            self._changed.clear()
            try:
                await pool.expect(self.leases)
            except DeskrollError as error:
                _log.info("the pool was not told how many desktops are still wanted: %s", error)
                self._changed.set()
                await asyncio.sleep(_AGAIN_S)  # it is away, and is asked again when it may be back
