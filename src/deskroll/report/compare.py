"""`compare`: two runs over the same tasks, task by task. Pure.

Runs are paired by task: a task's samples, whatever their phase and round, become its mean score in that run, so that
several samples of a task count once. Only tasks that are scored in both take part in the tests; the others are listed
with what they lack. Of single samples, success is compared (McNemar's exact test); of several samples or parts of
points, the mean scores are (paired sign-flip permutation test). `b` is the newer one: better means better in `b`.
"""

from __future__ import annotations

import enum
import math
from collections.abc import Collection, Iterable, Sequence

from deskroll.report.intervals import Interval
from deskroll.report.outcome import by_task, unscored_because
from deskroll.report.significance import mcnemar, paired_means, paired_rates, sign_flip
from deskroll.types import Episode, Record

SIGNIFICANT = 0.05
FEWEST = 5
"""With fewer tasks in both, no test finds anything, whatever the runs are like."""
_SAME = 1e-9


class Change(enum.StrEnum):
    """How the outcome of a task differs between two runs."""

    BETTER = "better"
    WORSE = "worse"
    UNSCORED_IN_A = "unscored_in_a"
    UNSCORED_IN_B = "unscored_in_b"
    NOT_DONE_IN_A = "not_done_in_a"
    """It is planned there, and has no outcome yet."""
    NOT_DONE_IN_B = "not_done_in_b"
    ONLY_IN_A = "only_in_a"
    ONLY_IN_B = "only_in_b"


class Procedure(enum.StrEnum):
    """How the p-value was made."""

    MCNEMAR = "mcnemar_exact"
    SIGN_FLIP = "sign_flip_permutation"
    NONE = "none"
    """No task is scored in both runs."""


class Side(Record, frozen=True):
    """What one run made of a task."""

    score: float | None
    """The mean over its scored samples."""
    samples: int
    scored: int
    unscored_by: tuple[str, ...]
    """Whose fault the missing scores are, each once."""
    answer: str | None
    """Of the first sample."""


class TaskChange(Record, frozen=True):
    """A task whose outcome differs; a side is null where the run has no outcome of it."""

    task: str
    domain: str
    change: Change
    a: Side | None
    b: Side | None


class Comparison(Record, frozen=True):
    """What changed from run `a` to run `b`."""

    a: str
    b: str
    tasks: int
    """Tasks that have an outcome in either."""
    paired: int
    """Tasks that are scored in both: only they are tested."""
    better: int
    worse: int
    same: int
    unscored_in_both: int
    mean_a: float | None
    """Success rate (or mean score, see `test`) over the paired tasks."""
    mean_b: float | None
    difference: float | None
    """`mean_b` less `mean_a`."""
    low: float | None
    """The 95% interval of the difference."""
    high: float | None
    test: Procedure
    p_value: float | None
    verdict: str
    """What it means, in one sentence."""
    changes: tuple[TaskChange, ...]
    """Every task that differs, the worse ones first."""


Plans = tuple[Collection[str], Collection[str]]
"""The tasks that each run plans."""


def compare(
    a: Iterable[Episode], b: Iterable[Episode], names: tuple[str, str] = ("A", "B"), plans: Plans = ((), ())
) -> Comparison:
    """Compare the outcomes of two runs, the older one first; `plans` tells tasks that are missing from undone ones."""
    left, right = by_task(a), by_task(b)
    tasks = sorted({*left, *right})
    rows = [(task, left.get(task, []), right.get(task, [])) for task in tasks]
    paired = [(x, y) for _, x, y in rows if _mean(x) is not None and _mean(y) is not None]
    changes = [change for row in rows if (change := _change(*row, plans)) is not None]
    order = list(Change)
    worst_first = [order[1], order[0], *order[2:]]
    changes.sort(key=lambda change: (worst_first.index(change.change), change.domain, change.task))
    count = [change.change for change in changes].count
    test, p_value, means, interval = _tested(paired)
    difference = means[1] - means[0] if means else None
    return Comparison(
        a=names[0],
        b=names[1],
        tasks=len(tasks),
        paired=len(paired),
        better=count(Change.BETTER),
        worse=count(Change.WORSE),
        same=len(paired) - count(Change.BETTER) - count(Change.WORSE),
        unscored_in_both=sum(bool(x and y) and _mean(x) is None and _mean(y) is None for _, x, y in rows),
        mean_a=means[0] if means else None,
        mean_b=means[1] if means else None,
        difference=difference,
        low=interval.low if interval else None,
        high=interval.high if interval else None,
        test=test,
        p_value=p_value,
        verdict=_verdict(names, difference, p_value, len(paired)),
        changes=tuple(changes),
    )


Pairs = Sequence[tuple[list[Episode], list[Episode]]]


def _tested(pairs: Pairs) -> tuple[Procedure, float | None, tuple[float, float] | None, Interval | None]:
    if not pairs:
        return Procedure.NONE, None, None, None
    scores = [(_mean(x) or 0.0, _mean(y) or 0.0) for x, y in pairs]
    means = tuple(math.fsum(side) / len(pairs) for side in zip(*scores, strict=True))
    if all(len(x) == len(y) == 1 for x, y in pairs) and all(_whole(a) and _whole(b) for a, b in scores):
        gained = sum(y[0].success and not x[0].success for x, y in pairs)
        lost = sum(x[0].success and not y[0].success for x, y in pairs)
        interval = paired_rates(gained, lost, len(pairs))
        return Procedure.MCNEMAR, mcnemar(gained, lost), (means[0], means[1]), interval
    differences = [y - x for x, y in scores]
    return Procedure.SIGN_FLIP, sign_flip(differences), (means[0], means[1]), paired_means(differences)


def _whole(score: float) -> bool:
    return abs(score) < _SAME or abs(score - 1) < _SAME


def _mean(episodes: Sequence[Episode]) -> float | None:
    scores = [score for episode in episodes if (score := episode.points) is not None]
    return math.fsum(scores) / len(scores) if scores else None


def _change(task: str, a: list[Episode], b: list[Episode], plans: Plans) -> TaskChange | None:
    kind = _kind(a, b) if a and b else _missing(task, in_b=bool(b), plans=plans)
    if kind is None:
        return None
    return TaskChange(task=task, domain=(a or b)[0].domain, change=kind, a=_side(a), b=_side(b))


def _kind(a: list[Episode], b: list[Episode]) -> Change | None:
    before, after = _mean(a), _mean(b)
    if before is None or after is None:
        if before is None and after is None:
            return None
        return Change.UNSCORED_IN_A if before is None else Change.UNSCORED_IN_B
    if abs(after - before) < _SAME:
        return None
    return Change.BETTER if after > before else Change.WORSE


def _missing(task: str, *, in_b: bool, plans: Plans) -> Change:
    if in_b:
        return Change.NOT_DONE_IN_A if task in plans[0] else Change.ONLY_IN_B
    return Change.NOT_DONE_IN_B if task in plans[1] else Change.ONLY_IN_A


def _side(given: list[Episode]) -> Side | None:
    if not (episodes := [each for each in given if not each.given_up] or given):
        return None
    unscored = [unscored_because(episode) for episode in episodes if episode.points is None]
    first = min(episodes, key=lambda episode: episode.key)
    return Side(
        score=_mean(episodes),
        samples=len(episodes),
        scored=len(episodes) - len(unscored),
        unscored_by=tuple(dict.fromkeys(unscored)),
        answer=first.answer,
    )


def _verdict(names: tuple[str, str], difference: float | None, p_value: float | None, paired: int) -> str:
    a, b = names
    if difference is None or p_value is None:
        return f"{a} and {b} have no task that is scored in both, so nothing can be said about which is better."
    tasks = f"the {paired} tasks that are scored in both" if paired > 1 else "the one task that is scored in both"
    too_few = paired < FEWEST
    if abs(difference) < _SAME:
        return f"{b} and {a} are equally good over {tasks}{': too few to tell them apart' if too_few else ''}."
    direction = "better" if difference > 0 else "worse"
    size = f"{abs(difference) * 100:.1f} points {direction} than {a} over {tasks}"
    if too_few:
        return f"{b} is {size}: too few to tell which is better."
    if p_value < SIGNIFICANT:
        return f"{b} is {size}, more than chance would explain (p {shown_p(p_value)})."
    return f"{b} is {size}, which may well be chance (p {shown_p(p_value)})."


def shown_p(p_value: float) -> str:
    """A p-value as people write it after the letter p."""
    return f"= {p_value:.3f}" if p_value >= 0.001 else "< 0.001"
