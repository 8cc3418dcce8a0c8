"""TrainingState: how a training loop stands, worked out of its events and of nothing else."""

from __future__ import annotations

from collections import Counter, deque

from deskroll.events import (
    EpisodeSealed,
    EvaluationBegun,
    EvaluationEnded,
    GroupBegun,
    GroupCollected,
    GroupEnded,
    JobEnded,
    LoopWait,
    StepFailed,
    StepTaken,
    TrainStarted,
    TrainWaits,
    WeightsRefused,
    WeightsServed,
)
from deskroll.rollout.events.hub import EventHub
from deskroll.rollout.train_status import EvaluationNote, RunningEvaluation, StepNote, TrainStatus
from deskroll.store.training import BASELINE

_RECENT = 10
"""Steps over which the reward is averaged."""


class TrainingState:
    """Follows a hub from the moment it is made."""

    def __init__(self, hub: EventHub) -> None:
        self._started: TrainStarted | None = None
        self._step = self._version = self._ready = 0
        self._waits: TrainWaits | None = None
        self._phase = ""
        """What the job of training is called."""
        self._in_flight: set[tuple[str, int, str]] = set()
        """Groups of any phase: phase, round, task."""
        self._groups: Counter[str] = Counter()
        self._seconds: Counter[str] = Counter()
        self._failures: Counter[str] = Counter()
        self._last: StepTaken | None = None
        self._rewards: deque[float] = deque(maxlen=_RECENT)
        self._running: dict[tuple[str, int], EvaluationBegun] = {}
        self._done: Counter[tuple[str, int]] = Counter()
        self._ended: dict[bool, EvaluationNote] = {}
        """The last evaluation, and (true) the baseline."""
        hub.on(TrainStarted, self._start)
        hub.on(TrainWaits, self._wait)
        hub.on(GroupBegun, self._begin_group)
        hub.on(GroupEnded, self._end_group)
        hub.on(GroupCollected, self._collect)
        hub.on(StepTaken, self._take)
        hub.on(StepFailed, self._fail)
        hub.on(EvaluationBegun, self._begin_evaluation)
        hub.on(EpisodeSealed, self._seal)
        hub.on(EvaluationEnded, self._end_evaluation)
        hub.on(JobEnded, self._end_job)
        hub.on(WeightsServed, self._serve)
        hub.on(WeightsRefused, self._refuse)

    def status(self) -> TrainStatus | None:
        """How it stands; none where nothing is trained."""
        if (started := self._started) is None:
            return None
        waits = self._waits
        return TrainStatus(
            step=self._step,
            steps=started.steps,
            before=started.step,
            version=self._version,
            waits_for=waits.what if waits else LoopWait.GROUPS,
            on_the_way=waits.step if waits else started.step + 1,
            since=waits.at if waits else started.at,
            groups_per_batch=started.groups_per_batch,
            ready=self._ready,
            in_flight=sum(phase == self._phase for phase, _, _ in self._in_flight),
            groups=dict(self._groups),
            seconds={name: round(value, 3) for name, value in self._seconds.items()},
            failures=dict(self._failures),
            last=_note(self._last) if self._last else None,
            recent_reward=sum(self._rewards) / len(self._rewards) if self._rewards else None,
            running=tuple(self._evaluations()),
            baseline=self._ended.get(True),
            evaluation=self._ended.get(False),
        )

    def _evaluations(self) -> list[RunningEvaluation]:
        return [
            RunningEvaluation(
                phase=each.phase, step=each.round, done=self._done[name], episodes=each.episodes, since=each.at
            )
            for name, each in self._running.items()
        ]

    def _start(self, event: TrainStarted) -> None:
        self._started, self._step, self._version = event, event.step, event.version
        self._waits, self._phase = None, event.phase

    def _wait(self, event: TrainWaits) -> None:
        self._waits, self._ready = event, event.ready

    def _begin_group(self, event: GroupBegun) -> None:
        self._in_flight.add((event.phase, event.round, event.task))

    def _end_group(self, event: GroupEnded) -> None:
        self._in_flight.discard((event.phase, event.round, event.task))

    def _collect(self, event: GroupCollected) -> None:
        self._ready = event.ready

    def _take(self, event: StepTaken) -> None:
        self._step, self._last = event.step, event
        self._rewards.append(event.reward)
        self._seconds.update(event.seconds)
        self._groups.update(
            used=event.groups, no_signal=event.no_signal, withheld=event.withheld, failed=event.failed
        )  # fmt: skip

    def _fail(self, event: StepFailed) -> None:
        self._failures["step"] += 1

    def _begin_evaluation(self, event: EvaluationBegun) -> None:
        self._running[event.phase, event.round] = event
        self._done.pop((event.phase, event.round), None)

    def _seal(self, event: EpisodeSealed) -> None:
        name = (event.key.phase, event.key.round)
        if name in self._running:
            self._done[name] += 1

    def _end_evaluation(self, event: EvaluationEnded) -> None:
        self._running.pop((event.phase, event.round), None)
        self._ended[event.phase == BASELINE] = EvaluationNote(
            phase=event.phase, step=event.round, versions=event.versions, scored=event.scored,
            successes=event.successes, mean_score=event.mean_score,
        )  # fmt: skip

    def _end_job(self, event: JobEnded) -> None:
        """An evaluation that was stopped is none that is under way."""
        self._running.pop((event.phase, event.round), None)

    def _serve(self, event: WeightsServed) -> None:
        self._version = event.version

    def _refuse(self, event: WeightsRefused) -> None:
        self._failures["refresh"] += 1


def _note(event: StepTaken) -> StepNote:
    return StepNote(
        step=event.step, reward=event.reward, lag_p50=event.lag_p50, lag_p95=event.lag_p95, lag_max=event.lag_max,
        seconds=event.seconds, measures=event.measures,
    )  # fmt: skip
