"""Which worker gets an attempt: light ones are put together where that was measured, anything else is spread."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from deskroll.rollout.backends.placement import FULL, LARGE, LIGHT, TOGETHER, LoadGauge, WorkerLoad, choose_worker

LOADS = st.builds(WorkerLoad, st.integers(0, 200), st.none() | st.floats(0, 2), st.floats(0, 1.5))


def place(loads: list[WorkerLoad], attempts: int) -> list[int]:
    """How many each worker has after so many more."""
    for _ in range(attempts):
        chosen = choose_worker(loads)
        loads[chosen] = loads[chosen]._replace(attempts=loads[chosen].attempts + 1)
    return [load.attempts for load in loads]


def test_attempts_of_which_nothing_is_known_are_spread() -> None:
    assert place([WorkerLoad(0)] * 4, 10) == [3, 3, 2, 2]


def test_light_ones_are_put_together_on_the_worker_that_has_most() -> None:
    loads = [WorkerLoad(20, 0.005), WorkerLoad(21, 0.005), WorkerLoad(3, 0.005)]
    assert place(loads, 10) == [20, 31, 3]


def test_a_worker_is_filled_before_the_next_one_is_used_and_then_all_are_alike() -> None:
    assert place([WorkerLoad(1, 0.001), WorkerLoad(0), WorkerLoad(0)], TOGETHER - 1) == [TOGETHER, 0, 0]
    assert place([WorkerLoad(TOGETHER, 0.001), WorkerLoad(0), WorkerLoad(0)], 4) == [TOGETHER, 2, 2]
    assert place([WorkerLoad(TOGETHER, 0.001), WorkerLoad(TOGETHER, 0.001)], 6) == [TOGETHER + 3, TOGETHER + 3]


@pytest.mark.parametrize("share", [LIGHT * 1.01, 0.5, 1.0, None])
def test_few_that_compute_are_never_put_on_one_core(share: float | None) -> None:
    assert place([WorkerLoad(2, share), WorkerLoad(0), WorkerLoad(0)], 4) == [2, 2, 2]


def test_none_is_added_to_those_whose_worker_has_much_of_its_memory() -> None:
    large, small = WorkerLoad(20, 0.005, LARGE), WorkerLoad(18, 0.005, LARGE * 0.9)
    assert place([large, small, WorkerLoad(0)], 10) == [20, 28, 0]
    assert place([large, WorkerLoad(0), WorkerLoad(0)], 4) == [20, 2, 2]


def test_memory_is_known_until_it_is_looked_at_again() -> None:
    gauge = LoadGauge(0.0)
    gauge.weigh(0.75)
    gauge.count(10, 0.0)
    gauge.measure(0.1, 1.0)
    gauge.forget()
    assert gauge.load == WorkerLoad(10, None, 0.75)
    gauge.weigh(0.25)
    assert gauge.load == WorkerLoad(10, None, 0.25)


@given(st.lists(LOADS, min_size=1, max_size=8))
def test_the_one_that_is_chosen_has_room_or_the_fewest(loads: list[WorkerLoad]) -> None:
    chosen = loads[choose_worker(loads)]
    fewest = chosen.attempts == min(load.attempts for load in loads)
    light = chosen.share is not None and chosen.share <= LIGHT and chosen.memory < LARGE
    room = light and chosen.attempts < TOGETHER and (chosen.attempts + 1) * (chosen.share or 0.0) <= FULL
    assert fewest or room
    if room:
        assert all(load.attempts <= chosen.attempts for load in loads if load.has_room)
    else:
        assert not any(load.has_room for load in loads)


def test_what_attempts_take_is_known_once_most_were_there_from_one_word_to_the_next() -> None:
    gauge = LoadGauge(0.0)
    gauge.count(10, 0.9)
    gauge.measure(0.0, 1.0)
    assert gauge.load == WorkerLoad(10), "they have only just come: that it was idle tells nothing of them"
    gauge.measure(0.1, 2.0)
    assert gauge.load == WorkerLoad(10, 0.01)
    gauge.count(40, 2.9)
    gauge.measure(0.1, 3.0)
    assert gauge.load == WorkerLoad(40), "most of them have only just come"
    gauge.measure(0.2, 4.0)
    assert gauge.load == WorkerLoad(40, 0.005)


def test_it_is_counted_how_long_each_was_there() -> None:
    gauge = LoadGauge(0.0)
    gauge.count(20, 0.0)
    gauge.measure(0.1, 1.0)
    gauge.count(10, 1.5)
    gauge.count(20, 2.0)
    gauge.measure(0.15, 2.0)
    assert gauge.load == WorkerLoad(20, pytest.approx(0.01))  # type: ignore[arg-type]


@pytest.mark.parametrize("idle", [True, False])
def test_what_was_measured_says_nothing_of_what_comes_next(idle: bool) -> None:
    gauge = LoadGauge(0.0)
    gauge.count(10, 0.0)
    gauge.measure(0.1, 1.0)
    gauge.measure(0.1, 2.0)
    assert gauge.load == WorkerLoad(10, 0.01)
    if idle:
        gauge.count(0, 2.0)
        gauge.count(10, 2.0)
    else:
        gauge.forget()
    assert gauge.load == WorkerLoad(10)
    gauge.measure(0.1, 3.0)
    assert gauge.load == WorkerLoad(10)
    gauge.measure(0.1, 4.0)
    assert gauge.load == WorkerLoad(10, 0.01)


def test_a_worker_that_cannot_tell_is_not_known() -> None:
    gauge = LoadGauge(0.0)
    gauge.count(10, 0.0)
    gauge.measure(0.1, 1.0)
    gauge.measure(0.1, 2.0)
    gauge.measure(None, 3.0)
    assert gauge.load == WorkerLoad(10)


@given(st.lists(st.tuples(st.floats(0, 2), st.integers(0, 100), st.none() | st.floats(0, 1)), max_size=30))
def test_no_share_is_ever_known_of_nothing(words: list[tuple[float, int, float | None]]) -> None:
    gauge, at = LoadGauge(0.0), 0.0
    for seconds, attempts, busy in words:
        gauge.count(attempts, at)
        at += seconds
        gauge.measure(busy, at)
        assert gauge.load.attempts == attempts
        assert gauge.load.share is None or (attempts > 0 and busy is not None and gauge.load.share >= 0)
