"""Intervals of 95% for a rate and for a mean, from the standard library alone. Pure.

- A rate of independent episodes: Wilson's score interval. It stays within 0 and 1 and is never of width 0, so
  '5 of 5' does not read as certainty.
- A rate where a task has several samples: they stand or fall together, so counting them as independent makes an
  interval too narrow. The variance is taken between tasks (ratio estimator), turned into the number of independent
  episodes that would have had it, and Wilson's interval is taken for that number.
- A mean of fractional scores: Student's t over tasks. Chosen before a bootstrap: it needs no random numbers, gives the
  same answer to everybody, and a percentile bootstrap is too narrow for the few dozen tasks of a usual domain. Where
  tasks do not differ at all, it is Wilson's.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from functools import lru_cache
from statistics import NormalDist
from typing import NamedTuple

CONFIDENCE = 0.95
Z = NormalDist().inv_cdf(0.5 + CONFIDENCE / 2)
"""1.96: how many standard errors of a normal distribution hold 95%."""
FLAT = 1e-9
"""An interval narrower than this says that tasks do not differ."""
_NORMAL_FROM = 2_000
"""With so many degrees of freedom, Student's t is the normal distribution to three digits."""


class Interval(NamedTuple):
    """From, to; both ends belong to it."""

    low: float
    high: float


def wilson(successes: float, of: float) -> Interval | None:
    """Wilson's score interval of a rate; none without episodes. Fractions are effective numbers."""
    if of <= 0:
        return None
    rate = successes / of
    scale = 1 + Z * Z / of
    centre = (rate + Z * Z / (2 * of)) / scale
    half = Z / scale * math.sqrt(max(0.0, rate * (1 - rate) / of + Z * Z / (4 * of * of)))
    # At the ends the formula gives exactly 0 or 1, and rounding must not move it off them.
    return Interval(0.0 if rate <= 0 else max(0.0, centre - half), 1.0 if rate >= 1 else min(1.0, centre + half))


def clustered_rate(clusters: Iterable[Sequence[float]]) -> Interval | None:
    """The interval of a rate (values of 0 and 1) whose values within one cluster belong together."""
    groups = [values for values in clusters if values]
    number, successes = sum(map(len, groups)), math.fsum(map(math.fsum, groups))
    if number == len(groups):
        return wilson(successes, number)
    rate = successes / number
    variance = cluster_variance(groups)
    if variance is None or not 0 < rate < 1:
        # Nothing differs, so nothing shows how dependent they are: take those of one task as one.
        return wilson(rate * len(groups), len(groups))
    effective = min(number, rate * (1 - rate) / variance) if variance > 0 else number
    effective *= (Z / student_t(len(groups) - 1)) ** 2  # the variance is an estimate itself, from few tasks
    return wilson(rate * effective, effective)


def mean_interval(clusters: Iterable[Sequence[float]]) -> Interval | None:
    """The interval of a mean score whose values within one cluster belong together; none for less than two clusters."""
    groups = [values for values in clusters if values]
    found = student_interval(groups)
    if found is None or min(map(min, groups)) < 0 or max(map(max, groups)) > 1:
        return found
    if found.high - found.low < FLAT:
        # Equal scores are no proof that the next one is equal: as wide as a rate of so many tasks.
        return wilson(found.low * len(groups), len(groups))
    return Interval(max(0.0, found.low), min(1.0, found.high))


def student_interval(clusters: Iterable[Sequence[float]]) -> Interval | None:
    """Student's t interval of a mean, whatever the range of its values; none for less than two clusters."""
    groups = [values for values in clusters if values]
    variance = cluster_variance(groups)
    if variance is None:
        return None
    mean = math.fsum(value for group in groups for value in group) / sum(map(len, groups))
    half = student_t(len(groups) - 1) * math.sqrt(variance)
    return Interval(mean - half, mean + half)


def cluster_variance(clusters: Iterable[Sequence[float]]) -> float | None:
    """The variance of the mean over all values, from how the clusters differ; none for less than two of them."""
    groups = [values for values in clusters if values]
    if len(groups) < 2:
        return None
    number = sum(map(len, groups))
    mean = math.fsum(value for group in groups for value in group) / number
    squares = math.fsum((math.fsum(group) - len(group) * mean) ** 2 for group in groups)
    return len(groups) / (len(groups) - 1) * squares / (number * number)


@lru_cache(maxsize=4096)
def student_t(freedom: int) -> float:
    """How many standard errors hold 95% of Student's t with so many degrees of freedom."""
    if freedom < 1:
        raise ValueError(f"Student's t needs one degree of freedom or more, not {freedom}")
    if freedom > _NORMAL_FROM:
        return Z
    low, high = 1.0, 20.0
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if _within(middle, freedom) < CONFIDENCE else (low, middle)
    return (low + high) / 2


def _within(t: float, freedom: int) -> float:
    """The probability that |T| <= t: the finite series of Abramowitz and Stegun, 26.7.3 and 26.7.4."""
    angle = math.atan(t / math.sqrt(freedom))
    sine, cosine = math.sin(angle), math.cos(angle)
    odd = freedom % 2
    term = total = cosine if odd else 1.0
    for step in range(2 + odd, freedom - 1, 2):
        term *= cosine * cosine * (step - 1) / step
        total += term
    if not odd:
        return sine * total
    return 2 / math.pi * (angle + (sine * total if freedom > 1 else 0.0))


def percentile(ordered: Sequence[float], share: float) -> float:
    """The value below which a share of the ordered values lies, straight between neighbours; 0 without any."""
    if not ordered:
        return 0.0
    place = share * (len(ordered) - 1)
    below = math.floor(place)
    above = min(below + 1, len(ordered) - 1)
    return ordered[below] + (ordered[above] - ordered[below]) * (place - below)
