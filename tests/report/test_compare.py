"""Comparing runs, and runs as repeats, against numbers worked out by hand."""

import math

import pytest

from deskroll.report.compare import Change, Procedure, compare
from deskroll.report.repeats import repeats
from deskroll.report.significance import mcnemar, paired_means, paired_rates, sign_flip
from tests.report.episodes import episode, run


@pytest.mark.parametrize(
    ("gained", "lost", "p_value"),
    [
        (0, 0, 1.0),
        (1, 0, 1.0),
        (5, 0, 2 / 32),
        (6, 0, 2 / 64),
        (10, 2, 2 * (1 + 12 + 66) / 4096),
        (2, 10, 2 * (1 + 12 + 66) / 4096),
        (3, 3, 1.0),
        (8, 3, 2 * (1 + 11 + 55 + 165) / 2048),
    ],
)
def test_mcnemar_exact(gained: int, lost: int, p_value: float) -> None:
    assert mcnemar(gained, lost) == pytest.approx(p_value)


def test_mcnemar_with_more_tasks_than_a_float_can_hold() -> None:
    assert mcnemar(2_000, 2_000) == 1.0
    assert 0 < mcnemar(1_100, 1_000) < 0.05


@pytest.mark.parametrize(
    ("differences", "p_value"),
    [
        ([], 1.0),
        ([0.0, 0.0], 1.0),
        ([1.0, 1.0, 1.0], 2 / 8),
        ([1.0, 1.0, 1.0, 0.0], 2 / 8),  # a task without a difference says nothing
        ([1.0, -1.0, 1.0], 1.0),
        ([0.5, 0.5, 1.0, 1.0], 2 / 16),
        ([0.1] * 10, 2 / 1024),
        ([0.5, 1.0, -0.25], 4 / 8),  # sums 1.75, 1.25 (twice over, with signs), 0.75 ...: two of four are as far
    ],
)
def test_sign_flip_through_all_ways(differences: list[float], p_value: float) -> None:
    assert sign_flip(differences) == pytest.approx(p_value)


def test_sign_flip_by_drawing_agrees_with_the_exact_answer_and_with_itself() -> None:
    differences = [1.0] * 15 + [-1.0] * 5  # the signs are binomial: exactly McNemar's test
    assert sign_flip(differences) == pytest.approx(mcnemar(15, 5), abs=0.01)
    assert sign_flip(differences) == sign_flip(differences)
    assert sign_flip([1.0] * 200) == pytest.approx(1 / 10_001)


def test_interval_of_paired_rates() -> None:
    """Agresti and Min: (10 - 2) / 102 = 0.078431; sqrt((13 / 102 - 0.0061515) / 102) = 0.034488; times z: 0.067596."""
    assert paired_rates(10, 2, 100) == pytest.approx((0.010836, 0.146027), abs=2e-5)
    none = paired_rates(0, 0, 10)
    assert none is not None
    assert none.low < 0 < none.high
    assert paired_rates(0, 0, 0) is None


def test_interval_of_paired_means() -> None:
    """Mean 0.2, squares 0.02, variance of the mean 0.02 / 6, root 0.057735, t 4.30265: 0.248414."""
    assert paired_means([0.1, 0.2, 0.3]) == pytest.approx((-0.048414, 0.448414), abs=1e-5)
    assert paired_means([0.1]) is None


def test_single_samples() -> None:
    found = compare(run("1100110011--"), run("11110010-11-"), ("old", "new"))
    # t2, t3 gained; t4, t5 -> t4: 1 to 0, t5: 1 to 0, t6: 0 to 1; t8 unscored in b, t10 unscored in a, t11 in both.
    assert {change.task: change.change for change in found.changes} == {
        "t4": Change.WORSE,
        "t5": Change.WORSE,
        "t2": Change.BETTER,
        "t3": Change.BETTER,
        "t6": Change.BETTER,
        "t8": Change.UNSCORED_IN_B,
        "t10": Change.UNSCORED_IN_A,
    }
    assert [change.change for change in found.changes][:3] == [Change.WORSE, Change.WORSE, Change.BETTER]
    assert (found.tasks, found.paired, found.better, found.worse, found.same) == (12, 9, 3, 2, 4)
    assert found.unscored_in_both == 1
    assert found.test is Procedure.MCNEMAR
    assert found.p_value == pytest.approx(mcnemar(3, 2))
    assert found.mean_a == pytest.approx(5 / 9)
    assert found.difference == pytest.approx(1 / 9)
    assert found.verdict == (
        "new is 11.1 points better than old over the 9 tasks that are scored in both, which may well be chance "
        "(p = 1.000)."
    )


def test_a_clear_difference() -> None:
    found = compare(run("1" * 20), run("0" * 20))
    assert found.p_value == pytest.approx(2 / 2**20)
    assert "B is 100.0 points worse than A" in found.verdict
    assert "more than chance would explain (p < 0.001)" in found.verdict


def test_tasks_of_one_run_only() -> None:
    found = compare([episode("a"), episode("b")], [episode("b"), episode("c", answer="4", domain="math")])
    assert [(change.task, change.change) for change in found.changes] == [
        ("a", Change.ONLY_IN_A),
        ("c", Change.ONLY_IN_B),
    ]
    assert found.changes[0].b is None
    assert found.changes[1].b is not None
    assert (found.changes[1].b.answer, found.changes[1].domain) == ("4", "math")
    assert "equally good over the one task that is scored in both: too few to tell" in found.verdict


def test_tasks_that_a_run_plans_and_has_not_done() -> None:
    a, b = [episode("x"), episode("only-a")], [episode("x"), episode("y"), episode("only-b")]
    found = compare(a, b, plans=({"x", "y", "only-a"}, {"x", "y", "only-b"}))
    assert {change.task: change.change for change in found.changes} == {
        "y": Change.NOT_DONE_IN_A,
        "only-a": Change.ONLY_IN_A,
        "only-b": Change.ONLY_IN_B,
    }
    assert compare(b, a, plans=({"y"}, {"y"})).changes[0].change is Change.NOT_DONE_IN_B


def test_a_handful_of_tasks_is_too_few_to_tell() -> None:
    verdict = compare(run("0000"), run("1111")).verdict
    assert (
        verdict
        == "B is 100.0 points better than A over the 4 tasks that are scored in both: too few to tell which is better."
    )
    assert "may well be chance" in compare(run("00000"), run("11111")).verdict


def test_nothing_in_common() -> None:
    found = compare(run("-"), run("1"))
    assert (found.test, found.p_value, found.difference, found.low) == (Procedure.NONE, None, None, None)
    assert "no task that is scored in both" in found.verdict
    assert compare([], []).changes == ()


def test_parts_of_points_are_compared_by_their_means() -> None:
    found = compare(run("00h1"), run("0hh1"))
    assert found.test is Procedure.SIGN_FLIP
    assert found.difference == pytest.approx(0.125)
    assert [change.task for change in found.changes] == ["t1"]


def test_several_samples_count_as_one_task_and_phases_do_not_matter() -> None:
    a = [episode("t", score, sample=n, phase="baseline") for n, score in enumerate([1.0, 0.0, None])]
    b = [episode("t", score, sample=n) for n, score in enumerate([1.0, 1.0])]
    found = compare(a, b)
    assert found.test is Procedure.SIGN_FLIP
    assert found.paired == 1
    change = found.changes[0]
    assert change.a is not None
    assert (change.a.score, change.a.samples, change.a.scored) == (0.5, 3, 2)
    assert found.difference == pytest.approx(0.5)


def test_repeats() -> None:
    """Rates 2/4, 3/4 and 1/4 (over attempted); the last has an unscored one: 1/3 over scored."""
    found = repeats({"r1": (4, run("1100")), "r2": (4, run("1110")), "r3": (5, run("100-"))})
    assert [run.over_attempted.value for run in found.runs] == [0.5, 0.75, 0.25]
    scatter = found.over_attempted
    assert (scatter.mean, scatter.lowest, scatter.highest) == (0.5, 0.25, 0.75)
    assert scatter.deviation == pytest.approx(0.25)
    assert scatter.expected == pytest.approx(math.sqrt(0.25 / 4))
    assert (found.total.planned, found.total.attempted, found.total.scored) == (13, 12, 11)
    assert found.total.over_scored.value == pytest.approx(6 / 11)
    pooled = 6 / 11
    assert found.over_scored.expected == pytest.approx(math.sqrt(pooled * (1 - pooled) * (1 / 4 + 1 / 4 + 1 / 3) / 3))


def test_a_single_run_does_not_scatter() -> None:
    found = repeats({"r1": (2, run("10"))})
    assert (found.over_scored.deviation, found.over_scored.expected) == (None, None)
    assert repeats({"r1": (2, [])}).over_scored.mean is None


def test_repeats_over_different_tasks_are_remarked_upon() -> None:
    assert repeats({"r1": (2, run("10")), "r2": (2, run("11"))}).notes == ()
    (note,) = repeats({"r1": (2, run("10")), "r2": (3, run("111"))}).notes
    assert "2 of 3 tasks are in all of them" in note
