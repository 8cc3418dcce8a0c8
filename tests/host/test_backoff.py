"""Pauses between tries: twice as long after each failure, within a limit."""

from deskroll.host.backoff import Backoff


def test_pauses_double_up_to_the_longest() -> None:
    assert [Backoff(base=0.5, longest=3.0).pause(failures) for failures in range(6)] == [0.0, 0.5, 1.0, 2.0, 3.0, 3.0]


def test_any_number_of_failures_has_a_pause() -> None:
    assert Backoff(base=1.0, longest=60.0).pause(10**6) == 60.0
