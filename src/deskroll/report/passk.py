"""pass@k and pass^k, from all scored samples of every task. Pure.

The estimates are the unbiased ones: of the ways to draw k of a task's n scored samples, the share in which at least one
(pass@k) or every one (pass^k) is a success. Taking 'the first k' would throw samples away and depend on their order.
Unscored samples are left out of n; a task with less than k scored samples is left out of that k, and counted.
"""

from __future__ import annotations

import math
from collections.abc import Iterable

from deskroll.report.outcome import by_group
from deskroll.report.summary import PassAtK
from deskroll.types import Episode


def any_of(samples: int, successes: int, k: int) -> float:
    """The chance that k of the samples, drawn without putting back, hold a success."""
    return 1 - math.comb(samples - successes, k) / math.comb(samples, k)


def all_of(samples: int, successes: int, k: int) -> float:
    """The chance that k of the samples, drawn without putting back, are all successes."""
    return math.comb(successes, k) / math.comb(samples, k)


def pass_at_k(episodes: Iterable[Episode]) -> tuple[PassAtK, ...]:
    """For k = 1, 2, 4, 8 ... up to the most scored samples of a task; nothing where each has a single one."""
    groups = by_group(episodes)
    counts = [
        (sum(episode.points is not None for episode in group), sum(each.success for each in group))
        for group in groups.values()
    ]
    if max(map(len, groups.values()), default=0) < 2:
        return ()
    most = max(samples for samples, _ in counts)
    rows = []
    for k in (2**power for power in range(most.bit_length())):
        used = [(samples, successes) for samples, successes in counts if samples >= k]
        rows.append(
            PassAtK(
                k=k,
                any_of_k=math.fsum(any_of(*count, k) for count in used) / len(used),
                all_of_k=math.fsum(all_of(*count, k) for count in used) / len(used),
                tasks=len(used),
                left_out=len(counts) - len(used),
            )
        )
    return tuple(rows)
