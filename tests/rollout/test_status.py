"""What a live run says of itself."""

from __future__ import annotations

import pytest

from deskroll.models.base import EndpointLoad
from deskroll.rollout.backends import WorkerVitals
from deskroll.rollout.orders import Vitals
from deskroll.rollout.status import endpoints_of, what_limits
from deskroll.rollout.tally import Standing, Tally

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


def test_a_run_that_stops_starts_nothing() -> None:
    said = what_limits(standing(100), 2, 4, {"act": 2}, pool_limit=POOL, stopping=True)
    assert said == "the run stops: no episode is started any more"


def test_a_server_that_was_never_asked_is_not_told() -> None:
    loads = [EndpointLoad(url="https://idle.example"), EndpointLoad(url="https://asked.example", calls=1)]
    vitals = WorkerVitals(name="w0", pid=1, vitals=Vitals(endpoints=tuple(loads)))
    assert [each.url for each in endpoints_of([vitals])] == ["https://asked.example"]
