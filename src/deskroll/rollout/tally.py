"""Tally: how a run stands, counted from its events: for progress, status and metrics."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from deskroll.errors import FailureClass
from deskroll.events import AttemptEnded, AttemptRetried, EpisodeSealed, JobStarted
from deskroll.store.index import Outcome
from deskroll.types import Record, is_success

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
    """Attempts whose cost is not known."""
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

    def begin(self, event: JobStarted) -> None:
        """So many more episodes are to be there in the end, and some are there already."""
        self._planned += event.episodes
        self._before += event.done
        self._done += event.done
        self._scored += event.scored
        self._successes += event.successes
        self._score += event.score_sum
        self._unscored.update(event.unscored)

    def seal(self, event: EpisodeSealed) -> None:
        """One has its outcome."""
        self._done += 1
        if event.score is None:
            self._unscored[_class_of(event.failure)] += 1
        else:
            self._scored += 1
            self._successes += is_success(event.score)
            self._score += event.score

    def retry(self, event: AttemptRetried) -> None:
        """An attempt failed and is made again."""
        if event.failure is not None:
            self._retried[event.failure] += 1

    def spend(self, event: AttemptEnded) -> None:
        """An attempt is over, whatever came of it."""
        self._tokens += event.tokens
        if event.cost_usd is None:
            self._unpriced += 1
        else:
            self._cost += event.cost_usd
        for stage, seconds in event.seconds.items():
            self._seconds[stage] = self._seconds.get(stage, 0.0) + seconds

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


def begin_job(phase: str, round_: int, episodes: int, before: Iterable[Outcome]) -> JobStarted:
    """The event of a job's beginning, given the outcomes that earlier starts have left of it."""
    done = scored = successes = 0
    score = 0.0
    unscored: Counter[str] = Counter()
    for each in before:
        done += 1
        if each.score.value is None:
            unscored[_class_of(each.failure.failure_class if each.failure else None)] += 1
        else:
            scored += 1
            successes += is_success(each.score.value)
            score += each.score.value
    return JobStarted(
        phase=phase, round=round_, episodes=episodes, done=done, scored=scored, successes=successes, score_sum=score,
        unscored=dict(unscored),
    )  # fmt: skip


def _class_of(failure: FailureClass | None) -> str:
    return _NO_FAILURE if failure is None else failure
