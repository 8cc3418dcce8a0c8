"""Tally: how a run stands, counted from its events: for progress, status and metrics."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence

from deskroll.errors import FailureClass
from deskroll.events import AttemptEnded, AttemptRetried, BatchPlanned, EpisodeSealed
from deskroll.store.index import Outcome
from deskroll.types import EpisodeKey, Record, is_success

_NO_FAILURE = "none"
GIVEN_UP = "given_up"
"""Among outcomes without a score: those that the policy of their group did not want any more."""


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
    cost_usd: float | None
    """The part that is known; None where nothing of it is."""
    unpriced: int
    """Attempts whose cost is not known."""
    seconds: dict[str, float]
    """By stage, over all attempts of this start."""

    @property
    def failed(self) -> int:
        """Outcomes without a score because something failed, and not because nobody wanted one."""
        return sum(count for failure, count in self.unscored.items() if failure not in (_NO_FAILURE, GIVEN_UP))


class _Counts:
    """Some episodes, counted."""

    def __init__(self) -> None:
        self.numbers: defaultdict[str, float] = defaultdict(int)
        """By the names that they have in a standing."""
        self.unscored: Counter[str] = Counter()
        """Outcomes without a score, by the class of their failure."""

    def add(self, numbers: Mapping[str, float], unscored: Mapping[str, int]) -> None:
        """Count more."""
        for name, number in numbers.items():
            self.numbers[name] += number
        self.unscored.update(unscored)

    def take_off(self, other: _Counts) -> None:
        """Count these no more."""
        for name, number in other.numbers.items():
            self.numbers[name] -= number
        self.unscored.subtract(other.unscored)


class Tally:
    """Counts outcomes."""

    def __init__(self) -> None:
        self._rounds: defaultdict[tuple[str, int], _Counts] = defaultdict(_Counts)
        """Of each phase and round: a few numbers beside what the store's index knows of their episodes."""
        self._all = _Counts()
        self._tokens = self._unpriced = 0
        self._cost = 0.0
        self._retried: Counter[str] = Counter()
        self._seconds: dict[str, float] = {}

    def plan(self, event: BatchPlanned) -> None:
        """So many more episodes are to be there in the end, and some are there already."""
        if event.first:
            self._all.take_off(self._rounds.pop((event.phase, event.round), _Counts()))
        numbers = {
            "planned": event.episodes, "done": event.done, "before": event.done - event.own, "scored": event.scored,
            "successes": event.successes, "score_sum": event.score_sum,
        }  # fmt: skip
        self._add(event, numbers, event.unscored)

    def seal(self, event: EpisodeSealed) -> None:
        """One has its outcome."""
        if (score := event.score) is None:
            self._add(event.key, {"done": 1}, {_class_of(event.failure): 1})
        else:
            self._add(event.key, {"done": 1, "scored": 1, "successes": is_success(score), "score_sum": score}, {})

    def _add(self, to: BatchPlanned | EpisodeKey, numbers: Mapping[str, float], unscored: Mapping[str, int]) -> None:
        for counts in (self._rounds[to.phase, to.round], self._all):
            counts.add(numbers, unscored)

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
        numbers = self._all.numbers
        return Standing(
            planned=int(numbers["planned"]),
            done=int(numbers["done"]),
            before=int(numbers["before"]),
            scored=int(numbers["scored"]),
            successes=int(numbers["successes"]),
            score_sum=numbers["score_sum"],
            unscored={name: number for name, number in self._all.unscored.items() if number},
            retried=dict(self._retried),
            tokens=self._tokens,
            cost_usd=None if self._unpriced and not self._cost else self._cost,
            unpriced=self._unpriced,
            seconds=dict(self._seconds),
        )


def batch_planned(
    phase: str, round_: int, episodes: int, before: Sequence[Outcome], *, own: int = 0, first: bool = True
) -> BatchPlanned:
    """The event of a plan, given the outcomes that are there already; `own`: so many of them are of this start."""
    values = [each.score.value for each in before if each.score.value is not None]
    failures = [each.failure for each in before if each.score.value is None]
    unscored = Counter(_class_of(each.failure_class if each else None) for each in failures)
    return BatchPlanned(
        phase=phase, round=round_, first=first, episodes=episodes, done=len(values) + unscored.total(), own=own,
        scored=len(values), successes=sum(map(is_success, values)), score_sum=sum(values), unscored=dict(unscored),
    )  # fmt: skip


def _class_of(failure: FailureClass | None) -> str:
    if failure is FailureClass.CANCELLED:  # an outcome is that only where it was given up
        return GIVEN_UP
    return _NO_FAILURE if failure is None else failure
