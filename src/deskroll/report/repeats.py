"""Several runs beside each other, as repeats of one experiment: each rate, all together, how far they scatter. Pure."""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Iterable, Mapping, Sequence

from deskroll.report.stats import tally
from deskroll.report.summary import Estimate, Tally
from deskroll.report.words import counted
from deskroll.types import Episode, Record


class Scatter(Record, frozen=True):
    """How far the rates of repeats lie apart."""

    runs: int
    """Runs that have a rate at all."""
    mean: float | None
    """Of the rates: each run counts the same."""
    deviation: float | None
    """Their standard deviation (n - 1)."""
    lowest: float | None
    highest: float | None
    expected: float | None
    """The standard deviation that chance alone gives to independent episodes with one rate (binomial). Repeats over
    the same tasks scatter less than this; more than this means that something else differs between the runs."""


class Repeats(Record, frozen=True):
    """What several runs came to."""

    runs: tuple[Tally, ...]
    """In the order given."""
    total: Tally
    """All episodes of all runs; those of one task belong together, whichever run they are of."""
    over_attempted: Scatter
    over_scored: Scatter
    notes: tuple[str, ...]
    """What a reader has to know to read the numbers right, in sentences."""


def repeats(runs: Mapping[str, tuple[int, Sequence[Episode]]]) -> Repeats:
    """Put runs beside each other: their names with the number of planned episodes and the outcomes."""
    tallies = tuple(tally(name, planned, episodes) for name, (planned, episodes) in runs.items())
    together = [episode for _, episodes in runs.values() for episode in episodes]
    total = tally("total", sum(planned for planned, _ in runs.values()), together)
    return Repeats(
        runs=tallies,
        total=total,
        over_attempted=_scatter(tallies, total, lambda run: (run.over_attempted, run.attempted)),
        over_scored=_scatter(tallies, total, lambda run: (run.over_scored, run.scored)),
        notes=tuple(_notes([{episode.key.task for episode in episodes} for _, episodes in runs.values()])),
    )


def _notes(tasks: Sequence[set[str]]) -> Iterable[str]:
    shared, every = set.intersection(*tasks) if tasks else set(), set().union(*tasks)
    if shared != every:
        yield (
            f"The runs do not have outcomes of the same tasks: {len(shared):,} of {counted(len(every), 'task')} are in "
            "all of them, so part of the scatter is that of the tasks."
        )


def _scatter(runs: Sequence[Tally], total: Tally, of: Callable[[Tally], tuple[Estimate, int]]) -> Scatter:
    pairs = [of(run) for run in runs]
    rates = [estimate.value for estimate, _ in pairs if estimate.value is not None]
    sizes = [size for _, size in pairs if size]
    pooled = of(total)[0].value
    expected = None
    if pooled is not None and len(rates) > 1:
        expected = math.sqrt(pooled * (1 - pooled) * math.fsum(1 / size for size in sizes) / len(sizes))
    return Scatter(
        runs=len(rates),
        mean=statistics.fmean(rates) if rates else None,
        deviation=statistics.stdev(rates) if len(rates) > 1 else None,
        lowest=min(rates, default=None),
        highest=max(rates, default=None),
        expected=expected,
    )
