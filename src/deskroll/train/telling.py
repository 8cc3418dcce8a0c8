"""LoopEvents: what a training loop does, reported as events: status, metrics and trackers have it from these."""

from __future__ import annotations

import msgspec

from deskroll.events import (
    EvaluationBegun,
    EvaluationEnded,
    EventSink,
    GroupCollected,
    GroupUse,
    LoopWait,
    StepFailed,
    StepTaken,
    TrainStarted,
    TrainWaits,
    WeightsRefused,
    WeightsServed,
)
from deskroll.rollout.group import GroupResult
from deskroll.store.training import TRAIN, EvalRecord, StepRecord
from deskroll.train.feed import Feed, has_signal
from deskroll.types import GroupEnd


class LoopEvents:
    """Of one start of a loop; `feed` says how many groups wait for a step."""

    def __init__(self, sink: EventSink, feed: Feed) -> None:
        self._sink = sink
        self._feed = feed

    def start(self, steps: int, groups_per_batch: int) -> None:
        """It begins."""
        feed = self._feed
        self._sink.emit(
            TrainStarted(
                phase=TRAIN, step=feed.step, steps=steps, version=feed.version, groups_per_batch=groups_per_batch
            )
        )

    def wait(self, what: LoopWait) -> None:
        """From now on it waits for that."""
        step = self._feed.step + (what is not LoopWait.NOTHING)
        self._sink.emit(TrainWaits(what=what, step=step, ready=self._feed.waiting))

    def collect(self, group: GroupResult) -> None:
        """A group is closed, and the feed has it."""
        use = GroupUse.READY if has_signal(group) else GroupUse.NO_SIGNAL
        if group.end is GroupEnd.FAILED:
            use = GroupUse.FAILED
        ready = self._feed.waiting
        self._sink.emit(
            GroupCollected(phase=group.phase, round=group.round, task=group.task.id, use=use, ready=ready)
        )  # fmt: skip

    def take(self, record: StepRecord) -> None:
        """A step was taken."""
        self._sink.emit(step_taken(record))

    def fail(self, step: int, failures: int, error: Exception) -> None:
        """One could not be."""
        self._sink.emit(StepFailed(step=step, failures=failures, reason=str(error)))

    def serve(self, version: int, seconds: float) -> None:
        """Its weights are served."""
        self._sink.emit(WeightsServed(version=version, seconds=round(seconds, 3)))

    def refuse(self, version: int, error: Exception) -> None:
        """They are not."""
        self._sink.emit(WeightsRefused(version=version, served=self._feed.version, reason=str(error)))

    def evaluate(self, phase: str, step: int, episodes: int) -> None:
        """An evaluation begins."""
        self._sink.emit(EvaluationBegun(phase=phase, round=step, episodes=episodes))

    def end_evaluation(self, record: EvalRecord) -> None:
        """One is whole."""
        self._sink.emit(
            EvaluationEnded(
                phase=record.phase, round=record.step, episodes=record.episodes, scored=record.scored,
                successes=record.successes, mean_score=record.mean_score, versions=record.versions,
                seconds=record.seconds,
            )
        )  # fmt: skip


def step_taken(record: StepRecord) -> StepTaken:
    """The event of a step."""
    told = msgspec.structs.asdict(record.report)
    return StepTaken(
        step=record.step,
        reward=record.reward,
        lag_p50=record.lag_p50,
        lag_p95=record.lag_p95,
        lag_max=record.lag_max,
        groups=len(record.groups),
        no_signal=len(record.no_signal),
        withheld=len(record.withheld),
        failed=len(record.failed),
        sequences=record.sequences,
        served=record.served,
        seconds=record.seconds,
        measures={name: float(value) for name, value in told.items() if value is not None},
    )
