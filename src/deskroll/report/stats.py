"""`summarise`: what a run came to, from nothing but its episodes. Pure.

Two denominators, always both: success over *attempted* (every planned episode that has an outcome; an episode that
the machine spoiled counts as no success) and success over *scored* (such episodes are left out). The truth about the
model lies between them, and they are equal when nothing broke.
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence

from deskroll.errors import FailureClass
from deskroll.report.consumption import consumption, time_under_way
from deskroll.report.intervals import Interval, clustered_rate, mean_interval
from deskroll.report.outcome import by_group, by_task, score_of, succeeded, unscored_because
from deskroll.report.passk import pass_at_k
from deskroll.report.summary import Estimate, FailureCount, Method, Summary, Tally
from deskroll.types import Episode, Record

NO_DOMAIN = "(none)"
"""The name of the row of tasks without a domain."""


class Plan(Record, frozen=True):
    """How many episodes of one phase and domain are planned."""

    phase: str
    domain: str
    episodes: int


def summarise(
    planned: int, episodes: Iterable[Episode], *, plan: Iterable[Plan] = (), retried: Iterable[Episode] = ()
) -> Summary:
    """Sum up outcomes, one for each episode that has any.

    `planned` is the number of all planned episodes; `plan` says how they spread over domains and phases, where that is
    to be shown. `retried` are attempts that failed and were tried again: they count for time, cost and failures only.
    """
    outcomes, failed, shares = list(episodes), list(retried), list(plan)
    attempts = outcomes + failed
    wall = time_under_way(attempts)
    samples = max(map(len, by_group(outcomes).values()), default=0)
    overall = tally("all", planned, outcomes)
    phases = _parts(outcomes, lambda episode: episode.key.phase, [(each.phase, each.episodes) for each in shares])
    return Summary(
        finished=len(outcomes) >= planned,
        overall=overall,
        domains=_parts(
            outcomes,
            lambda episode: episode.domain or NO_DOMAIN,
            [(each.domain or NO_DOMAIN, each.episodes) for each in shares],
        ),
        phases=phases if len(phases) > 1 else (),
        tasks=len(by_task(outcomes)),
        samples=samples,
        pass_at_k=pass_at_k(outcomes),
        stops=dict(Counter(episode.stop.value for episode in outcomes).most_common()),
        failures=failure_counts(outcomes, failed),
        retried=len(failed),
        consumption=consumption(attempts),
        wall_s=wall,
        episodes_per_minute=len(outcomes) / wall * 60 if wall > 0 else None,
        notes=tuple(_notes(overall)),
    )


def tally(name: str, planned: int | None, episodes: Sequence[Episode]) -> Tally:
    """Count the outcomes of one part of a run."""
    scores = [score for episode in episodes if (score := score_of(episode)) is not None]
    successes = sum(map(succeeded, episodes))
    unscored = Counter(unscored_because(episode) for episode in episodes if score_of(episode) is None)
    scored = [episode for episode in episodes if score_of(episode) is not None]
    return Tally(
        name=name,
        planned=planned,
        attempted=len(episodes),
        scored=len(scores),
        unscored=len(episodes) - len(scores),
        unscored_by=dict(unscored.most_common()),
        successes=successes,
        over_attempted=_rate(episodes),
        over_scored=_rate(scored),
        mean_score=_mean(scored),
    )


def _rate(episodes: Sequence[Episode]) -> Estimate:
    tasks = [[float(succeeded(each)) for each in group] for group in by_task(episodes).values()]
    single = len(tasks) == len(episodes)
    value = sum(map(succeeded, episodes)) / len(episodes) if episodes else None
    return _estimate(value, clustered_rate(tasks), Method.WILSON if single else Method.WILSON_BY_TASK)


def _mean(scored: Sequence[Episode]) -> Estimate:
    tasks = [[score_of(each) or 0.0 for each in group] for group in by_task(scored).values()]
    value = math.fsum(map(math.fsum, tasks)) / len(scored) if scored else None
    return _estimate(value, mean_interval(tasks), Method.STUDENT_T)


def _estimate(value: float | None, interval: Interval | None, method: Method) -> Estimate:
    if interval is None:
        return Estimate(value=value, low=None, high=None, method=Method.NONE)
    return Estimate(value=value, low=interval.low, high=interval.high, method=method)


def _parts(
    episodes: Iterable[Episode], name_of: Callable[[Episode], str], plan: Iterable[tuple[str, int]]
) -> tuple[Tally, ...]:
    planned: dict[str, int] = defaultdict(int)
    for name, number in plan:
        planned[name] += number
    parts: dict[str, list[Episode]] = {name: [] for name in planned}
    for episode in episodes:
        parts.setdefault(name_of(episode), []).append(episode)
    return tuple(tally(name, _planned(planned, name), parts[name]) for name in sorted(parts))


def _planned(planned: Mapping[str, int], name: str) -> int | None:
    return planned.get(name, 0) if planned else None


def failure_counts(outcomes: Iterable[Episode], retried: Iterable[Episode]) -> tuple[FailureCount, ...]:
    """Failures by class, in the order of `FailureClass`; classes without any are left out."""
    final, scored, again = Counter[FailureClass](), Counter[FailureClass](), Counter[FailureClass]()
    kinds: dict[FailureClass, Counter[str]] = defaultdict(Counter)
    for counts, episodes in ((final, outcomes), (again, retried)):
        for episode in episodes:
            if episode.failure is None:
                continue
            culprit = episode.failure.failure_class
            counts[culprit] += 1
            kinds[culprit][episode.failure.kind] += 1
            scored[culprit] += counts is final and score_of(episode) is not None
    return tuple(
        FailureCount(
            failure_class=culprit.value,
            final=final[culprit],
            scored=scored[culprit],
            retried=again[culprit],
            kinds=dict(kinds[culprit].most_common()),
        )
        for culprit in FailureClass
        if final[culprit] or again[culprit]
    )


def _notes(overall: Tally) -> Iterable[str]:
    if overall.planned is not None and overall.attempted < overall.planned:
        yield (
            f"The run is not finished: {overall.attempted} of {overall.planned} planned episodes have an outcome; "
            "the others count nowhere."
        )
    if overall.unscored:
        yield (
            f"{overall.unscored} of {overall.attempted} attempted episodes have no score: over attempted they count as "
            "no success, over scored they are left out."
        )
    if overall.over_attempted.method is Method.WILSON_BY_TASK:
        yield (
            "Tasks have several samples, which are not independent: the intervals are those of clusters, one a task, "
            "and wider than if each episode stood for itself."
        )
