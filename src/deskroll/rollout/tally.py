"""Tally: how a run stands, counted as it goes: for progress, status and metrics."""

from __future__ import annotations

from collections import Counter

from deskroll.store.index import Outcome
from deskroll.types import Episode, Record, is_success

_NO_FAILURE = "none"


class Standing(Record, frozen=True, omit_defaults=False):
    """The counts at one moment."""

    planned: int
    done: int
    """Episodes with an outcome, those of earlier starts included."""
    before: int
    """Of these, how many earlier starts had done."""
    scored: int
    successes: int
    score_sum: float
    unscored: dict[str, int]
    """Outcomes without a score, by the class of their failure."""
    retried: dict[str, int]
    """Attempts that were made again, by the class of their failure."""
    tokens: int
    cost_usd: float
    unpriced: int
    """Outcomes whose cost is not known."""
    seconds: dict[str, float]
    """By stage, over all attempts of this start."""

    @property
    def failed(self) -> int:
        """Outcomes without a score because something failed, and not because nobody wanted one."""
        return sum(count for failure, count in self.unscored.items() if failure != _NO_FAILURE)


class Tally:
    """Counts outcomes."""

    def __init__(self) -> None:
        self._planned = self._done = self._before = self._scored = self._successes = self._unpriced = 0
        self._score = self._cost = 0.0
        self._tokens = 0
        self._unscored: Counter[str] = Counter()
        self._retried: Counter[str] = Counter()
        self._seconds: dict[str, float] = {}

    def planned(self, episodes: int) -> None:
        """So many episodes are to be there in the end."""
        self._planned += episodes

    def sealed(self, episode: Episode) -> None:
        """One has its outcome."""
        self._count(episode)
        self._used(episode)

    def sealed_before(self, outcome: Outcome) -> None:
        """One had its outcome from an earlier start."""
        self._before += 1
        self._count(outcome)

    def _count(self, episode: Outcome) -> None:
        self._done += 1
        if episode.score.value is None:
            self._unscored[episode.failure.failure_class if episode.failure else _NO_FAILURE] += 1
        else:
            self._scored += 1
            self._successes += is_success(episode.score.value)
            self._score += episode.score.value

    def failed(self, episode: Episode, *, again: bool) -> None:
        """An attempt failed and is no outcome."""
        if again and episode.failure is not None:
            self._retried[episode.failure.failure_class] += 1
        self._used(episode)

    def standing(self) -> Standing:
        """The counts now."""
        return Standing(
            planned=self._planned,
            done=self._done,
            before=self._before,
            scored=self._scored,
            successes=self._successes,
            score_sum=self._score,
            unscored=dict(self._unscored),
            retried=dict(self._retried),
            tokens=self._tokens,
            cost_usd=self._cost,
            unpriced=self._unpriced,
            seconds=dict(self._seconds),
        )

    def _used(self, episode: Episode) -> None:
        self._tokens += episode.usage.prompt_tokens + episode.usage.completion_tokens
        if episode.usage.cost_usd is None:
            self._unpriced += 1
        else:
            self._cost += episode.usage.cost_usd
        for stage, seconds in episode.seconds.items():
            self._seconds[stage] = self._seconds.get(stage, 0.0) + seconds
