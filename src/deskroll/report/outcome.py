"""One episode's outcome: whether it is scored, whether it is a success, whose fault it is if not. Pure.

The one place that decides it, for every statistic and every view:
a score that is there counts; an agent's own failure counts as 0 even where nobody wrote the 0 down; all else that has
no score is unscored, with the class of its failure; but what its group gave up is neither
attempted nor scored.
"""

from __future__ import annotations

import enum
from collections import defaultdict
from collections.abc import Iterable

from deskroll.errors import FailureClass
from deskroll.types import Episode, StopReason

NO_SCORE = "no_score"
"""Nothing failed, and yet nobody gave a score."""


class Outcome(enum.StrEnum):
    """What came of an episode."""

    SUCCESS = "success"
    PARTIAL = "partial"
    """Scored, more than nothing, less than all."""
    FAILED = "failed"
    """Scored, with nothing."""
    UNSCORED = "unscored"
    GIVEN_UP = "given_up"
    """Its group's policy did not want it any more."""


def outcome_of(episode: Episode) -> Outcome:
    """What came of it."""
    points = episode.points
    if points is None:
        return Outcome.GIVEN_UP if episode.given_up else Outcome.UNSCORED
    if episode.success:
        return Outcome.SUCCESS
    return Outcome.PARTIAL if points > 0 else Outcome.FAILED


def unscored_because(episode: Episode) -> str:
    """Whose fault it is that there is no score."""
    if episode.given_up:
        return Outcome.GIVEN_UP.value
    if episode.failure is not None:
        return episode.failure.failure_class.value
    return FailureClass.CANCELLED.value if episode.stop is StopReason.CANCELLED else NO_SCORE


def by_task(episodes: Iterable[Episode]) -> dict[str, list[Episode]]:
    """The episodes of each task, over all its samples, rounds and phases."""
    tasks: dict[str, list[Episode]] = defaultdict(list)
    for episode in episodes:
        tasks[episode.key.task].append(episode)
    return dict(tasks)


def by_group(episodes: Iterable[Episode]) -> dict[tuple[str, int, str], list[Episode]]:
    """The samples of each task in one round of one phase: those that differ by chance alone."""
    groups: dict[tuple[str, int, str], list[Episode]] = defaultdict(list)
    for episode in episodes:
        groups[episode.key.phase, episode.key.round, episode.key.task].append(episode)
    return dict(groups)
