"""Intervals against published tables and numbers worked out by hand."""

import random

import pytest

from deskroll.report.intervals import (
    clustered_rate,
    mean_interval,
    percentile,
    student_interval,
    student_t,
    wilson,
)


@pytest.mark.parametrize(
    ("successes", "of", "low", "high"),
    [
        # Newcombe, Statistics in Medicine 17 (1998), table I, method 3.
        (81, 263, 0.2553, 0.3662),
        (15, 148, 0.0624, 0.1605),
        (0, 20, 0.0, 0.1611),
        (1, 29, 0.0061, 0.1718),
        # At the ends it is z² / (n + z²).
        (0, 10, 0.0, 0.2775),
        (10, 10, 0.7225, 1.0),
        (1, 1, 0.2065, 1.0),
    ],
)
def test_wilson(successes: int, of: int, low: float, high: float) -> None:
    found = wilson(successes, of)
    assert found is not None
    assert found == pytest.approx((low, high), abs=5e-5)


def test_a_rate_of_nothing_has_no_interval() -> None:
    assert wilson(0, 0) is None
    assert clustered_rate([]) is None
    assert mean_interval([]) is None
    assert mean_interval([[0.5, 0.7]]) is None  # one task says nothing about another


@pytest.mark.parametrize(
    ("freedom", "t"),
    [(1, 12.7062), (2, 4.3027), (3, 3.1824), (4, 2.7764), (9, 2.2622), (10, 2.2281), (30, 2.0423), (120, 1.9799)],
)
def test_student_t_is_that_of_the_tables(freedom: int, t: float) -> None:
    assert student_t(freedom) == pytest.approx(t, abs=5e-5)


def test_student_t_becomes_normal() -> None:
    assert student_t(2_000) == pytest.approx(student_t(2_001), abs=2e-3)
    with pytest.raises(ValueError, match="one degree of freedom or more"):
        student_t(0)


def test_one_sample_a_task_is_plain_wilson() -> None:
    assert clustered_rate([[1.0]] * 8 + [[0.0]] * 2) == wilson(8, 10)


def test_samples_that_stand_and_fall_together() -> None:
    """Four tasks, two samples each, always alike.

    Each task's sum differs from its expectation by 1, so the variance is 4/3 * 4 / 8² = 1/12: that of
    0.25 / (1/12) = 3 independent episodes. Of so few, (1.95996 / 3.18245)² = 0.37929 counts: 1.13788.
    Wilson around 0.5: half a width of 0.5 * z / sqrt(n + z²) = 0.5 * 1.95996 / sqrt(4.97934) = 0.43917.
    """
    found = clustered_rate([[1.0, 1.0], [1.0, 1.0], [0.0, 0.0], [0.0, 0.0]])
    assert found == pytest.approx((0.06083, 0.93917), abs=1e-4)
    independent = wilson(4, 8)
    assert found is not None
    assert independent is not None
    assert found.high - found.low > independent.high - independent.low


def test_when_nothing_differs_the_samples_of_a_task_count_as_one() -> None:
    assert clustered_rate([[1.0] * 4] * 3) == wilson(3, 3)
    assert clustered_rate([[0.0, 0.0]] * 5) == wilson(0, 5)
    assert clustered_rate([[1.0, 0.0, 1.0]]) == wilson(2 / 3, 1)


def test_tasks_that_all_have_the_same_rate_count_as_independent_at_most() -> None:
    found = clustered_rate([[1.0, 0.0]] * 50)
    widest = wilson(50, 100)
    assert found is not None
    assert widest is not None
    assert found.low == pytest.approx(widest.low, abs=0.005)
    assert found.low <= widest.low


def test_it_holds_the_true_rate_as_often_as_it_says() -> None:
    """30 tasks of very different difficulty, 4 samples each; the true rate is 0.4."""
    source = random.Random(7)
    held = naive = 0
    for _ in range(600):
        chances = [source.betavariate(0.4, 0.6) for _ in range(30)]
        tasks = [[float(source.random() < chance) for _ in range(4)] for chance in chances]
        found, independent = clustered_rate(tasks), wilson(sum(map(sum, tasks)), 120)
        assert found is not None
        assert independent is not None
        held += found.low <= 0.4 <= found.high
        naive += independent.low <= 0.4 <= independent.high
    assert held / 600 > 0.93
    assert naive / 600 < 0.85  # which is why samples are not counted as independent


def test_mean_of_scores() -> None:
    """Mean 0.5, deviation sqrt(0.5 / 4 * ...) by hand: squares 0.25 + 0.0625 + 0 + 0.0625 + 0.25 = 0.625, variance of
    the mean 0.625 / (5 * 4) = 0.03125, its root 0.17678, times 2.77645 = 0.49082."""
    scores = [[0.0], [0.25], [0.5], [0.75], [1.0]]
    assert mean_interval(scores) == pytest.approx((0.00918, 0.99082), abs=1e-5)


def test_mean_of_scores_stays_in_range_only_where_scores_do() -> None:
    assert mean_interval([[0.0], [1.0]]) == (0.0, 1.0)
    beyond = mean_interval([[-1.0], [1.0]])
    assert beyond is not None
    assert beyond.low < -1


def test_equal_scores_are_no_certainty() -> None:
    assert mean_interval([[1.0]] * 5) == wilson(5, 5)
    assert student_interval([[0.25]] * 5) == (0.25, 0.25)


@pytest.mark.parametrize(("share", "value"), [(0, 1.0), (0.5, 2.5), (0.95, 3.85), (1, 4.0)])
def test_percentile(share: float, value: float) -> None:
    assert percentile([1.0, 2.0, 3.0, 4.0], share) == pytest.approx(value)


def test_percentile_of_nothing() -> None:
    assert percentile([], 0.5) == 0.0
