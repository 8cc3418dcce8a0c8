"""`summarise`: what a run came to, from nothing but its episodes. Pure.

Two denominators, always both: success over *attempted* (every planned episode that has an outcome; an episode that
the machine spoiled counts as no success) and success over *scored* (such episodes are left out). The truth about the
model lies between them, and they are equal when nothing broke.
"""

from __future__ import annotations

import heapq
import math
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Sequence

import msgspec

from deskroll.errors import FailureClass, plain
from deskroll.report.consumption import consumption, time_under_way
from deskroll.report.intervals import FLAT, Interval, clustered_rate, mean_interval, student_interval
from deskroll.report.outcome import NO_SCORE, by_group, by_task, unscored_because
from deskroll.report.passk import pass_at_k
from deskroll.report.summary import Estimate, FailureCount, Method, Missed, Summary, Tally
from deskroll.report.words import both_ends, counted
from deskroll.types import Episode, Record, Score

NO_DOMAIN = "(none)"
"""The name of the row of tasks without a domain."""
_LONGEST_EXAMPLE, _MOST_REASONS, _MOST_MISSED = 300, 5, 10
_CANCELLED = FailureClass.CANCELLED


class Plan(Record, frozen=True):
    """How many episodes of one phase and domain are planned."""

    phase: str
    domain: str
    episodes: int


def summarise(
    planned: int,
    episodes: Iterable[Episode],
    *,
    plan: Iterable[Plan] = (),
    retried: Iterable[Episode] = (),
    groups: Iterable[str] = (),
    whole: bool = True,
) -> Summary:
    """Sum up outcomes, one for each episode that has any.

    `planned` is the number of all planned episodes; `plan` says how they spread over domains and phases, where that is
    to be shown. `retried` are attempts that failed and were tried again, or were stopped with the run: they count for
    time, cost and failures only. `groups` says how each group ended, `whole` whether all is planned that was to be.
    """
    ended, shares, without = list(episodes), list(plan), list(retried)
    outcomes = [each for each in ended if not each.given_up]
    failed = [each for each in without if each.failure is None or each.failure.failure_class is not _CANCELLED]
    attempts = [each for each in ended if each.seconds or not each.given_up] + without
    wall = time_under_way(attempts)
    samples = max(map(len, by_group(ended).values()), default=0)
    overall = tally("all", planned, ended)
    phases = _parts(ended, lambda episode: episode.key.phase, [(each.phase, each.episodes) for each in shares])
    mixed = len(phases) > 1
    domains = _parts(
        ended,
        lambda episode: episode.domain or NO_DOMAIN,
        [(each.domain or NO_DOMAIN, each.episodes) for each in shares],
    )
    return Summary(
        finished=whole and len(ended) >= planned,
        overall=_unrated(overall) if mixed else overall,
        domains=tuple(map(_unrated, domains)) if mixed else domains,
        phases=phases if mixed else (),
        tasks=len(by_task(outcomes)),
        samples=samples,
        groups=dict(Counter(groups).most_common()) if samples > 1 else {},
        pass_at_k=() if mixed else pass_at_k(outcomes),
        stops=dict(Counter("given up" if each.given_up else each.stop.value for each in ended).most_common()),
        failures=failure_counts(outcomes, failed),
        no_score=_no_score(outcomes),
        missed=tuple(_missed(outcomes)),
        retried=len(failed),
        stopped=len(without) - len(failed),
        consumption=consumption(attempts),
        wall_s=wall,
        episodes_per_minute=len(outcomes) / wall * 60 if wall > 0 else None,
        notes=tuple(_notes(overall, whole, mixed)),
    )


def tally(name: str, planned: int | None, episodes: Sequence[Episode]) -> Tally:
    """Count the outcomes of one part of a run."""
    # Clusters: what differs by chance alone. The same task in another job is another trial.
    attempted: dict[tuple[str, str], list[float]] = defaultdict(list)
    scored: dict[tuple[str, str], list[float]] = defaultdict(list)
    won: dict[tuple[str, str], list[float]] = defaultdict(list)
    unscored: Counter[str] = Counter()
    tried = [each for each in episodes if not each.given_up]
    for episode in tried:
        score, task = episode.points, (episode.key.phase, episode.key.task)
        attempted[task].append(float(episode.success))
        if score is None:
            unscored[unscored_because(episode)] += 1
        else:
            scored[task].append(score)
            won[task].append(float(episode.success))
    return Tally(
        name=name,
        planned=planned,
        attempted=len(tried),
        scored=len(tried) - unscored.total(),
        unscored=unscored.total(),
        unscored_by=dict(unscored.most_common()),
        given_up=len(episodes) - len(tried),
        successes=round(sum(map(sum, won.values()))),
        over_attempted=_rate(list(attempted.values())),
        over_scored=_rate(list(won.values())),
        mean_score=_mean_score(list(scored.values())),
    )


def _unrated(part: Tally) -> Tally:
    """The counts of a part alone."""
    nothing = _estimate(None, None, Method.NONE)
    return msgspec.structs.replace(part, over_attempted=nothing, over_scored=nothing, mean_score=nothing)


def _mean_score(tasks: list[list[float]]) -> Estimate:
    flat = student_interval(tasks)
    method = Method.WILSON if flat is not None and flat.high - flat.low < FLAT else Method.STUDENT_T
    return _estimate(_mean(tasks), mean_interval(tasks), method)


def _rate(tasks: list[list[float]]) -> Estimate:
    single = all(len(values) == 1 for values in tasks)
    return _estimate(_mean(tasks), clustered_rate(tasks), Method.WILSON if single else Method.WILSON_BY_TASK)


def _mean(tasks: Iterable[Sequence[float]]) -> float | None:
    values = [value for task in tasks for value in task]
    return math.fsum(values) / len(values) if values else None


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
    return tuple(tally(name, planned.get(name, 0) if planned else None, parts[name]) for name in sorted(parts))


def failure_counts(outcomes: Iterable[Episode], retried: Iterable[Episode]) -> tuple[FailureCount, ...]:
    """Failures by class, in the order of `FailureClass`; classes without any are left out."""
    final, scored, again = Counter[FailureClass](), Counter[FailureClass](), Counter[FailureClass]()
    kinds: dict[FailureClass, Counter[str]] = defaultdict(Counter)
    said: dict[tuple[FailureClass, str], str] = {}
    for counts, episodes in ((final, outcomes), (again, retried)):
        for episode in episodes:
            if episode.failure is None:
                continue
            culprit = episode.failure.failure_class
            counts[culprit] += 1
            kinds[culprit][episode.failure.kind] += 1
            said.setdefault((culprit, episode.failure.kind), episode.failure.message)
            scored[culprit] += counts is final and episode.points is not None
    return tuple(
        FailureCount(
            failure_class=culprit.value,
            final=final[culprit],
            scored=scored[culprit],
            retried=again[culprit],
            kinds=dict(kinds[culprit].most_common()),
            example=both_ends(said[culprit, kinds[culprit].most_common(1)[0][0]], _LONGEST_EXAMPLE),
        )
        for culprit in FailureClass
        if final[culprit] or again[culprit]
    )


def _no_score(outcomes: Iterable[Episode]) -> dict[str, int]:
    reasons = Counter(
        plain(episode.score.reason, _LONGEST_EXAMPLE) or "no reason is given"
        for episode in outcomes
        if episode.points is None and unscored_because(episode) == NO_SCORE
    )
    return dict(reasons.most_common(_MOST_REASONS))


def _missed(outcomes: Iterable[Episode]) -> list[Missed]:
    told = (each for each in outcomes if each.failure is None or _is_compared(each.score))
    scored = ((each, score) for each in told if (score := each.points) is not None and not each.success)
    first = heapq.nsmallest(_MOST_MISSED, scored, key=lambda pair: pair[0].key)
    return [
        Missed(
            task=each.key.task, sample=each.key.sample, score=score, reason=each.score.reason,
            found=each.score.found, expected=each.score.expected,
        )
        for each, score in first
    ]  # fmt: skip


def _is_compared(score: Score) -> bool:
    return (score.found, score.expected) != (None, None)


def _notes(overall: Tally, whole: bool, mixed: bool) -> Iterable[str]:
    if not whole:
        yield "Not all episodes of the run are planned yet: what is shown is a part of it."
    ended = overall.attempted + overall.given_up
    if overall.planned is not None and ended < overall.planned:
        have = "has" if ended == 1 else "have"
        yield (
            f"The run is not finished: {ended:,} of {counted(overall.planned, 'planned episode')} {have} "
            "an outcome; the others count nowhere."
        )
    if overall.unscored:
        one = overall.unscored == 1
        yield (
            f"{overall.unscored:,} of {counted(overall.attempted, 'attempted episode')} "
            + (
                "has no score: over attempted it counts as no success, over scored it is left out."
                if one
                else "have no score: over attempted they count as no success, over scored they are left out."
            )
        )
    if overall.given_up:
        were, they = ("was", "counts") if overall.given_up == 1 else ("were", "count")
        yield (
            f"{counted(overall.given_up, 'episode')} {were} given up by the group's policy, and {they} neither as "
            "attempted nor as scored."
        )
    if mixed:
        yield "The run has several phases, each of which has its own rates: over all of them there is none."
    if overall.over_attempted.method is Method.WILSON_BY_TASK:
        yield (
            "Tasks have several samples, which are not independent: the intervals are those of clusters, one a task, "
            "and wider than if each episode stood for itself."
        )
