"""How a training loop stands, worked out of its events: for status, metrics and the terminal."""

from __future__ import annotations

import io

import msgspec
import pytest

from deskroll.conduct.view import line, status_view
from deskroll.events import (
    EpisodeSealed,
    EvaluationBegun,
    EvaluationEnded,
    Event,
    GroupBegun,
    GroupCollected,
    GroupEnded,
    GroupUse,
    JobEnded,
    LoopWait,
    StepFailed,
    StepTaken,
    TrainStarted,
    TrainWaits,
    WeightsRefused,
    WeightsServed,
)
from deskroll.host.console import PlainConsole
from deskroll.rollout.events import EventHub, RunState
from deskroll.rollout.metrics import exposition
from deskroll.rollout.train_status import TrainStatus
from deskroll.types import EpisodeKey, GroupEnd
from tests.rollout.test_status import status

STARTED = TrainStarted(at=10.0, phase="train", step=4, steps=20, version=4, groups_per_batch=2)


def step(number: int, reward: float = 0.5, **fields: object) -> StepTaken:
    given = {"lag_p50": 1.0, "lag_p95": 1.5, "lag_max": 2, "groups": 2, "seconds": {"train": 2.0}, **fields}
    return StepTaken(step=number, reward=reward, **given)  # type: ignore[arg-type]


def after(*events: Event) -> TrainStatus:
    hub = EventHub(str, enabled=False)  # listeners hear it; nothing is kept
    state = RunState(hub)
    for event in (STARTED, *events):
        hub.emit(event)
    found = state.training.status()
    assert found is not None
    return found


def test_a_run_that_does_not_train_has_none() -> None:
    assert RunState(EventHub(str)).training.status() is None


def test_steps_are_counted_and_the_last_is_told() -> None:
    told = {"loss": 0.25, "tokens": 600.0}
    found = after(
        step(5, 0.4, no_signal=3), step(6, 0.6, withheld=1, measures=told), WeightsServed(version=6, seconds=1)
    )
    assert (found.step, found.before, found.steps, found.version) == (6, 4, 20, 6)
    assert found.groups == {"used": 4, "no_signal": 3, "withheld": 1, "failed": 0}
    assert found.seconds == {"train": 4.0}
    assert found.recent_reward == pytest.approx(0.5)
    assert found.last is not None
    assert (found.last.reward, found.last.lag_max, found.last.measures) == (0.6, 2, told)


def test_groups_on_their_way_are_those_of_training() -> None:
    begun = [
        GroupBegun(phase=phase, round=0, task=task) for phase, task in (("train", "a"), ("train", "b"), ("eval", "c"))
    ]
    ended = GroupEnded(phase="train", round=0, task="a", end=GroupEnd.COMPLETE)
    collected = GroupCollected(phase="train", round=0, task="a", use=GroupUse.READY, ready=1)
    found = after(*begun, ended, collected)
    assert (found.in_flight, found.ready) == (1, 1)


def test_an_evaluation_is_followed_and_baseline_stands_apart() -> None:
    begun = EvaluationBegun(at=20.0, phase="eval", round=5, episodes=3)
    sealed = [
        EpisodeSealed(key=EpisodeKey(phase=phase, round=5, task="t", sample=0), attempt=1, score=1.0)
        for phase in ("eval", "train")
    ]
    found = after(begun, *sealed)
    assert [(each.phase, each.step, each.done, each.episodes) for each in found.running] == [("eval", 5, 1, 3)]
    ended = [
        EvaluationEnded(phase=phase, round=at, episodes=3, scored=3, successes=1, mean_score=score, versions=(str(at),))
        for phase, at, score in (("baseline", 0, 0.2), ("eval", 5, 0.7))
    ]
    found = after(begun, *ended)
    assert found.running == ()
    assert found.baseline is not None
    assert found.evaluation is not None
    assert (found.baseline.mean_score, found.evaluation.mean_score, found.evaluation.versions) == (0.2, 0.7, ("5",))
    assert after(begun, JobEnded(phase="eval", round=5)).running == (), "it was stopped"


def test_failures_are_counted() -> None:
    found = after(
        StepFailed(step=5, failures=1, reason="x"), StepFailed(step=5, failures=2, reason="x"),
        WeightsRefused(version=5, served=4, reason="y"),
    )  # fmt: skip
    assert found.failures == {"step": 2, "refresh": 1}
    assert found.version == 4


@pytest.mark.parametrize(
    ("what", "said"),
    [
        (LoopWait.GROUPS, "groups for step 5 (1 of 2 are there): the model"),
        (LoopWait.EVALUATION, "the evaluation, which step 5 waits for: the model"),
        (LoopWait.TRAINER, "the trainer, which takes step 5"),
        (LoopWait.CHECKPOINT, "the disk: the checkpoint of step 5 is being saved"),
        (LoopWait.SERVERS, "the model's servers, which load version 5"),
        (LoopWait.NOTHING, "nothing is left to do"),
    ],
)
def test_what_it_waits_for_is_what_limits(what: LoopWait, said: str) -> None:
    found = after(TrainWaits(at=30.0, what=what, step=5, ready=1))
    assert found.since == 30.0
    assert found.limit("the model") == said


def shown(*events: Event) -> tuple[str, str]:
    """In one line, and as a picture."""
    training = after(*events)
    found = msgspec.structs.replace(status(3), at=60.0, training=training, limit=training.limit("the model"))
    out = io.StringIO()
    PlainConsole(file=out, width=120).print(status_view(found))
    return line(found), out.getvalue()


def test_the_terminal_shows_step_reward_version_lag_and_who_waits() -> None:
    ended = [
        EvaluationEnded(phase=phase, round=at, episodes=3, scored=3, successes=1, mean_score=score, versions=(str(at),))
        for phase, at, score in (("baseline", 0, 0.25), ("eval", 5, 0.75))
    ]
    waits = TrainWaits(at=55.0, what=LoopWait.TRAINER, step=6, ready=1)
    one_line, picture = shown(*ended, step(5, 0.4, no_signal=3), WeightsServed(version=5, seconds=1), waits)
    assert one_line == (
        "step 5/20 | reward 0.400 | eval after step 5: 0.750 of 3 scored (version 5) | version 5 | lag 1 (most 2) | "
        "3 in flight | limit: the trainer, which takes step 6"
    )
    for words in (
        "step 5/20", "reward      0.400", "evaluation  baseline: 0.250 of 3 scored (version 0)",
        "eval after step 5: 0.750 of 3 scored (version 5)", "weights     version 5, lag 1 (most 2)",
        "groups      0 in flight, 1 of 2 ready for the next step; 3 without signal",
        "waits       the trainer takes step 6, since 5 s; no group runs meanwhile",
    ):  # fmt: skip
        assert words in picture
    assert "success" not in one_line + picture, "phases are not mixed into one rate"


def test_before_the_first_step_and_without_any() -> None:
    one_line, picture = shown(EvaluationBegun(at=50.0, phase="baseline", round=0, episodes=3))
    assert one_line.startswith("step 4/20 | version 4 | 3 in flight")
    assert "baseline: 0 of 3 done, 10 s" in picture
    assert "no step was taken yet" in picture
    alone = msgspec.structs.replace(STARTED, step=0, steps=0, version=0)
    one_line, picture = shown(alone, TrainWaits(what=LoopWait.NOTHING, step=0, ready=0))
    assert one_line.startswith("version 0 | 3 in flight")
    assert "0/9" in picture, "episodes, where there are no steps"
    assert "reward" not in picture


def test_prometheus() -> None:
    ended = EvaluationEnded(phase="eval", round=5, episodes=3, scored=3, successes=1, mean_score=0.5)
    waits = TrainWaits(at=50.0, what=LoopWait.SERVERS, step=5, ready=1)
    training = after(step(5, 0.4, no_signal=3, measures={"kl": 0.125}), ended, waits)
    text = exposition(msgspec.structs.replace(status(3), at=60.0, training=training)).decode()
    for sample in (
        "deskroll_train_step 5.0", "deskroll_train_steps 20.0", "deskroll_train_version 4.0",
        "deskroll_train_reward 0.4", 'deskroll_train_lag{of="max"} 2.0', 'deskroll_train_measure{name="kl"} 0.125',
        'deskroll_train_seconds_total{part="train"} 2.0', 'deskroll_train_groups_total{use="no_signal"} 3.0',
        'deskroll_train_waiting_seconds{for="servers"} 10.0', 'deskroll_train_waiting_seconds{for="trainer"} 0.0',
        "deskroll_train_groups_ready 1.0", 'deskroll_train_eval_score{phase="eval"} 0.5',
        'deskroll_train_eval_step{phase="eval"} 5.0',
    ):  # fmt: skip
        assert f"\n{sample}\n" in text
    assert "deskroll_train" not in exposition(status(3)).decode()
