"""What a run does is what its events say, in time in which its workers ran."""

from __future__ import annotations

from deskroll.errors import FailureClass
from deskroll.events import (
    AttemptDropped,
    AttemptEnded,
    AttemptRetried,
    AttemptStarted,
    BatchPlanned,
    EpisodeSealed,
    Event,
    StageEntered,
    WaitChanged,
)
from deskroll.rollout.events import EventHub, RunState
from deskroll.types import EpisodeKey, Stage, StopReason

KEY = EpisodeKey(phase="eval", round=0, task="t", sample=0)
OTHER = EpisodeKey(phase="eval", round=0, task="u", sample=0)


def state_after(*events: Event) -> RunState:
    hub = EventHub(str, enabled=False)
    state = RunState(hub)
    for event in events:
        hub.emit(event)
    return state


def entered(stage: Stage, ran_s: float, key: EpisodeKey = KEY) -> StageEntered:
    return StageEntered(key=key, attempt=1, stage=stage, visit=3, worker=7, ran_s=ran_s, desktop="d-1", turn=2)


def waits(waiting: bool, ran_s: float) -> WaitChanged:
    return WaitChanged(key=KEY, attempt=1, waiting=waiting, ran_s=ran_s)


STARTED = AttemptStarted(key=KEY, attempt=1)


def test_a_stage_has_taken_what_its_worker_has_run_since() -> None:
    state = state_after(STARTED, entered(Stage.SETUP, 10.0), entered(Stage.ACT, 100.0))
    (found,) = state.activities({7: 103.5})
    assert (found.stage, found.seconds, found.visit, found.desktop, found.turn) == (Stage.ACT, 3.5, 3, "d-1", 2)


def test_neither_this_process_nor_the_clock_makes_a_stage_longer() -> None:
    """However late somebody looks, and whatever the events' clock says: the worker's own running time counts."""
    state = state_after(STARTED, entered(Stage.ACT, 100.0))
    for _ in range(3):
        assert [each.seconds for each in state.activities({7: 101.0})] == [1.0]
    assert [each.seconds for each in state.activities({})] == [0.0], "of a worker that has not said anything yet"
    assert [each.seconds for each in state.activities({7: 90.0})] == [0.0], "what it said before the stage began"


def test_a_wait_for_its_turn_takes_none_of_its_time() -> None:
    events = [STARTED, entered(Stage.MODEL, 100.0), waits(True, 102.0)]
    assert [each.seconds for each in state_after(*events).activities({7: 500.0})] == [2.0]
    events.append(waits(False, 400.0))
    assert [each.seconds for each in state_after(*events).activities({7: 405.0})] == [7.0]
    events.append(entered(Stage.ACT, 410.0))
    assert [each.seconds for each in state_after(*events).activities({7: 411.0})] == [1.0]


def test_what_waits_longest_comes_first_and_what_is_over_is_gone() -> None:
    events = [STARTED, AttemptStarted(key=OTHER, attempt=1), entered(Stage.ACT, 9.0), entered(Stage.MODEL, 4.0, OTHER)]
    state = state_after(*events)
    assert [each.key for each in state.activities({7: 10.0})] == [OTHER, KEY]
    assert state.in_flight == 2
    for over in (
        AttemptDropped(key=KEY, attempt=1),
        AttemptEnded(key=KEY, attempt=1, stop=StopReason.DONE),
    ):
        state = state_after(*events, over)
        assert [each.key for each in state.activities({7: 10.0})] == [OTHER]
        assert state.in_flight == 1


def test_an_attempt_of_which_nothing_was_heard_is_in_flight_and_does_nothing() -> None:
    state = state_after(STARTED)
    assert (state.in_flight, state.activities({7: 1.0})) == (1, [])


def test_counts_come_from_events() -> None:
    state = state_after(
        BatchPlanned(
            phase="eval", round=0, episodes=5, done=2, scored=1, successes=1, score_sum=1.0, unscored={"env": 1}
        ),
        STARTED,
        AttemptEnded(
            key=KEY, attempt=1, stop=StopReason.FAILURE, failure=FailureClass.MODEL, tokens=10, cost_usd=0.5,
            seconds={"model": 2.0},
        ),
        AttemptRetried(key=KEY, attempt=1, failure=FailureClass.MODEL),
        AttemptStarted(key=KEY, attempt=2),
        AttemptEnded(key=KEY, attempt=2, stop=StopReason.ANSWER, score=1.0, tokens=7, seconds={"model": 1.0}),
        EpisodeSealed(key=KEY, attempt=2, score=1.0),
        EpisodeSealed(key=OTHER, attempt=1, failure=FailureClass.DESKTOP),
    )  # fmt: skip
    standing = state.standing()
    assert (standing.planned, standing.done, standing.before) == (5, 4, 2)
    assert (standing.scored, standing.successes, standing.score_sum) == (2, 2, 2.0)
    assert standing.unscored == {"env": 1, "desktop": 1}
    assert standing.retried == {"model": 1}
    assert (standing.tokens, standing.cost_usd, standing.unpriced) == (17, 0.5, 1)
    assert standing.seconds == {"model": 3.0}
