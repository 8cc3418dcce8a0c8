"""What a live run says of itself."""

from __future__ import annotations

import msgspec
import pytest

from deskroll.errors import FailureClass
from deskroll.models.base import EndpointLoad
from deskroll.rollout.backends import WorkerVitals
from deskroll.rollout.orders import Vitals
from deskroll.rollout.status import endpoints_of, what_limits
from deskroll.rollout.tally import Standing, Tally
from deskroll.types import Episode, EpisodeKey, Failure, Score, StopReason

POOL = "desktops: 96% of waiting is for a free one: more desktops would help"


def standing(planned: int) -> Standing:
    tally = Tally()
    tally.planned(planned)
    return tally.standing()


@pytest.mark.parametrize(
    ("planned", "phases", "said"),
    [
        (100, {"desktop": 2, "act": 2}, "desktops: 2 of 4 episodes wait for one; 96%"),
        (100, {"desktop": 2, "model": 2}, "desktops: 2 of 4 episodes wait for one; 96%"),
        (100, {"desktop": 1, "act": 3}, "desktops: 1 of 4 episodes wait for one; 96%"),
        (100, {"desktop": 1, "model": 60}, "the model: 60 of 61 episodes wait for it"),
        (100, {"act": 4}, "num_rollouts (4)"),
        (100, {"act": 2}, "episodes are being started"),
        (100, {}, "nothing runs"),
        (3, {"act": 3}, "the last 3 episodes are under way"),
        (1, {"act": 1}, "the last episode is under way"),
        (0, {}, "nothing is left to do"),
    ],
)
def test_what_limits_it(planned: int, phases: dict[str, int], said: str) -> None:
    in_flight = sum(phases.values())
    assert what_limits(standing(planned), in_flight, 4, phases, pool_limit=POOL).startswith(said)


@pytest.mark.parametrize("planned", [100, 2])
def test_a_server_that_hangs_is_what_limits(planned: int) -> None:
    """Not num_rollouts, nor that these are the last episodes."""
    hung = EndpointLoad(url="http://m", in_flight=2, oldest_s=40.0, calls=9, since_answer_s=41.0)
    never = msgspec.structs.replace(hung, since_answer_s=None)
    for load in (hung, never):
        for phases in ({"model": 2}, {"model": 2, "desktop": 10}):
            said = what_limits(standing(planned), 2, 2, phases, [load], pool_limit=POOL)
            assert said == "the model's server, which has answered nobody for 40 s"


@pytest.mark.parametrize(
    ("phases", "changes"),
    [
        ({"model": 2}, {"since_answer_s": 3.0}),  # it answers others
        ({"model": 2}, {"oldest_s": 3.0}),
        ({"model": 2}, {"in_flight": 0}),
        ({"model": 1, "act": 4}, {}),  # few wait for it
    ],
)
def test_a_server_that_answers_does_not_limit_by_hanging(phases: dict[str, int], changes: dict[str, float]) -> None:
    load = EndpointLoad(url="http://m", in_flight=2, oldest_s=40.0, calls=9, since_answer_s=41.0)
    said = what_limits(standing(100), 5, 5, phases, [msgspec.structs.replace(load, **changes)])
    assert "answered nobody" not in said


def test_a_run_in_which_nothing_was_scored_has_something_left_to_do() -> None:
    failure = Failure(failure_class=FailureClass.DESKTOP, kind="DesktopLost", message="gone")
    key = EpisodeKey(phase="eval", round=0, task="t", sample=0)
    lost = Episode(key=key, attempt=1, stop=StopReason.FAILURE, score=Score(value=None, reason="gone"), failure=failure)
    tally = Tally()
    tally.planned(2)
    tally.sealed(lost)
    tally.sealed(msgspec.structs.replace(lost, key=msgspec.structs.replace(key, task="u")))
    assert what_limits(tally.standing(), 0, 4, {}) == "nothing more is run: a resume does the unscored again"


def test_a_run_that_stops_starts_nothing() -> None:
    said = what_limits(standing(100), 2, 4, {"act": 2}, pool_limit=POOL, stopping=True)
    assert said == "the run stops: no episode is started any more"


def test_a_server_that_was_never_asked_is_not_told() -> None:
    loads = [EndpointLoad(url="https://idle.example"), EndpointLoad(url="https://asked.example", calls=1)]
    vitals = WorkerVitals(name="w0", pid=1, vitals=Vitals(endpoints=tuple(loads)))
    assert [each.url for each in endpoints_of([vitals])] == ["https://asked.example"]
