"""Whether two runs over the same tasks differ by more than chance: tests on pairs, and the interval of the difference.

Pure, and the same for everybody: where random numbers are drawn, the seed is fixed.
"""

from __future__ import annotations

import math
import random
from collections.abc import Sequence

from deskroll.report.intervals import Interval, Z, student_interval

ROUNDS = 10_000
"""Sign flips that are drawn where there are too many to go through all of them."""
SEED = 20_240_601


def mcnemar(gained: int, lost: int) -> float:
    """The exact two-sided p-value of McNemar's test: of the tasks that differ, is one direction too frequent?"""
    differing = gained + lost
    tail = sum(math.comb(differing, number) for number in range(min(gained, lost) + 1))
    # Whole numbers until the end: 2 to the power of it is beyond any float from 1024 on.
    return min(1.0, 2 * tail / (1 << differing))


def sign_flip(differences: Sequence[float]) -> float:
    """The two-sided p-value of the paired permutation test on the mean of per-task differences.

    If the runs are alike, each difference could as well have had the other sign. Up to 13 tasks that differ, all ways
    are gone through; beyond that, `ROUNDS` of them are drawn.
    """
    moving = [difference for difference in differences if difference]
    if not moving:
        return 1.0
    observed = abs(math.fsum(moving)) - 1e-9 * math.fsum(map(abs, moving))
    tables = _partial_sums(moving)
    total = math.fsum(moving)
    ways = 1 << len(moving)
    if ways <= ROUNDS:
        draws = (way.to_bytes(len(tables), "little") for way in range(ways))
        return sum(abs(_flipped(tables, total, draw)) >= observed for draw in draws) / ways
    source = random.Random(SEED)  # noqa: S311  (for statistics, not for secrets)
    draws = (source.randbytes(len(tables)) for _ in range(ROUNDS))
    extreme = sum(abs(_flipped(tables, total, draw)) >= observed for draw in draws)
    return (extreme + 1) / (ROUNDS + 1)


def _partial_sums(values: Sequence[float]) -> list[list[float]]:
    """For each eight values, the sum of every subset of them: a byte of random bits then costs one look-up."""
    tables = []
    for start in range(0, len(values), 8):
        sums = [0.0]
        for value in values[start : start + 8]:
            sums += [each + value for each in sums]
        tables.append(sums * (256 // len(sums)))
    return tables


def _flipped(tables: Sequence[Sequence[float]], total: float, draw: bytes) -> float:
    """The sum when those values have the other sign whose bits are set."""
    return total - 2 * sum(table[byte] for table, byte in zip(tables, draw, strict=True))


def paired_rates(gained: int, lost: int, tasks: int) -> Interval | None:
    """The interval of the difference of two rates over the same tasks (Agresti and Min, 2005).

    Wald's interval after half a task is added to each of the four cells: good for few tasks too, and never of width 0.
    """
    if not tasks:
        return None
    number = tasks + 2
    centre = (gained - lost) / number
    half = Z * math.sqrt(max(0.0, (gained + lost + 1) / number - centre * centre) / number)
    return Interval(max(-1.0, centre - half), min(1.0, centre + half))


def paired_means(differences: Sequence[float]) -> Interval | None:
    """The interval of the mean of per-task differences: Student's t; none for less than two tasks."""
    return student_interval([[difference] for difference in differences])
