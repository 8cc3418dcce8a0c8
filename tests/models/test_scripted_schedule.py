"""The pretend engine's queue, without clock or I/O."""

from __future__ import annotations

from dataclasses import dataclass, field

from hypothesis import given
from hypothesis import strategies as st

from deskroll.models.scripted.schedule import Generation, PauseMode, Schedule


@dataclass
class Watched:
    """A schedule, and what it tells."""

    slots: int = 2
    started: list[Generation] = field(default_factory=list)
    ended: list[Generation] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.schedule: Schedule[Generation] = Schedule(self.slots, started=self.started.append, ended=self.ended.append)

    def submit(self, seconds: float, now: float = 0.0) -> Generation:
        generation = Generation(tokens=10, seconds=seconds)
        self.schedule.submit(generation, now)
        return generation


def test_others_wait_in_their_order() -> None:
    watched = Watched(slots=2)
    a, b, c, d = (watched.submit(seconds) for seconds in (3, 1, 5, 5))
    assert (watched.schedule.running, list(watched.schedule.waiting)) == ([a, b], [c, d])
    assert watched.schedule.due == 1
    watched.schedule.look(1)
    assert (watched.ended, watched.schedule.running) == ([b], [a, c])
    watched.schedule.drop(d, 2)
    assert not watched.schedule.waiting
    watched.schedule.look(6)
    assert watched.ended == [b, a, c]
    assert watched.schedule.due is None


def test_what_takes_no_time_is_done_at_once() -> None:
    watched = Watched(slots=1)
    watched.schedule.pause(PauseMode.WAIT, 0)
    held = [watched.submit(0) for _ in range(3)]
    assert watched.ended == []
    watched.schedule.resume(5)
    assert watched.ended == held


def test_wait_lets_run_and_holds_the_rest() -> None:
    watched = Watched(slots=1)
    a, b = watched.submit(2), watched.submit(2)
    watched.schedule.pause(PauseMode.WAIT, 1)
    watched.schedule.look(9)
    assert (watched.ended, list(watched.schedule.waiting)) == ([a], [b])
    watched.schedule.resume(10)
    assert watched.schedule.due == 12


def test_keep_stops_the_work_and_goes_on_with_it() -> None:
    watched = Watched()
    a = watched.submit(4)
    watched.schedule.pause(PauseMode.KEEP, 1)
    assert watched.schedule.due is None
    watched.schedule.look(100)
    assert (watched.ended, a.made) == ([], 2)
    watched.schedule.resume(100)
    assert watched.schedule.due == 103


def test_keep_and_then_wait_runs_to_the_end() -> None:
    watched = Watched()
    a = watched.submit(4)
    watched.schedule.pause(PauseMode.KEEP, 1)
    watched.schedule.pause(PauseMode.WAIT, 10)
    watched.schedule.look(13)
    assert watched.ended == [a]


def test_abort_ends_all_with_what_they_have() -> None:
    watched = Watched(slots=1)
    a, b = watched.submit(10), watched.submit(10)
    watched.schedule.pause(PauseMode.ABORT, 5)
    assert watched.ended == [a, b]
    assert (a.aborted, a.made, b.made) == (True, 5, 0)
    held = watched.submit(1, 6)
    assert list(watched.schedule.waiting) == [held]


def test_what_is_preempted_starts_again_and_keeps_its_tokens() -> None:
    watched = Watched(slots=2)
    a, b, c = (watched.submit(10) for _ in range(3))
    watched.schedule.preempt(5)
    assert (watched.schedule.running, list(watched.schedule.waiting)) == ([], [a, b, c])
    watched.schedule.look(6)
    assert watched.started == [a, b, a, b]
    assert (a.made, watched.schedule.due) == (5, 11)


STEPS = st.one_of(
    st.tuples(st.just("submit"), st.integers(0, 5)),
    st.tuples(st.just("drop"), st.integers(0, 20)),
    st.tuples(st.just("look"), st.integers(0, 5)),
    st.tuples(st.just("pause"), st.sampled_from(list(PauseMode))),
    st.tuples(st.just("resume"), st.just(0)),
    st.tuples(st.just("preempt"), st.just(0)),
)


@given(st.integers(1, 3), st.lists(STEPS, max_size=40))
def test_each_request_ends_once_or_is_dropped(slots: int, steps: list[tuple[str, object]]) -> None:
    watched = Watched(slots)
    schedule, asked, dropped, now = watched.schedule, [], set(), 0.0
    for step, value in steps:
        if step == "submit":
            assert isinstance(value, int)
            asked.append(watched.submit(float(value), now))
        elif step == "drop" and asked:
            assert isinstance(value, int)
            dropped.add(asked[value % len(asked)])
            schedule.drop(asked[value % len(asked)], now)
        elif step == "look":
            assert isinstance(value, int)
            now += value
            schedule.look(now)
        elif step == "pause":
            assert isinstance(value, PauseMode)
            schedule.pause(value, now)
        elif step == "resume":
            schedule.resume(now)
        elif step == "preempt":
            schedule.preempt(now)
        assert len(schedule.running) <= slots
        known = [*schedule.running, *schedule.waiting, *watched.ended]
        assert len(known) == len(set(known))
        assert set(asked) - dropped <= set(known)
    schedule.resume(now)
    schedule.look(now + 1000)
    while schedule.due is not None:
        schedule.look(schedule.due)
    assert set(asked) - dropped <= set(watched.ended)
    assert all(each.aborted or each.worked >= each.seconds for each in watched.ended)
