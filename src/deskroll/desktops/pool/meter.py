"""Desktop-second accounting: how busy the desktops are, how long requests wait, and what they wait for.

Waiting is attributed at every moment to what the desktops do at that moment: where three of four are leased and one
is being reset, three quarters of the waiting is for desktops and one for resets. What counts as 'now' fades with a
half-life of 20 seconds.
"""

from __future__ import annotations

import enum
import math
from collections import deque

from deskroll.types import Record

HALF_LIFE_S = 20.0
_WORTH_TELLING = 0.1
"""Requests that wait on average, below which nothing limits."""
NOTHING_LIMITS = "nothing: no request waits for a desktop"
_WAITS_KEPT = 4096


class Cause(enum.StrEnum):
    """What a request waits for."""

    DESKTOPS = "desktops"
    RESETS = "resets"
    BOOTS = "boots"
    FAILURES = "failures"
    QUOTAS = "quotas"


_SENTENCES = {
    Cause.DESKTOPS: "of waiting is for a free one: more desktops would help",
    Cause.RESETS: "of waiting is for desktops that are being reset",
    Cause.BOOTS: "of waiting is for desktops that boot",
    Cause.FAILURES: "of waiting is for boots that fail",
    Cause.QUOTAS: "of waiting is because of a client's own quota",
}


class Load(Record, frozen=True):
    """What goes on at one moment: numbers of desktops and of requests."""

    leased: int = 0
    resetting: int = 0
    booting: int = 0
    alive: int = 0
    waiting: int = 0
    parked: int = 0
    failing: bool = False
    """Whether boots are held off after failures."""


class Waits(Record, frozen=True, omit_defaults=False):
    """How long the latest requests waited, in seconds."""

    count: int = 0
    p50: float = 0.0
    p95: float = 0.0
    p99: float = 0.0
    longest: float = 0.0


class Meter:
    """Adds up what happens between events."""

    def __init__(self, now: float) -> None:
        self._at = now
        self._causes = dict.fromkeys(Cause, 0.0)
        self._recent_leased = self._recent_alive = 0.0
        self._waits: deque[float] = deque(maxlen=_WAITS_KEPT)
        self.granted = 0
        self.leased_s = 0.0
        self.alive_s = 0.0

    def advance(self, now: float, load: Load) -> None:
        """`load` was what went on from the last call until now."""
        seconds, self._at = now - self._at, now
        if seconds <= 0:
            return
        self.leased_s += load.leased * seconds
        self.alive_s += load.alive * seconds
        fade = 0.5 ** (seconds / HALF_LIFE_S)
        self._recent_leased = self._recent_leased * fade + load.leased * seconds
        self._recent_alive = self._recent_alive * fade + load.alive * seconds
        for cause in Cause:
            self._causes[cause] *= fade
        if load.waiting:
            self._attribute(seconds, load)
        self._causes[Cause.QUOTAS] += load.parked * seconds

    def _attribute(self, seconds: float, load: Load) -> None:
        busy = load.leased + load.resetting + load.booting
        if not busy:
            self._causes[Cause.FAILURES if load.failing else Cause.DESKTOPS] += load.waiting * seconds
            return
        each = load.waiting * seconds / busy
        self._causes[Cause.DESKTOPS] += load.leased * each
        self._causes[Cause.RESETS] += load.resetting * each
        self._causes[Cause.FAILURES if load.failing else Cause.BOOTS] += load.booting * each

    def waited(self, seconds: float) -> None:
        """A request was served after so long."""
        self.granted += 1
        self._waits.append(seconds)

    @property
    def utilisation(self) -> float:
        """The share of desktop-seconds that are leased, now."""
        return self._recent_leased / self._recent_alive if self._recent_alive > 0 else 0.0

    def waits(self) -> Waits:
        """Percentiles over the latest requests."""
        if not self._waits:
            return Waits()
        ordered = sorted(self._waits)

        def at(share: float) -> float:
            return ordered[min(len(ordered) - 1, int(share * len(ordered)))]

        return Waits(count=self.granted, p50=at(0.5), p95=at(0.95), p99=at(0.99), longest=ordered[-1])

    def limit(self) -> str:
        """One line that says what limits now."""
        total = sum(self._causes.values())
        if total * math.log(2) / HALF_LIFE_S < _WORTH_TELLING:
            return NOTHING_LIMITS
        cause = max(self._causes, key=lambda each: self._causes[each])
        return f"{cause}: {self._causes[cause] / total:.0%} {_SENTENCES[cause]}"
