"""Tally: how a run stands, counted from its events: for progress, status and metrics."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence

from deskroll.errors import FailureClass
from deskroll.events import AttemptEnded, AttemptRetried, BatchPlanned, EpisodeSealed
from deskroll.store.index import Outcome
from deskroll.types import EpisodeKey, Record, is_success

_NO_FAILURE = "none"
_NUMBERS = frozenset({"planned", "done", "sealed", "scored", "successes", "score_sum"})


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
        return sum(count for failure, count in self.unscored.items() if failure != _NO_FAILURE)


class Tally:
    """Counts outcomes."""

    def __init__(self) -> None:
        self._rounds: dict[tuple[str, int], dict[str, float]] = {}
        """The counts of each phase and round: a few numbers beside what the store's index knows of their episodes."""
        self._all: defaultdict[str, float] = defaultdict(int)
        """Those of all: numbers by their names, and outcomes without a score by the class of their failure."""
        self._tokens = self._unpriced = 0
        self._cost = 0.0
        self._retried: Counter[str] = Counter()
        self._seconds: dict[str, float] = {}

    def plan(self, event: BatchPlanned) -> None:
        """So many more episodes are to be there in the end, and some are there already."""
        counts = self._rounds.get((event.phase, event.round), {})
        if event.first:
            self._add(event, {name: -number for name, number in counts.items() if name != "sealed"})
        numbers = {"planned": event.episodes, "score_sum": event.score_sum, **event.unscored}
        self._add(event, {**numbers, "done": event.done, "scored": event.scored, "successes": event.successes})

    def seal(self, event: EpisodeSealed) -> None:
        """One has its outcome."""
        more: dict[str, float] = {_class_of(event.failure): 1}
        if (score := event.score) is not None:
            more = {"scored": 1, "successes": is_success(score), "score_sum": score}
        self._add(event.key, {"done": 1, "sealed": 1, **more})

    def _add(self, to: BatchPlanned | EpisodeKey, more: Mapping[str, float]) -> None:
        counts = self._rounds.setdefault((to.phase, to.round), {})
        for name, number in more.items():
            counts[name] = counts.get(name, 0) + number
            self._all[name] += number

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
        counts = self._all
        return Standing(
            planned=int(counts["planned"]),
            done=int(counts["done"]),
            before=max(0, int(counts["done"] - counts["sealed"])),
            scored=int(counts["scored"]),
            successes=int(counts["successes"]),
            score_sum=counts["score_sum"],
            unscored={name: int(number) for name, number in counts.items() if number and name not in _NUMBERS},
            retried=dict(self._retried),
            tokens=self._tokens,
            cost_usd=None if self._unpriced and not self._cost else self._cost,
            unpriced=self._unpriced,
            seconds=dict(self._seconds),
        )


def batch_planned(
    phase: str, round_: int, episodes: int, before: Sequence[Outcome], *, first: bool = True
) -> BatchPlanned:
    """The event of a plan, given the outcomes that are there already."""
    values = [each.score.value for each in before if each.score.value is not None]
    failures = [each.failure for each in before if each.score.value is None]
    unscored = Counter(_class_of(each.failure_class if each else None) for each in failures)
    return BatchPlanned(
        phase=phase, round=round_, first=first, episodes=episodes, done=len(values) + unscored.total(),
        scored=len(values), successes=sum(map(is_success, values)), score_sum=sum(values), unscored=dict(unscored),
    )  # fmt: skip


def _class_of(failure: FailureClass | None) -> str:
    return _NO_FAILURE if failure is None else failure
