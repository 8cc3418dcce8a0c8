"""TrainStatus: what a training loop on a runtime does at this moment: its step, its version, what it waits for."""

from __future__ import annotations

from deskroll.events import LoopWait
from deskroll.types import Record


class RunningEvaluation(Record, frozen=True, omit_defaults=False):
    """An evaluation that is under way."""

    phase: str
    step: int
    done: int
    """Episodes with an outcome, of this start."""
    episodes: int
    since: float


class EvaluationNote(Record, frozen=True, omit_defaults=False):
    """What an evaluation came to."""

    phase: str
    step: int
    versions: tuple[str, ...]
    scored: int
    successes: int
    mean_score: float | None


class StepNote(Record, frozen=True, omit_defaults=False):
    """What the last step came to."""

    step: int
    reward: float
    lag_p50: float
    lag_p95: float
    lag_max: int
    seconds: dict[str, float]
    measures: dict[str, float]
    """What the trainer tells of it."""


class TrainStatus(Record, frozen=True, omit_defaults=False):
    """All of a training loop."""

    step: int
    """How many steps were taken, over all starts."""
    steps: int
    """That are to be taken."""
    before: int
    """How many earlier starts had taken."""
    version: int
    """Of the weights that are served."""
    waits_for: LoopWait
    on_the_way: int
    """The step that waits for it."""
    since: float
    """When that began, in seconds since the epoch."""
    groups_per_batch: int
    ready: int
    """Groups that wait for a step."""
    in_flight: int
    """Groups of training that run."""
    groups: dict[str, int]
    """Of this start: used, no_signal, withheld, failed."""
    seconds: dict[str, float]
    """Of this start, over its steps: refresh, generate, hold, train, save."""
    failures: dict[str, int]
    """Of this start: of steps (`step`), and of servers that took no weights (`refresh`)."""
    last: StepNote | None = None
    """The last step of this start."""
    recent_reward: float | None = None
    """The mean over its last ten steps."""
    running: tuple[RunningEvaluation, ...] = ()
    baseline: EvaluationNote | None = None
    evaluation: EvaluationNote | None = None
    """The last one; of this start, as the baseline is."""

    @property
    def over(self) -> bool:
        """Whether there is nothing more to wait for."""
        return self.waits_for is LoopWait.NOTHING and not self.running

    def limit(self, rollouts: str) -> str:
        """What it waits for, in one line; `rollouts`: what limits those."""
        step = self.on_the_way
        match self.waits_for:
            case LoopWait.GROUPS:
                return f"groups for step {step} ({self.ready} of {self.groups_per_batch} are there): {rollouts}"
            case LoopWait.EVALUATION:
                return f"the evaluation, which step {step} waits for: {rollouts}"
            case LoopWait.TRAINER:
                return f"the trainer, which takes step {step}"
            case LoopWait.CHECKPOINT:
                return f"the disk: the checkpoint of step {step} is being saved"
            case LoopWait.SERVERS:
                return f"the model's servers, which load version {step}"
            case LoopWait.NOTHING:
                return f"the evaluation: {rollouts}" if self.running else "nothing is left to do"
