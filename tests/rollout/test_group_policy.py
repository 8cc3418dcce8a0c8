"""GroupPolicy: what it decides goes by the scores that are there, and by nothing else."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from deskroll.config import check
from deskroll.errors import ConfigError
from deskroll.rollout.group_policy import FailFast, FillUp, GroupPolicy, MinViable
from deskroll.rollout.spec import EpisodeSpec
from deskroll.types import GroupEnd

POLICIES = st.builds(
    GroupPolicy,
    min_scored=st.one_of(st.integers(0, 5), st.just("all")),
    no_signal_after=st.one_of(st.none(), st.integers(2, 5)),
)


@st.composite
def groups(draw: st.DrawFn) -> tuple[int, list[float], int]:
    size = draw(st.integers(1, 6))
    scores = draw(st.lists(st.sampled_from([0.0, 0.5, 1.0]), max_size=size))
    return size, scores, draw(st.integers(0, size - len(scores)))


@given(POLICIES, groups())
def test_a_group_is_open_only_while_somebody_is_left_and_closed_when_nobody_is(
    policy: GroupPolicy, group: tuple[int, list[float], int]
) -> None:
    size, scores, unscored = group
    end = policy.decide(size, scores, unscored)
    left = size - len(scores) - unscored
    if not left:
        assert end is not None
    if end is GroupEnd.COMPLETE:
        assert not left
    can_be_scored = len(scores) + left
    assert (end is GroupEnd.FAILED) == (can_be_scored < policy.wanted(size))
    if end is GroupEnd.NO_SIGNAL:
        assert policy.no_signal_after is not None
        assert len(scores) >= policy.no_signal_after
        assert len(set(scores)) == 1


@given(POLICIES, groups())
def test_the_order_of_scores_does_not_matter(policy: GroupPolicy, group: tuple[int, list[float], int]) -> None:
    size, scores, unscored = group
    ends = {policy.decide(size, list(order), unscored) for order in itertools.permutations(scores[:4])}
    assert len(ends) == 1


@given(POLICIES, groups())
def test_a_group_that_has_failed_stays_so(policy: GroupPolicy, group: tuple[int, list[float], int]) -> None:
    size, scores, unscored = group
    if policy.decide(size, scores, unscored) is not GroupEnd.FAILED or size == len(scores) + unscored:
        return
    assert policy.decide(size, [*scores, 1.0], unscored) is GroupEnd.FAILED
    assert policy.decide(size, scores, unscored + 1) is GroupEnd.FAILED


@given(POLICIES, groups())
def test_without_anybody_given_up_the_end_is_what_was_decided(
    policy: GroupPolicy, group: tuple[int, list[float], int]
) -> None:
    size, scores, _ = group
    unscored = size - len(scores)
    assert policy.conclude(size, scores, unscored, 0) is policy.decide(size, scores, unscored)


@pytest.mark.parametrize(
    ("policy", "scores", "unscored", "given_up", "end"),
    [
        (GroupPolicy(no_signal_after=2), [1.0, 1.0], 0, 2, GroupEnd.NO_SIGNAL),
        (GroupPolicy(no_signal_after=2), [1.0, 1.0, 0.0], 0, 1, GroupEnd.NO_SIGNAL),
        (GroupPolicy(no_signal_after=2), [1.0, 1.0, 0.0, 0.0], 0, 0, GroupEnd.COMPLETE),
        (GroupPolicy(no_signal_after=2, min_scored=3), [1.0, 1.0], 0, 2, GroupEnd.NO_SIGNAL),
        (GroupPolicy(straggler_factor=2), [1.0, 0.0, 1.0], 0, 1, GroupEnd.ENOUGH),
        (GroupPolicy(straggler_factor=2), [1.0, 0.0, 1.0, 1.0], 0, 0, GroupEnd.COMPLETE),
        (FailFast(), [1.0, 0.0], 1, 1, GroupEnd.FAILED),
    ],
)
def test_the_end_follows_from_the_outcomes_alone(
    policy: GroupPolicy, scores: list[float], unscored: int, given_up: int, end: GroupEnd
) -> None:
    assert policy.conclude(4, scores, unscored, given_up) is end


def test_patience_is_a_multiple_of_the_median() -> None:
    assert GroupPolicy(straggler_factor=3).patience([1.0, 2.0, 100.0]) == 6.0
    assert GroupPolicy(straggler_factor=3).patience([]) is None
    assert GroupPolicy().patience([1.0, 2.0]) is None


@pytest.mark.parametrize(
    ("name", "policy"), [("fail_fast", FailFast()), ("fill_up", FillUp()), ("min_viable", MinViable())]
)
def test_a_text_names_a_policy(name: str, policy: GroupPolicy) -> None:
    read = check(EpisodeSpec, {"policy": name}, "here").policy
    assert read.model_dump() == policy.model_dump()
    assert read.model_dump() != GroupPolicy().model_dump()


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ("fail_slow", "there is no policy 'fail_slow'; there are fail_fast, fill_up, min_viable"),
        ({"min_scored": -1}, "min_scored is below 0"),
        ({"min_scored": "most"}, "policy.min_scored"),
        ({"no_signal_after": 1}, "policy.no_signal_after"),
        ({"straggler_factor": 1}, "policy.straggler_factor"),
        ({"straggler_factor": 2, "min_scored": "all"}, "straggler_factor gives a member up"),
        ({"fill_up": -1}, "policy.fill_up"),
    ],
)
def test_what_makes_no_sense_is_refused(given: object, said: str) -> None:
    with pytest.raises(ConfigError) as refused:
        check(EpisodeSpec, {"policy": given}, "here")
    assert said in str(refused.value)


@pytest.mark.parametrize(
    ("policy", "size", "evaluate", "said"),
    [
        (MinViable(), 1, True, "policy.min_scored is 2, and a group has 1"),
        (GroupPolicy(no_signal_after=5), 4, True, "policy.no_signal_after is 5, and a group has 4"),
        (GroupPolicy(straggler_factor=2, min_scored=4), 4, True, "wants all 4"),
        (FailFast(), 4, False, "evaluate is switched off"),
        (FailFast(), 4, True, ""),
        (GroupPolicy(no_signal_after=4), 4, True, ""),
        (GroupPolicy(), 1, False, ""),
    ],
)
def test_a_policy_fits_the_size_of_its_groups(policy: GroupPolicy, size: int, evaluate: bool, said: str) -> None:
    misfit = policy.misfit(size, evaluate)
    assert said in misfit
    assert bool(said) == bool(misfit)
