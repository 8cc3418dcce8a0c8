"""RunState: what a run does now and how it stands, worked out of its events and of nothing else.

How long a stage has taken is not the difference of two moments on this process's clock: this process, or the worker,
may have stood still between them. Both ends are the worker's own running time: that of the event with which the stage
began, and the one that the worker said last (`Vitals.ran_s`).
"""

from __future__ import annotations

import time
from collections.abc import Mapping

from deskroll.events import (
    AttemptDropped,
    AttemptEnded,
    AttemptRetried,
    AttemptStarted,
    BatchPlanned,
    EndpointChanged,
    EpisodeSealed,
    StageEntered,
    WaitChanged,
)
from deskroll.rollout.events.hub import EventHub
from deskroll.rollout.events.training import TrainingState
from deskroll.rollout.orders import Activity
from deskroll.rollout.tally import Standing, Tally
from deskroll.types import EpisodeKey


class _InFlight:
    """One attempt."""

    __slots__ = ("entered", "last", "waits_since")

    def __init__(self) -> None:
        self.last: StageEntered | None = None
        """None while its worker has said nothing of it."""
        self.entered = 0.0
        """When its stage began, by its worker's running time, later by what it has waited for its turn since."""
        self.waits_since: float | None = None

    def enter(self, event: StageEntered) -> None:
        self.last, self.entered = event, event.ran_s
        if self.waits_since is not None:
            self.waits_since = event.ran_s

    def change_wait(self, event: WaitChanged) -> None:
        if event.waiting:
            self.waits_since = event.ran_s
        elif self.waits_since is not None:
            self.entered += event.ran_s - self.waits_since
            self.waits_since = None

    def activity(self, ran: Mapping[int, float]) -> Activity | None:
        if (last := self.last) is None:
            return None
        until = ran.get(last.worker, 0.0) if self.waits_since is None else self.waits_since
        seconds = max(0.0, until - self.entered)
        return Activity(
            key=last.key,
            attempt=last.attempt,
            stage=last.stage,
            since=time.time() - seconds,
            seconds=seconds,
            visit=last.visit,
            desktop=last.desktop,
            turn=last.turn,
        )


class RunState:
    """Follows a hub from the moment it is made."""

    def __init__(self, hub: EventHub) -> None:
        self._attempts: dict[tuple[EpisodeKey, int], _InFlight] = {}
        self._tally = Tally()
        self.training = TrainingState(hub)
        self.routed: dict[str, EndpointChanged] = {}
        """The servers behind routers, each as it was told of last."""
        hub.on(AttemptStarted, self._start)
        hub.on(StageEntered, self._enter)
        hub.on(WaitChanged, self._change_wait)
        hub.on(AttemptEnded, self._end)
        hub.on(AttemptDropped, self._end)
        hub.on(BatchPlanned, self._tally.plan)
        hub.on(AttemptEnded, self._tally.spend)
        hub.on(AttemptRetried, self._tally.retry)
        hub.on(EpisodeSealed, self._tally.seal)
        hub.on(EndpointChanged, self._change_endpoint)

    @property
    def in_flight(self) -> int:
        """Attempts that were handed to the backend and are not over."""
        return len(self._attempts)

    def standing(self) -> Standing:
        """The counts now."""
        return self._tally.standing()

    def activities(self, ran: Mapping[int, float]) -> list[Activity]:
        """What all attempts do of which anything was heard, those first that have been at it for longest.

        `ran`: the running time that each worker said last, by its pid.
        """
        found = [each for live in self._attempts.values() if (each := live.activity(ran)) is not None]
        return sorted(found, key=lambda each: -each.seconds)

    def _change_endpoint(self, event: EndpointChanged) -> None:
        if event.state == "removed":
            self.routed.pop(event.endpoint, None)
        else:
            self.routed[event.endpoint] = event

    def _start(self, event: AttemptStarted) -> None:
        self._attempts[event.key, event.attempt] = _InFlight()

    def _enter(self, event: StageEntered) -> None:
        if (live := self._attempts.get((event.key, event.attempt))) is not None:
            live.enter(event)

    def _change_wait(self, event: WaitChanged) -> None:
        if (live := self._attempts.get((event.key, event.attempt))) is not None:
            live.change_wait(event)

    def _end(self, event: AttemptEnded | AttemptDropped) -> None:
        self._attempts.pop((event.key, event.attempt), None)
