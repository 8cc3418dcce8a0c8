"""The curves of a training run, as they are drawn on the page and in the picture. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from deskroll.report.summary import Training
from deskroll.types import Record

PARTS = ("generate", "hold", "train", "save", "refresh")
"""Of a step's time, in the order in which they are drawn."""
_SMOOTHED = 10
"""The reward is shown as a running mean over this part of all steps, besides as it is."""


class ScorePoint(Record, frozen=True):
    """An evaluation."""

    phase: str
    step: int
    score: float
    low: float | None
    high: float | None
    version: str


class Curves(Record, frozen=True):
    """Everything that is drawn."""

    evaluations: list[ScorePoint]
    steps: list[int]
    reward: list[float]
    smooth: list[float]
    """The running mean of the reward."""
    over: int
    """Steps that it is over."""
    unit: str
    """Of times: seconds, minutes or hours."""
    taken: list[float]
    """When each step was taken, in that unit."""
    lag: list[float]
    lag_max: list[int]
    seconds: dict[str, list[float]]
    """Of each step, by part."""
    edges: list[float]
    """Where windows begin and end, in that unit."""
    episodes: dict[str, list[float]]
    """In flight, by phase."""
    trainer: list[float]
    desktops: list[float | None]
    """Empty where there were none."""
    most: int | None
    """Of episodes in flight."""


def curves(training: Training) -> Curves:
    """The curves of a training run."""
    steps, windows = training.steps, training.windows
    over = max(1, len(steps) // _SMOOTHED)
    phases = sorted({name for each in windows for name in each.use.episodes})
    desktops = [each.use.desktops for each in windows]
    unit, size = _unit(windows[-1].end_s if windows else 0.0)
    return Curves(
        evaluations=[
            ScorePoint(
                phase=each.phase, step=each.step, score=score.value, low=score.low, high=score.high,
                version=" ".join(each.versions),
            )
            for each in training.evaluations
            if (score := each.score).value is not None
        ],
        steps=[each.step for each in steps],
        reward=[round(each.reward, 4) for each in steps],
        smooth=running_mean([each.reward for each in steps], over),
        over=over,
        unit=unit,
        taken=[round(each.elapsed_s / size, 4) for each in steps],
        lag=[each.lag_p50 for each in steps],
        lag_max=[each.lag_max for each in steps],
        seconds={part: [each.seconds.get(part, 0.0) for each in steps] for part in PARTS},
        edges=[round(each / size, 4) for each in (0.0, *(window.end_s for window in windows))],
        episodes={name: [each.use.episodes.get(name, 0.0) for each in windows] for name in phases},
        trainer=[each.use.trainer for each in windows],
        desktops=desktops if any(each is not None for each in desktops) else [],
        most=training.num_rollouts,
    )  # fmt: skip


def _unit(seconds: float) -> tuple[str, int]:
    """What to measure so long a time in."""
    if seconds < 180:
        return "seconds", 1
    return ("minutes", 60) if seconds < 3 * 3600 else ("hours", 3600)


def running_mean(values: Sequence[float], over: int) -> list[float]:
    """Of each value and as many before it as make up `over`."""
    parts = (values[max(0, end - over) : end] for end in range(1, len(values) + 1))
    return [round(sum(part) / len(part), 4) for part in parts]
