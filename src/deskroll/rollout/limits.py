"""Permits: how many episodes and how many groups may be in flight, over every phase that shares an engine.

Guarantees: never more than the limit, whoever asks; whoever waits is served by its ticket (its job's priority, then its
group's place among all that were planned); a share that is reserved for a phase, in episodes, is not given to another
one, nor are as many groups as it comes to; limits may change at any time. Order of acquiring: group, then episode.
Nobody who sleeps before a retry holds either.
"""

from __future__ import annotations

import asyncio
import heapq
import itertools
import logging
from collections import Counter
from collections.abc import Mapping

from deskroll.errors import ConfigError

_log = logging.getLogger(__name__)


Ticket = tuple[int, int]
"""Who is served first: by priority, negated, then by the number that the engine gave."""


class Permits:
    """One kind of permit."""

    def __init__(self, most: int, reserved: Mapping[str, int] | None = None) -> None:
        self._reserved = dict(reserved or {})
        self._used: Counter[str] = Counter()
        self._waiting: dict[str, list[tuple[Ticket, int, asyncio.Future[bool]]]] = {}
        self._arrivals = itertools.count()
        self._asking: dict[object, asyncio.Future[bool]] = {}
        """What somebody waits with who may be refused, by who it is."""
        self._closed: set[str] = set()
        """Phases that get none any more."""
        self.most = most
        self.check(most)

    @property
    def used(self) -> int:
        """How many are held now."""
        return self._used.total()

    def used_by(self, phase: str) -> int:
        """How many a phase holds."""
        return self._used[phase]

    @property
    def waiting(self) -> int:
        """How many wait for one."""
        return sum(not each[2].done() for heap in self._waiting.values() for each in heap)

    async def acquire(self, phase: str, ticket: Ticket, holder: object = None) -> bool:
        """Wait for a permit; False: none are given any more, or `holder`, whoever that is, was refused."""
        if phase in self._closed:
            return False
        future: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
        heapq.heappush(self._waiting.setdefault(phase, []), (ticket, next(self._arrivals), future))
        self._grant()
        if holder is not None and not future.done():
            self._asking[holder] = future
        try:
            return await future
        except asyncio.CancelledError:
            if future.done() and not future.cancelled() and future.result():
                self.release(phase)  # it was granted in the same moment
            raise
        finally:
            self._asking.pop(holder, None)

    def refuse(self, holder: object) -> None:
        """Whoever waits under this name waits no longer, and gets none."""
        future = self._asking.get(holder)
        if future is not None and not future.done():
            future.set_result(False)

    def release(self, phase: str) -> None:
        """Give one back."""
        if self._used[phase] < 1:
            raise ValueError(f"phase {phase!r} holds no permit")
        self._used[phase] -= 1
        self._grant()

    def close(self, phase: str) -> None:
        """Give this phase none any more, until it is opened again; whoever of it waits is told so."""
        self._closed.add(phase)
        heap = self._waiting.pop(phase, [])
        for _, _, future in heap:
            if not future.done():
                future.set_result(False)

    def open(self, phase: str) -> None:
        """Give to this phase again."""
        self._closed.discard(phase)

    def reserve(self, phase: str, share: int) -> None:
        """Keep so many for a phase from now on; ConfigError where there are not as many, and nothing has changed."""
        reserved = {**self._reserved, phase: share}
        if sum(reserved.values()) > self.most:
            raise ConfigError(
                f"phase {phase!r} has {share} groups in flight for itself, others have "
                f"{sum(reserved.values()) - share}, and there are {self.most} in all: reserve fewer, or raise "
                "max_concurrent_rollouts"
            )
        self._reserved = reserved
        self._grant()

    def resize(self, most: int) -> None:
        """Allow so many from now on; what is held beyond that is not taken away."""
        self.check(most)
        self.most = most
        self._grant()

    def check(self, most: int) -> None:
        """Refuse a limit that makes no sense."""
        if most < 1:
            raise ConfigError(f"a limit is {most}; allowed: 1 and more")
        if sum(self._reserved.values()) > most:
            raise ConfigError(f"{sum(self._reserved.values())} are reserved of {most} in all; reserve fewer")

    def check_rest(self, most: int) -> None:
        """Refuse a limit that leaves nothing for phases without a share of their own: they would wait for ever."""
        reserved = sum(self._reserved.values())
        if reserved and reserved >= most:
            raise ConfigError(
                f"of {most} in all, {reserved} are reserved ({', '.join(sorted(self._reserved))}), and none is left "
                f"for other phases; allowed: {reserved + 1} and more"
            )

    def check_share(self, phase: str) -> None:
        """Refuse a phase that would wait for ever, since all there is is reserved for others."""
        kept = sum(share for other, share in self._reserved.items() if other != phase)
        if kept and kept >= self.most:
            raise ConfigError(
                f"of {self.most} in all, {kept} are reserved for other phases, and none is left for {phase!r}; "
                "reserve fewer, or raise num_rollouts"
            )

    def _grant(self) -> None:
        while (phase := self._next()) is not None:
            future = heapq.heappop(self._waiting[phase])[2]
            self._used[phase] += 1
            future.set_result(True)

    def _next(self) -> str | None:
        """The phase whose first waiter is served next."""
        best: tuple[Ticket, int] | None = None
        chosen = None
        for phase, heap in self._waiting.items():
            while heap and heap[0][2].done():
                heapq.heappop(heap)
            if heap and self._allowed(phase) and (best is None or heap[0][:2] < best):
                best, chosen = heap[0][:2], phase
        return chosen

    def _allowed(self, phase: str) -> bool:
        kept = sum(max(0, n - self._used[other]) for other, n in self._reserved.items() if other != phase)
        return self.used + kept < self.most


class GroupPermit:
    """One group's permit: held while any of its episodes runs or waits to, not while all of them sleep."""

    def __init__(self, permits: Permits, phase: str, ticket: Ticket) -> None:
        self._permits = permits
        self._phase = phase
        self._ticket = ticket
        self._members = 0
        self._entering = asyncio.Lock()
        self._closed = False

    async def enter(self, members: int = 1) -> bool:
        """Come in; the first one waits for the permit. False: none are given any more, or it is closed."""
        async with self._entering:
            if self._closed:
                return False
            if self._members == 0 and not await self._permits.acquire(self._phase, self._ticket, self):
                return False
            self._members += members
            return True

    def close(self) -> None:
        """Let nobody come in any more; whoever waits to is told so, and whoever is inside stays."""
        self._closed = True
        self._permits.refuse(self)

    def leave(self) -> None:
        """Go out; the last one gives the permit back."""
        self._members -= 1
        if self._members == 0:
            self._permits.release(self._phase)

    def abandon(self) -> None:
        """Give the permit back, whoever has not gone out: nobody of the group is left."""
        if self._members:
            self._members = 0
            self._permits.release(self._phase)


class Limits:
    """Both kinds, shared by every phase that runs on an engine."""

    def __init__(
        self,
        num_rollouts: int,
        max_concurrent_rollouts: int | None = None,
        reserved: Mapping[str, int] | None = None,
    ) -> None:
        self.episodes = Permits(num_rollouts, reserved)
        self._reserved = {phase: share for phase, share in (reserved or {}).items() if share}
        # How many groups a share comes to is known with the phase's first job; until then the door is kept open.
        self.groups = Permits(max_concurrent_rollouts or num_rollouts, dict.fromkeys(self._reserved, 1))
        self._follow = max_concurrent_rollouts is None
        self._tell()

    def change(self, num_rollouts: int | None = None, max_concurrent_rollouts: int | None = None) -> None:
        """Other limits from now on; None leaves one as it is. Where one makes no sense, neither is changed."""
        for permits, most in ((self.episodes, num_rollouts), (self.groups, max_concurrent_rollouts)):
            if most is not None:
                permits.check(most)
                permits.check_rest(most)
        if num_rollouts is not None:
            self.episodes.resize(num_rollouts)
            if self._follow and max_concurrent_rollouts is None:
                self.groups.resize(num_rollouts)
        if max_concurrent_rollouts is not None:
            self._follow = False
            self.groups.resize(max_concurrent_rollouts)
        self._tell()

    def close(self, phase: str) -> None:
        """Start nothing more of this phase."""
        self.episodes.close(phase)
        self.groups.close(phase)

    def open(self, phase: str, samples: int = 1) -> None:
        """Start what belongs to this phase, in groups of so many; ConfigError where nothing of it could ever start."""
        if share := self._reserved.get(phase):
            self.groups.reserve(phase, -(-share // samples))
        self.episodes.check_share(phase)
        self.groups.check_share(phase)
        self.episodes.open(phase)
        self.groups.open(phase)

    def _tell(self) -> None:
        _log.info("[Concurrency] Set max concurrent rollouts to %d", self.groups.most)
