"""What a run came to, as records: the content of `summary.json`, and what every view of a report shows.

Every field is always written, zeros too: a program that reads `summary.json` need not know any defaults.
A number that cannot be known (a rate of nothing) is `null`, never 0.
"""

from __future__ import annotations

import enum

from deskroll.store.training import StepReport
from deskroll.types import Record


class Method(enum.StrEnum):
    """How an interval was made."""

    WILSON = "wilson"
    """Wilson's score interval: one sample a task."""
    WILSON_BY_TASK = "wilson_by_task"
    """Wilson's interval for the effective number of episodes: the samples of a task belong together."""
    STUDENT_T = "student_t"
    """Student's t over tasks."""
    NONE = "none"
    """There are too few episodes for one."""


class Estimate(Record, frozen=True):
    """A rate or a mean with its 95% interval."""

    value: float | None
    low: float | None
    high: float | None
    method: Method


class Tally(Record, frozen=True):
    """The outcomes of a run, or of one domain or phase of it."""

    name: str
    planned: int | None
    """Episodes that are to be run; null where a part's share of the plan is not known."""
    attempted: int
    """Planned episodes that have an outcome, scored or not; without those that were given up."""
    scored: int
    unscored: int
    unscored_by: dict[str, int]
    """Whose fault it was that there is no score; `cancelled` and `no_score` where nothing failed."""
    given_up: int
    """Episodes that the policy of their group did not want any more: neither attempted nor scored."""
    successes: int
    """Episodes with a score of 1."""
    over_attempted: Estimate
    """Successes over attempted: what was not scored counts as no success."""
    over_scored: Estimate
    """Successes over scored: what was not scored is left out."""
    mean_score: Estimate
    """The mean over scored episodes, parts of a point included."""


class PassAtK(Record, frozen=True):
    """Several tries at a task, as the unbiased estimate from all its scored samples."""

    k: int
    any_of_k: float
    """pass@k: at least one of k samples succeeds."""
    all_of_k: float
    """pass^k: all of k samples succeed."""
    tasks: int
    """Tasks with k scored samples or more; the others are left out."""
    left_out: int


class Spread(Record, frozen=True):
    """How much, over all attempts."""

    total: float
    mean: float
    p50: float
    p95: float


class StageTime(Record, frozen=True):
    """The seconds that attempts spent in one phase."""

    phase: str
    seconds: Spread
    share: float
    """Of the time of all phases."""


class FailureCount(Record, frozen=True):
    """What failed by the fault of one party."""

    failure_class: str
    final: int
    """Outcomes that carry this failure."""
    scored: int
    """Those of them that have a score."""
    retried: int
    """Attempts that failed so and were tried again."""
    kinds: dict[str, int]
    """The same by name of the error, final and retried."""
    example: str
    """What one of the most frequent ones says, cut."""


class Missed(Record, frozen=True):
    """An episode that was scored and is no success, with what it was judged by."""

    task: str
    sample: int
    score: float
    reason: str
    found: str | None = None
    expected: str | None = None


class Consumption(Record, frozen=True):
    """What all attempts used up, those included that were tried again."""

    attempts: int
    prompt_tokens: int
    completion_tokens: int
    model_calls: int
    cost_usd: float
    """The part that is known."""
    cost_unknown: int
    """Attempts that called a model whose price is not known."""
    prefix_held: float | None
    """The share of turns after the first whose prompt began with all of the turn before, to the token: such turns are
    one sample in training (docs/rl.md). null where no token ids are known."""
    steps: Spread
    seconds: Spread
    """From start to end of an attempt."""
    phases: tuple[StageTime, ...]
    desktops: int
    """Different desktops that were used."""


class Evaluation(Record, frozen=True):
    """One evaluation of a training run, the baseline included."""

    phase: str
    step: int
    """After how many steps."""
    versions: tuple[str, ...]
    """Of the weights that answered."""
    whole: bool
    """Whether all of its episodes have an outcome."""
    outcomes: Tally
    elapsed_s: float | None
    """When it had ended: time under way, without pauses between starts; null where it is not whole."""
    seconds: float | None
    held_s: float | None
    """How long the step after it waited for it; null where there is none."""

    @property
    def score(self) -> Estimate:
        """Its mean score; where scores are 0 and 1, that is the success rate, whose interval is the better one."""
        mean, rate = self.outcomes.mean_score, self.outcomes.over_scored
        return rate if rate.value == mean.value else mean


class Use(Record, frozen=True):
    """How busy all was for some time."""

    episodes: dict[str, float]
    """The mean number of episodes in flight, by phase."""
    trainer: float
    """The share of the time in which the trainer took steps and saved them."""
    desktops: float | None
    """The share of the time of all desktops that were alive in which they were leased; null: there were none."""


class TrainStep(Record, frozen=True):
    """One step of training."""

    step: int
    at: float
    elapsed_s: float
    """When it was taken: time under way since the beginning of the run, without pauses between starts."""
    reward: float
    groups: int
    no_signal: int
    withheld: int
    failed: int
    sequences: int
    lag_p50: float
    lag_p95: float
    lag_max: int
    served: int
    """The version that was served meanwhile."""
    seconds: dict[str, float]
    """refresh (of the step before), generate, hold (for an evaluation to end), train, save."""
    report: StepReport
    use: Use
    """Since the step before."""


class Window(Record, frozen=True):
    """A part of the time that the run was under way."""

    start_s: float
    end_s: float
    use: Use


class Training(Record, frozen=True):
    """What a training run came to."""

    wanted: int | None
    """Steps that were to be taken; null where that is not known."""
    num_rollouts: int | None
    """The most episodes in flight."""
    evaluations: tuple[Evaluation, ...]
    steps: tuple[TrainStep, ...]
    windows: tuple[Window, ...]
    """All of the time, in parts of equal length."""


class Summary(Record, frozen=True):
    """Everything that a run came to."""

    finished: bool
    """Whether every planned episode has an outcome."""
    overall: Tally
    """With several phases, counts alone: a rate over different phases would be one of nothing."""
    domains: tuple[Tally, ...]
    """The same."""
    phases: tuple[Tally, ...]
    """The phases of the run (baseline, evaluation ...); empty where there is one only."""
    tasks: int
    samples: int
    """The most samples that any task has in one round."""
    groups: dict[str, int]
    """How groups ended (complete, no_signal, ...); empty where every task has a single sample."""
    pass_at_k: tuple[PassAtK, ...]
    """Empty where every task has a single sample, and with several phases."""
    stops: dict[str, int]
    failures: tuple[FailureCount, ...]
    no_score: dict[str, int]
    """Why outcomes have no score though nothing failed, the most frequent reasons first."""
    missed: tuple[Missed, ...]
    """Episodes without full score of which it is known why, the first ones; failures are told elsewhere."""
    retried: int
    """Attempts that failed and were tried again."""
    stopped: int
    """Attempts that ended with the run, before they had an outcome."""
    consumption: Consumption
    wall_s: float
    """Time during which at least one attempt was under way: the pause before a resume does not count."""
    episodes_per_minute: float | None
    notes: tuple[str, ...]
    """What a reader has to know to read the numbers right, in sentences."""
    training: Training | None = None
    """Of a training run."""

    @property
    def done(self) -> bool:
        """Whether it is finished, and something came of it: not every outcome is a failure without a score."""
        return self.finished and not (self.failures and not self.overall.scored)
