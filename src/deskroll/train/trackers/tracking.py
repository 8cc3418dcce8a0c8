"""Tracking: hands the numbers of a training run to its trackers, from its events.

Guarantees: the run neither waits for a tracker nor fails by one. What goes wrong is told once, and that tracker gets
nothing more. Closing waits for what is left, `CLOSE_S` at most.
"""

from __future__ import annotations

import asyncio
import logging
import queue
import threading
from collections.abc import Mapping

from deskroll.errors import plain
from deskroll.events import EvaluationEnded, StepTaken, WeightsServed
from deskroll.rollout.events import EventHub
from deskroll.train.trackers.base import Tracked, Tracker

CLOSE_S = 15.0
_log = logging.getLogger(__name__)
Numbers = tuple[int, dict[str, float]]


class Tracking:
    """Of one start of a run. Use with `async with`."""

    def __init__(
        self, trackers: Mapping[str, Tracker], hub: EventHub, run: Tracked, *, close_s: float = CLOSE_S
    ) -> None:
        self._close_s = close_s
        self._threads = [_TrackerThread(name, tracker, run) for name, tracker in trackers.items()]
        hub.on(StepTaken, lambda event: self._put(event.step, numbers_of_step(event)))
        hub.on(EvaluationEnded, lambda event: self._put(event.round, numbers_of_evaluation(event)))
        hub.on(WeightsServed, lambda event: self._put(event.version, {"version": event.version}))

    async def __aenter__(self) -> Tracking:
        for each in self._threads:
            each.start(asyncio.get_running_loop())
        return self

    async def __aexit__(self, *exc: object) -> None:
        for each in self._threads:
            each.waiting.put(None)
        await asyncio.gather(*(each.ended(self._close_s) for each in self._threads))

    def _put(self, step: int, values: dict[str, float]) -> None:
        for each in self._threads:
            each.waiting.put((step, values))


class _TrackerThread:
    """One tracker, in a thread that nobody has to wait for."""

    def __init__(self, name: str, tracker: Tracker, run: Tracked) -> None:
        self._name = name
        self._tracker = tracker
        self._run = run
        self.waiting: queue.SimpleQueue[Numbers | None] = queue.SimpleQueue()
        """What it is to be told; None: nothing more."""
        self._over = asyncio.Event()

    def start(self, loop: asyncio.AbstractEventLoop) -> None:
        """Begin."""

        def work() -> None:
            try:
                self._work()
            except Exception as error:  # noqa: BLE001  (whatever an SDK raises, the run goes on)
                self._tell(f"{type(error).__name__}: {plain(str(error), 300)}")
            if not loop.is_closed():
                loop.call_soon_threadsafe(self._over.set)

        threading.Thread(target=work, name=f"tracker {self._name}", daemon=True).start()

    async def ended(self, within: float) -> None:
        """Wait until it has told all, for so many seconds."""
        try:
            await asyncio.wait_for(self._over.wait(), within)
        except TimeoutError:
            self._tell("it did not take the last numbers in time")

    def _work(self) -> None:
        self._tracker.open(self._run)
        try:
            while (numbers := self.waiting.get()) is not None:
                self._tracker.log(*numbers)
        finally:
            self._tracker.close()

    def _tell(self, why: str) -> None:
        _log.warning("numbers of this run are missing in %s: %s; the run goes on", self._name, why)


def numbers_of_step(event: StepTaken) -> dict[str, float]:
    """What is told of a step."""
    return {
        "train/reward": event.reward,
        "train/sequences": event.sequences,
        **{f"train/{name}": value for name, value in event.measures.items()},
        "lag/p50": event.lag_p50, "lag/p95": event.lag_p95, "lag/max": event.lag_max,
        "groups/used": event.groups, "groups/no_signal": event.no_signal, "groups/withheld": event.withheld,
        "groups/failed": event.failed,
        **{f"seconds/{part}": value for part, value in event.seconds.items()},
    }  # fmt: skip


def numbers_of_evaluation(event: EvaluationEnded) -> dict[str, float]:
    """What is told of an evaluation: under the name of its phase, so that baseline and evaluations stand apart."""
    told = {"scored": float(event.scored), "seconds": event.seconds}
    if event.mean_score is not None:
        told |= {"mean_score": event.mean_score, "success": event.successes / event.scored}
    return {f"{event.phase}/{name}": value for name, value in told.items()}
