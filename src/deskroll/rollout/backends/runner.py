"""AttemptRunner: the attempts that run in this process, each in a task of its own. Both backends are built on it."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Collection

from deskroll.clocks import running_time
from deskroll.errors import DeskrollError, plain
from deskroll.rollout.context import ProcessContext
from deskroll.rollout.episode import run_episode
from deskroll.rollout.live_attempt import LiveAttempt
from deskroll.rollout.orders import AttemptName, Order, Vitals
from deskroll.rollout.stack import stack_of
from deskroll.types import Episode, EpisodeKey

_LOOK_S = 10.0
_log = logging.getLogger(__name__)


class AttemptRunner:
    """Runs attempts with what this process has."""

    def __init__(self, context: ProcessContext) -> None:
        self._context = context
        self._lives: dict[AttemptName, LiveAttempt] = {}

    def take(self, order: Order) -> LiveAttempt:
        """Take an attempt on: from now on it can be stopped."""
        live = self._lives[order.key, order.attempt] = LiveAttempt(order, self._context.sink)
        return live

    async def run(self, live: LiveAttempt) -> Episode | None:
        """Run an attempt that was taken on to its end, in the task that calls this; None: it was given back."""
        order = live.order
        try:
            context = await self._context.of(order.spec)
            live.task = asyncio.current_task()  # not before: until then, a stop is seen when the episode begins
            try:
                return await run_episode(live, context)
            finally:
                context.end_session(order)
        finally:
            self.drop(order)

    def drop(self, order: Order) -> None:
        """An attempt that was taken on is over."""
        self._lives.pop((order.key, order.attempt), None)

    def stop(self, key: EpisodeKey, attempt: int, error: DeskrollError | None, visit: int | None = None) -> None:
        """End an attempt, if it still runs; `visit`: and if it still is in that stage."""
        if (live := self._lives.get((key, attempt))) is not None:
            live.stop(error, visit)

    def give_back(self, attempts: Collection[AttemptName]) -> int:
        """End those of these attempts that have not begun; how many of them have."""
        asked = [live for name in attempts if (live := self._lives.get(name)) is not None]
        for live in asked:
            live.give_back()
        return sum(not live.given_back for live in asked)

    async def dump(self, key: EpisodeKey, attempt: int, why: str) -> None:
        """Write an attempt's stack, and its screen if it has one that answers, to its folder."""
        live = self._lives.get((key, attempt))
        if live is None or live.note is None or live.task is None:
            return
        name = f"stalled-{live.stage}-{int(time.time())}"
        head = f"{why}\nstage {live.stage}, desktop {live.desktop or 'none'}, turn {live.turn}\n\n"
        try:
            live.note(f"{name}.txt", (head + stack_of(live.task)).encode())
            if live.look is not None:
                live.note(f"{name}.png", await asyncio.wait_for(live.look(), _LOOK_S))
        except (DeskrollError, TimeoutError) as error:
            _log.warning("%s: not all of its state could be written down: %s", live.order.name, plain(str(error)))

    @property
    def holds_desktops(self) -> bool:
        """Whether an attempt has a desktop."""
        return any(live.desktop for live in self._lives.values())

    def vitals(self) -> Vitals:
        """How this process does."""
        return Vitals(ran_s=running_time(), running=len(self._lives), endpoints=self._context.endpoints())
