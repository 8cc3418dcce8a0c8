"""Time, tokens, cost and steps of attempts. Pure.

Attempts that failed and were tried again count too: what they used up is gone.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

from deskroll.report.intervals import percentile
from deskroll.report.summary import Consumption, Spread, StageTime
from deskroll.types import Episode, Stage


def consumption(attempts: Sequence[Episode]) -> Consumption:
    """What the attempts used up."""
    usages = [attempt.usage for attempt in attempts]
    joinable = sum(attempt.joinable for attempt in attempts)
    return Consumption(
        attempts=len(attempts),
        prompt_tokens=sum(usage.prompt_tokens for usage in usages),
        completion_tokens=sum(usage.completion_tokens for usage in usages),
        model_calls=sum(usage.calls for usage in usages),
        cost_usd=math.fsum(usage.cost_usd for usage in usages if usage.cost_usd is not None),
        cost_unknown=sum(usage.cost_usd is None and usage.calls > 0 for usage in usages),
        prefix_held=sum(attempt.joined for attempt in attempts) / joinable if joinable else None,
        steps=spread(attempt.steps for attempt in attempts),
        seconds=spread(max(0.0, attempt.ended_at - attempt.started_at) for attempt in attempts),
        phases=phase_times(attempts),
        desktops=len({attempt.desktop for attempt in attempts} - {""}),
    )


def phase_times(attempts: Sequence[Episode]) -> tuple[StageTime, ...]:
    """The seconds of each stage that took any, in the order of an episode; an attempt that lacks one spent 0 in it."""
    known = [stage.value for stage in Stage]
    others = sorted({name for attempt in attempts for name in attempt.seconds} - set(known))
    times = [(name, spread(attempt.seconds.get(name, 0.0) for attempt in attempts)) for name in known + others]
    everything = math.fsum(seconds.total for _, seconds in times)
    return tuple(
        StageTime(phase=name, seconds=seconds, share=seconds.total / everything)
        for name, seconds in times
        if seconds.total > 0
    )


def spread(values: Iterable[float]) -> Spread:
    """Total, mean, median and 95th percentile."""
    ordered = sorted(values)
    total = math.fsum(ordered)
    return Spread(
        total=total,
        mean=total / len(ordered) if ordered else 0.0,
        p50=percentile(ordered, 0.5),
        p95=percentile(ordered, 0.95),
    )


def time_under_way(attempts: Iterable[Episode]) -> float:
    """The seconds during which at least one of them ran."""
    total, until = 0.0, -math.inf
    for start, end in sorted((attempt.started_at, attempt.ended_at) for attempt in attempts):
        if end > until:
            total += end - max(start, until)
            until = end
    return total
