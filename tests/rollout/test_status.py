"""What a live run says of itself."""

from __future__ import annotations

import io
import re
from collections import Counter

import msgspec
import pytest

from deskroll.conduct.view import line, status_view
from deskroll.desktops.pool.meter import NOTHING_LIMITS
from deskroll.errors import FailureClass
from deskroll.events import AttemptEnded, BatchPlanned, EpisodeSealed
from deskroll.host.console import PlainConsole
from deskroll.models.base import EndpointLoad
from deskroll.rollout.backends import WorkerStatus
from deskroll.rollout.engine import JobStatus
from deskroll.rollout.orders import Activity, Vitals
from deskroll.rollout.status import RunStatus, endpoints_of, what_limits
from deskroll.rollout.tally import Standing, Tally
from deskroll.types import EpisodeKey, Stage, StopReason

POOL = "desktops: 96% of waiting is for a free one: more desktops would help"


def standing(planned: int) -> Standing:
    tally = Tally()
    tally.plan(BatchPlanned(phase="eval", round=0, episodes=planned))
    return tally.standing()


@pytest.mark.parametrize(
    ("planned", "stages", "said"),
    [
        (100, {"desktop": 2, "act": 2}, "desktops: 2 of 4 episodes wait for one; 96%"),
        (100, {"desktop": 2, "model": 2}, "desktops: 2 of 4 episodes wait for one; 96%"),
        (100, {"desktop": 1, "act": 3}, "desktops: 1 of 4 episodes wait for one; 96%"),
        (100, {"desktop": 1, "model": 60}, "the model: 60 of 61 episodes wait for it"),
        (100, {"act": 4}, "num_rollouts (4)"),
        (100, {"act": 2}, "episodes are being started"),
        (100, {}, "the run is starting"),
        (3, {"act": 3}, "the last 3 episodes are under way"),
        (1, {"act": 1}, "the last episode is under way"),
        (0, {}, "the run is starting"),
    ],
)
def test_what_limits_it(planned: int, stages: dict[str, int], said: str) -> None:
    in_flight = sum(stages.values())
    assert what_limits(standing(planned), in_flight, 4, stages, pool_limit=POOL).startswith(said)


@pytest.mark.parametrize("planned", [100, 2])
def test_a_server_that_hangs_is_what_limits(planned: int) -> None:
    """Not num_rollouts, nor that these are the last episodes."""
    hung = EndpointLoad(url="http://m", in_flight=2, oldest_s=40.0, calls=9, since_answer_s=41.0)
    never = msgspec.structs.replace(hung, since_answer_s=None)
    for load in (hung, never):
        for stages in ({"model": 2}, {"model": 2, "desktop": 10}):
            said = what_limits(standing(planned), 2, 2, stages, [load], pool_limit=POOL)
            assert said == "the model's server, which has answered nobody for 40 s"


@pytest.mark.parametrize(
    ("stages", "changes"),
    [
        ({"model": 2}, {"since_answer_s": 3.0}),  # it answers others
        ({"model": 2}, {"oldest_s": 3.0}),
        ({"model": 2}, {"in_flight": 0}),
        ({"model": 1, "act": 4}, {}),  # few wait for it
    ],
)
def test_a_server_that_answers_does_not_limit_by_hanging(stages: dict[str, int], changes: dict[str, float]) -> None:
    load = EndpointLoad(url="http://m", in_flight=2, oldest_s=40.0, calls=9, since_answer_s=41.0)
    said = what_limits(standing(100), 5, 5, stages, [msgspec.structs.replace(load, **changes)])
    assert "answered nobody" not in said


def test_a_run_in_which_nothing_was_scored_has_something_left_to_do() -> None:
    tally = Tally()
    tally.plan(BatchPlanned(phase="eval", round=0, episodes=2))
    for task in ("t", "u"):
        key = EpisodeKey(phase="eval", round=0, task=task, sample=0)
        tally.seal(EpisodeSealed(key=key, attempt=1, failure=FailureClass.DESKTOP))
    assert what_limits(tally.standing(), 0, 4, {}) == "nothing more is run: a resume does the unscored again"


def test_a_run_that_waits_before_it_tries_again_does_not_start() -> None:
    retried = msgspec.structs.replace(standing(2), retried={"desktop": 1})
    assert what_limits(retried, 0, 4, {}) == "nothing runs"
    assert what_limits(msgspec.structs.replace(retried, done=2), 0, 4, {}) == "nothing is left to do"


def test_a_pool_that_has_not_noticed_yet_does_not_contradict() -> None:
    said = what_limits(standing(100), 3, 5, {"desktop": 1, "act": 2}, pool_limit=NOTHING_LIMITS)
    assert said == "desktops: 1 of 3 episodes wait for one"


def activity(task: str, stage: Stage) -> Activity:
    return Activity(key=EpisodeKey(phase="eval", round=0, task=task, sample=0), attempt=1, stage=stage, since=0.0)


def shown(status: RunStatus) -> str:
    out = io.StringIO()
    PlainConsole(file=out, width=120).print(status_view(status))
    return out.getvalue()


def status(in_flight: int, *activities: Activity, planned: int = 9) -> RunStatus:
    found = standing(planned)
    stages = dict(Counter(str(each.stage) for each in activities))
    workers = [WorkerStatus(name="worker 7", pid=7, running=in_flight, rss_mb=1.0, silent_s=0.0, isolated=False)]
    return RunStatus(
        run_id="r", folder="f", pid=1, epoch=1, started_at=0.0, at=0.0, stopping=False, used_up="", standing=found,
        jobs=(), in_flight=in_flight, waiting=0, samples=1, num_rollouts=5, max_concurrent_rollouts=5, stages=stages,
        activities=activities, endpoints=(), workers=tuple(workers), pool=None, attention=(),
        limit=what_limits(found, in_flight, 5, stages),
    )  # fmt: skip


def test_a_run_that_is_not_planned_yet_does_not_look_ended() -> None:
    unplanned = status(0, planned=0)
    assert re.search(r"starting +0 s\n", shown(unplanned))
    assert re.search(r"success +nothing is scored yet\n", shown(unplanned))
    assert line(unplanned) == "starting | 0 in flight | limit: the run is starting"


def test_figures_of_one_moment_agree() -> None:
    said = shown(status(3, activity("a", Stage.ACT), activity("b", Stage.DESKTOP)))
    assert "3 of 5 in flight: 1 act, 1 wait for a desktop, 1 not heard of yet\n" in said
    assert "\n1 episode not heard of yet\n" in said
    said = shown(status(5))
    assert "5 of 5 in flight: 5 not heard of yet\n" in said
    assert "EPISODE" not in said
    assert "\n5 episodes not heard of yet\n" in said
    assert "worker 7  5 episodes" in said


def test_a_cost_that_nobody_knows_is_not_zero() -> None:
    tally = Tally()
    assert tally.standing().cost_usd == 0.0
    key = EpisodeKey(phase="eval", round=0, task="t", sample=0)
    tally.spend(AttemptEnded(key=key, attempt=1, stop=StopReason.DONE, cost_usd=None))
    assert tally.standing().cost_usd is None
    tally.spend(AttemptEnded(key=key, attempt=2, stop=StopReason.DONE, cost_usd=0.5))
    assert tally.standing().cost_usd == 0.5


def test_several_jobs_have_a_line_each() -> None:
    jobs = [
        JobStatus(name=name, group_size=1, priority=0, round=7, planned=9, done=4, in_flight=2, stopping=False)
        for name in ("train", "eval")
    ]
    said = shown(msgspec.structs.replace(status(4), jobs=tuple(jobs)))
    assert re.search(r"^train +7 +4 of 9 +2 *$", said, re.MULTILINE)
    assert re.search(r"^eval +7 +4 of 9 +2 *$", said, re.MULTILINE)
    assert "JOB" not in shown(msgspec.structs.replace(status(4), jobs=tuple(jobs[:1])))


def test_a_run_that_stops_starts_nothing() -> None:
    said = what_limits(standing(100), 2, 4, {"act": 2}, pool_limit=POOL, stopping=True)
    assert said == "the run stops: no episode is started any more"


def test_a_server_that_was_never_asked_is_not_told() -> None:
    loads = [EndpointLoad(url="https://idle.example"), EndpointLoad(url="https://asked.example", calls=1)]
    vitals = WorkerStatus(name="w0", pid=1, vitals=Vitals(endpoints=tuple(loads)))
    assert [each.url for each in endpoints_of([vitals])] == ["https://asked.example"]
