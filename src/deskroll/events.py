"""Events: what happens in a run, each kind a frozen record of its own, tagged by `kind`.

Every process reports through an `EventSink`; the run's hub (`rollout.events`) has all of them. What people are shown,
what is exported and what is counted is worked out of these and of nothing else. Names in the fields mean the same
everywhere: `key` and `attempt` an attempt, `desktop`, `lease`, `endpoint` (an address without credentials), `worker` (a
pid), `phase` and `round` a job. `reason` is free text: the hub takes secrets out of it.

Guarantees of `guarded`: whoever reports neither waits nor fails by it.
"""

from __future__ import annotations

import enum
import logging
import time
from typing import Protocol

import msgspec

from deskroll.errors import DeathCause, FailureClass
from deskroll.types import Episode, EpisodeKey, GroupEnd, Record, Stage, StopReason

_log = logging.getLogger(__name__)


class Occurrence(Record, frozen=True, tag_field="kind", gc=False):
    """What all events have."""

    at: float = msgspec.field(default_factory=time.time)
    """Seconds since the epoch, by the clock of whoever reports it."""


class OfJob(Occurrence, frozen=True, kw_only=True):
    """What events of a job have."""

    phase: str
    round: int


class OfAttempt(Occurrence, frozen=True, kw_only=True):
    """What events of an attempt have."""

    key: EpisodeKey
    attempt: int


class RunOpened(Occurrence, frozen=True, kw_only=True, tag="run.opened"):
    """A coordinator took the run: for the first time, or again."""

    run_id: str
    epoch: int
    pid: int


class RunStopping(Occurrence, frozen=True, kw_only=True, tag="run.stopping"):
    """Nothing more is started; `now`: what runs is ended, too."""

    now: bool = False


class RunClosed(Occurrence, frozen=True, kw_only=True, tag="run.closed"):
    """The run is over; what it held is being let go."""


class LimitsChanged(Occurrence, frozen=True, kw_only=True, tag="limits.changed"):
    """So many episodes and groups may be in flight from now on."""

    num_rollouts: int
    max_concurrent_rollouts: int


class JobStarted(OfJob, frozen=True, kw_only=True, tag="job.started"):
    """A job begins."""


class BatchPlanned(OfJob, frozen=True, kw_only=True, tag="batch.planned"):
    """Tasks of a job were planned: so many episodes are to have an outcome; `done` of them have one already."""

    first: bool = True
    """Whether the job has planned nothing of this round before: what an earlier job did is in these numbers."""
    episodes: int
    done: int = 0
    own: int = 0
    """Of these, how many this start had done itself, in an earlier job."""
    scored: int = 0
    successes: int = 0
    score_sum: float = 0.0
    unscored: dict[str, int] = msgspec.field(default_factory=dict)


class BatchTaken(OfJob, frozen=True, kw_only=True, tag="batch.taken"):
    """A service has taken a batch of its source, or goes on with one of an earlier start (`again`)."""

    batch: str
    tasks: int
    again: bool = False


class BatchEnded(OfJob, frozen=True, kw_only=True, tag="batch.ended"):
    """Every group of a service's batch is closed."""

    batch: str
    tasks: int
    seconds: float = 0.0
    """Since it was taken."""


class BatchRefused(Occurrence, frozen=True, kw_only=True, tag="batch.bad"):
    """A batch of a service's source cannot be run, and was set aside."""

    batch: str
    reason: str
    at_path: str = ""
    """Where it is now; empty: it was left where it is."""


class JobEnded(OfJob, frozen=True, kw_only=True, tag="job.ended"):
    """A job has come to its end, or was stopped."""


class GroupBegun(OfJob, frozen=True, kw_only=True, tag="group.opened"):
    """The samples of a task were begun; of a group of one, the events of its episode say all."""

    task: str


class GroupEnded(OfJob, frozen=True, kw_only=True, tag="group.closed"):
    """The samples of a task are through, or given up."""

    task: str
    end: GroupEnd


class AttemptStarted(OfAttempt, frozen=True, kw_only=True, tag="attempt.started"):
    """An attempt was handed to the backend."""

    waited_s: float = 0.0
    """For its permits."""
    isolated: bool = False


class StageEntered(OfAttempt, frozen=True, kw_only=True, tag="episode.stage"):
    """An attempt ends the stage that it was in, and begins another."""

    stage: Stage
    visit: int
    """Which of its stages this is, counted."""
    worker: int
    ran_s: float
    """The running time of its process (`clocks.running_time`) at that moment."""
    desktop: str = ""
    turn: int = 0


class WaitChanged(OfAttempt, frozen=True, kw_only=True, tag="episode.waiting"):
    """An attempt begins or ends to wait for its turn (a model slot, the next try): time in which nobody is silent."""

    waiting: bool
    ran_s: float


class AttemptEnded(OfAttempt, frozen=True, kw_only=True, tag="attempt.ended"):
    """An attempt is over, and its record is there."""

    stop: StopReason
    score: float | None = None
    failure: FailureClass | None = None
    error: str = ""
    """The name of the error class."""
    reason: str = ""
    steps: int = 0
    desktop: str = ""
    tokens: int = 0
    cost_usd: float | None = None
    seconds: dict[str, float] = msgspec.field(default_factory=dict)
    """Duration by stage."""

    @classmethod
    def of(cls, episode: Episode) -> AttemptEnded:
        """What an attempt's record says."""
        failure = episode.failure
        return cls(
            key=episode.key,
            attempt=episode.attempt,
            stop=episode.stop,
            score=episode.score.value,
            failure=failure.failure_class if failure else None,
            error=failure.kind if failure else "",
            reason=failure.message if failure else "",
            steps=episode.steps,
            desktop=episode.desktop,
            tokens=episode.usage.prompt_tokens + episode.usage.completion_tokens,
            cost_usd=episode.usage.cost_usd,
            seconds=episode.seconds,
        )


class AttemptDropped(OfAttempt, frozen=True, kw_only=True, tag="attempt.dropped"):
    """An attempt is over without a record: it was given back before it began, or the run ended under it."""


class AttemptRetried(OfAttempt, frozen=True, kw_only=True, tag="attempt.retried"):
    """An attempt failed, and another one follows after a pause.

    `attempt` is the one that failed.
    """

    failure: FailureClass | None = None
    reason: str = ""
    pause_s: float = 0.0

    @classmethod
    def of(cls, episode: Episode, pause_s: float) -> AttemptRetried:
        """What the record of the one that failed says."""
        failure = episode.failure.failure_class if episode.failure else None
        return cls(
            key=episode.key, attempt=episode.attempt, failure=failure, reason=episode.score.reason, pause_s=pause_s
        )


class EpisodeSealed(OfAttempt, frozen=True, kw_only=True, tag="episode.sealed"):
    """An episode has its outcome."""

    score: float | None = None
    failure: FailureClass | None = None


class EpisodeStalled(OfAttempt, frozen=True, kw_only=True, tag="episode.stalled"):
    """A stage has taken far longer than usual; its stack and screen are in the attempt's folder."""

    stage: Stage
    reason: str
    desktop: str = ""


class EpisodeUnclosed(OfAttempt, frozen=True, kw_only=True, tag="episode.unclosed"):
    """An attempt's environment could not be closed, which changes nothing of its result."""

    reason: str


class ModelAnswered(Occurrence, frozen=True, kw_only=True, tag="model.answered"):
    """A model gave a usable answer."""

    endpoint: str
    model: str
    seconds: float
    """From the first request on, pauses included."""
    session: str = ""
    """The episode that asked: phase/round/task/sample; empty: nobody in particular."""
    tries: int = 1
    prompt_tokens: int = 0
    completion_tokens: int = 0


class ModelRetried(Occurrence, frozen=True, kw_only=True, tag="model.retried"):
    """A request brought no usable answer, and is made again after a pause."""

    endpoint: str
    model: str
    reason: str
    tries: int
    pause_s: float
    session: str = ""


class ModelFailed(Occurrence, frozen=True, kw_only=True, tag="model.failed"):
    """A model gave no usable answer, and is not asked again."""

    endpoint: str
    model: str
    reason: str
    tries: int
    session: str = ""


class EndpointSilent(Occurrence, frozen=True, kw_only=True, tag="endpoint.silent"):
    """A model server has answered nobody of this worker for `watchdog.notice_after` seconds, while somebody waited."""

    endpoint: str
    worker: int
    silent_s: float
    requests: int
    """That wait."""


class EndpointAnswering(Occurrence, frozen=True, kw_only=True, tag="endpoint.answering"):
    """A model server that was silent answers this worker again."""

    endpoint: str
    worker: int
    silent_s: float


class EndpointChanged(Occurrence, frozen=True, kw_only=True, tag="endpoint.changed"):
    """A model server behind a router is asked, or is not asked any more, or serves another version."""

    endpoint: str
    state: str
    """`starting`, `up`, `closed` (it failed), `draining` or `removed`."""
    version: str = ""
    limit: int = 0
    """The most requests that it has open at a time."""
    queue: int = 0
    """Requests that wait in the server itself."""
    reason: str = ""


class DesktopState(Occurrence, frozen=True, kw_only=True, tag="desktop.state"):
    """A desktop entered another state: booting, checking, ready, leased, recycling, stopping, gone."""

    desktop: str
    state: str
    lease: str = ""
    client: str = ""
    group: str = ""


class DesktopBooted(Occurrence, frozen=True, kw_only=True, tag="desktop.booted"):
    """A desktop has come up."""

    desktop: str
    seconds: float
    parts: dict[str, float] = msgspec.field(default_factory=dict)
    """Of these seconds, by part of the boot."""


class DesktopReset(Occurrence, frozen=True, kw_only=True, tag="desktop.reset"):
    """A desktop is back at its clean state."""

    desktop: str
    seconds: float


class DesktopStopped(Occurrence, frozen=True, kw_only=True, tag="desktop.stopped"):
    """A desktop was taken away."""

    desktop: str


class DesktopDied(Occurrence, frozen=True, kw_only=True, tag="desktop.lost"):
    """A desktop died by itself."""

    desktop: str
    reason: str
    cause: DeathCause | None = None


class DesktopReaped(Occurrence, frozen=True, kw_only=True, tag="desktop.reaped"):
    """What a dead owner had left of a desktop was removed."""

    desktop: str
    owner_pid: int


class DesktopNotBooted(Occurrence, frozen=True, kw_only=True, tag="desktop.boot_failed"):
    """A desktop did not come up; the next such boot waits."""

    desktop: str
    reason: str
    in_a_row: int
    pause_s: float


class DesktopBroken(Occurrence, frozen=True, kw_only=True, tag="desktop.broken"):
    """A desktop failed a reset or a check, and is replaced."""

    desktop: str
    reason: str
    during: str


class DesktopUnstoppable(Occurrence, frozen=True, kw_only=True, tag="desktop.unstoppable"):
    """A desktop could not be stopped; that is tried again."""

    desktop: str
    reason: str
    failures: int
    pause_s: float


class LeaseGranted(Occurrence, frozen=True, kw_only=True, tag="lease.granted"):
    """Somebody was given a desktop."""

    lease: str
    desktop: str
    client: str = ""
    waited_s: float = 0.0


class LeaseRefused(Occurrence, frozen=True, kw_only=True, tag="lease.refused"):
    """Somebody will not be given a desktop."""

    lease: str
    reason: str


class LeaseReleased(Occurrence, frozen=True, kw_only=True, tag="lease.released"):
    """A desktop was given back."""

    lease: str
    desktop: str


class LeaseTaken(Occurrence, frozen=True, kw_only=True, tag="lease.lost"):
    """A desktop was taken from its holder."""

    lease: str
    desktop: str
    reason: str
    client: str = ""


class WorkerStarted(Occurrence, frozen=True, kw_only=True, tag="worker.started"):
    """A worker process was started."""

    worker: int
    isolated: bool = False


class WorkerDied(Occurrence, frozen=True, kw_only=True, tag="worker.lost"):
    """A worker process is gone, or was killed; what it ran is run again."""

    worker: int
    reason: str
    attempts: int = 0
    """That were lost with it."""


class WorkerLogged(Occurrence, frozen=True, kw_only=True, tag="worker.log"):
    """A line of a worker's log: warnings, and worse."""

    worker: int
    logger: str
    level: int
    reason: str


class LoopWait(enum.StrEnum):
    """What a training loop waits for before it can go on."""

    GROUPS = "groups"
    """With a signal, as many as a step is taken on: desktops and models are at work."""
    EVALUATION = "evaluation"
    """To end: until then the weights stay as they are."""
    TRAINER = "trainer"
    """To take the step."""
    CHECKPOINT = "checkpoint"
    """To be saved."""
    SERVERS = "servers"
    """To load the weights of the step."""
    NOTHING = "nothing"
    """It has no step left to take."""


class GroupUse(enum.StrEnum):
    """What a group of training is good for."""

    READY = "ready"
    """It has a signal, and waits for a step."""
    NO_SIGNAL = "no_signal"
    """Its members all scored the same."""
    FAILED = "failed"
    """Too few of its members were scored."""


class TrainStarted(Occurrence, frozen=True, kw_only=True, tag="train.started"):
    """A training loop begins, or goes on after so many steps."""

    phase: str
    """Of the job that generates what is trained on."""
    step: int
    steps: int
    """That are to be taken in all."""
    version: int
    """Of the weights that are served."""
    groups_per_batch: int


class TrainWaits(Occurrence, frozen=True, kw_only=True, tag="train.waits"):
    """A training loop waits for something from now on, on its way to a step."""

    what: LoopWait
    step: int
    """The one on its way: servers load its weights at the end."""
    ready: int
    """Groups that wait for a step."""


class GroupCollected(OfJob, frozen=True, kw_only=True, tag="train.group"):
    """A group of training is closed, and judged by whether it can be learned from."""

    task: str
    use: GroupUse
    ready: int


class StepTaken(Occurrence, frozen=True, kw_only=True, tag="step.taken"):
    """A step of training was taken, and its weights are saved."""

    step: int
    reward: float
    """The mean over all members that it was taken on."""
    lag_p50: float
    lag_p95: float
    lag_max: int
    groups: int
    no_signal: int = 0
    """Groups since the step before that could not be learned from."""
    withheld: int = 0
    failed: int = 0
    sequences: int = 0
    served: int = 0
    """The version that was served meanwhile."""
    seconds: dict[str, float] = msgspec.field(default_factory=dict)
    """By part: refresh (of the step before), generate, hold, train, save."""
    measures: dict[str, float] = msgspec.field(default_factory=dict)
    """What the trainer tells: loss, kl, entropy, gradient_norm, ..., tokens."""


class StepFailed(Occurrence, frozen=True, kw_only=True, tag="step.failed"):
    """A step could not be taken, or not be saved; it is taken again, unless it was the third time."""

    step: int
    failures: int
    """In a row."""
    reason: str


class EvaluationBegun(OfJob, frozen=True, kw_only=True, tag="evaluation.begun"):
    """An evaluation of a training run begins, the baseline included; its round is the step."""

    episodes: int


class EvaluationEnded(OfJob, frozen=True, kw_only=True, tag="evaluation.ended"):
    """An evaluation of a training run is whole."""

    episodes: int
    scored: int
    successes: int
    mean_score: float | None = None
    versions: tuple[str, ...] = ()
    """Of the weights that answered."""
    seconds: float = 0.0


class WeightsServed(Occurrence, frozen=True, kw_only=True, tag="weights.served"):
    """The model's servers have the weights of a step."""

    version: int
    seconds: float


class WeightsRefused(Occurrence, frozen=True, kw_only=True, tag="weights.refused"):
    """The model's servers did not take the weights of a step, and go on with those that they have."""

    version: int
    served: int
    reason: str


class EventsSkipped(Occurrence, frozen=True, kw_only=True, tag="events.skipped"):
    """Whoever follows was too slow: so many events before this one were not sent."""

    count: int


Event = (
    RunOpened | RunStopping | RunClosed | LimitsChanged | JobStarted | BatchPlanned | BatchTaken | BatchEnded
    | BatchRefused | JobEnded | GroupBegun | GroupEnded
    | AttemptStarted | StageEntered | WaitChanged | AttemptEnded | AttemptDropped | AttemptRetried
    | EpisodeSealed | EpisodeStalled | EpisodeUnclosed
    | ModelAnswered | ModelRetried | ModelFailed | EndpointSilent | EndpointAnswering | EndpointChanged
    | DesktopState | DesktopBooted | DesktopReset | DesktopStopped | DesktopDied | DesktopReaped
    | DesktopNotBooted | DesktopBroken | DesktopUnstoppable
    | LeaseGranted | LeaseRefused | LeaseReleased | LeaseTaken
    | WorkerStarted | WorkerDied | WorkerLogged
    | TrainStarted | TrainWaits | GroupCollected | StepTaken | StepFailed | EvaluationBegun | EvaluationEnded
    | WeightsServed | WeightsRefused | EventsSkipped
)  # fmt: skip


def kind_of(event: Event | type[Event]) -> str:
    """The name of its kind, e.g. `desktop.booted`."""
    return str(event.__struct_config__.tag)


class EventSink(Protocol):
    """Where lower layers report what happens. Must not block and must not raise."""

    def emit(self, event: Event) -> None:
        """Take note of one event."""


class NullSink:
    """Drops events: for code that runs without an engine."""

    def emit(self, event: Event) -> None:
        """Do nothing."""


class _Guarded:
    """Whoever listens must not raise; where somebody does, nothing that reports shall fail by it."""

    def __init__(self, sink: EventSink) -> None:
        self._sink = sink

    def emit(self, event: Event) -> None:
        try:
            self._sink.emit(event)
        except Exception:  # noqa: BLE001  (whatever it is, it must end here)
            _log.exception("the event %s could not be reported", kind_of(event))


def guarded(sink: EventSink | None) -> EventSink:
    """A sink that can be relied upon: it never raises, and drops events where there is none."""
    return NullSink() if sink is None else _Guarded(sink)
