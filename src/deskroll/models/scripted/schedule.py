"""Schedule: which requests run, which wait, and how far each has come. No clock and no I/O: the time is an argument.

Guarantees: at most `slots` run; those that wait start in the order in which they came; work goes on exactly while a
request runs and nothing is frozen, so the time of a pause counts for nobody; each request ends once, unless it is
dropped.
"""

from __future__ import annotations

import enum
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Generic, TypeVar


class PauseMode(enum.StrEnum):
    """What a pause does to the requests that run. New ones wait with each of them."""

    ABORT = "abort"
    """They end now, with what they have."""
    WAIT = "wait"
    """They run to their end."""
    KEEP = "keep"
    """They stand still, and go on after the pause."""


@dataclass(eq=False)
class Generation:
    """One request's work: so many seconds for so many tokens, evenly."""

    tokens: int
    seconds: float
    worked: float = 0.0
    """Seconds of work done, as of the schedule's last look."""
    aborted: bool = False
    shifts: list[float] = field(default_factory=list)
    """Of each token that was made so far, what its weights lower its log-probability by."""

    @property
    def made(self) -> int:
        """How many tokens the work done comes to."""
        return int(self.tokens * min(1.0, self.worked / self.seconds)) if self.seconds else self.tokens

    def stamp(self, made: int, shift: float) -> None:
        """Mark the tokens up to that one which have no mark yet."""
        self.shifts += [shift] * (made - len(self.shifts))


G = TypeVar("G", bound=Generation)


class Schedule(Generic[G]):
    """`started` is told of each request that begins to run, `ended` of each that is done or aborted."""

    def __init__(self, slots: int, *, started: Callable[[G], None], ended: Callable[[G], None]) -> None:
        self.running: list[G] = []
        self.waiting: deque[G] = deque()
        self.paused: PauseMode | None = None
        self._slots = slots
        self._started, self._ended = started, ended
        self._seen = 0.0

    @property
    def due(self) -> float | None:
        """When the next one will be done; None where none will."""
        if self.paused is PauseMode.KEEP or not self.running:
            return None
        return self._seen + min(each.seconds - each.worked for each in self.running)

    def look(self, now: float) -> None:
        """Bring everything up to now: end what is done, start what may start."""
        if self.paused is not PauseMode.KEEP:
            for each in self.running:
                each.worked += now - self._seen
        self._seen = now
        self._admit()
        while done := self._done():
            self._end(done)
            self._admit()  # what takes no time is done at once

    def submit(self, generation: G, now: float) -> None:
        """A new request."""
        self.look(now)
        self.waiting.append(generation)
        self.look(now)

    def drop(self, generation: G, now: float) -> None:
        """Nobody waits for it any more."""
        self.look(now)
        if generation in self.running:
            self.running.remove(generation)
        elif generation in self.waiting:
            self.waiting.remove(generation)
        self.look(now)

    def pause(self, mode: PauseMode, now: float) -> None:
        """Start nothing from now on; `mode` says what becomes of what runs."""
        self.look(now)
        self.paused = mode
        if mode is PauseMode.ABORT:
            every = [*self.running, *self.waiting]
            self.waiting.clear()
            for each in every:
                each.aborted = True
            self._end(every)

    def resume(self, now: float) -> None:
        """Go on."""
        self.look(now)
        self.paused = None
        self.look(now)

    def preempt(self, now: float) -> None:
        """Send what runs back to the head of the queue: it keeps its tokens, and starts again at the next look."""
        self.look(now)
        self.waiting.extendleft(reversed(self.running))
        self.running = []

    def _done(self) -> list[G]:
        return [] if self.paused is PauseMode.KEEP else [each for each in self.running if each.worked >= each.seconds]

    def _admit(self) -> None:
        while self.paused is None and self.waiting and len(self.running) < self._slots:
            first = self.waiting.popleft()
            self.running.append(first)
            self._started(first)

    def _end(self, generations: list[G]) -> None:
        ends = set(generations)
        self.running = [each for each in self.running if each not in ends]
        for each in generations:
            self._ended(each)
