"""A training run on the terminal: its step, its reward, its evaluations, and what waits for what.

Scores of different phases are never put together: a rate over baseline, training and evaluations would say nothing.
"""

from __future__ import annotations

from collections.abc import Iterable

from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from deskroll.conduct.times import span
from deskroll.events import LoopWait
from deskroll.report.words import counted
from deskroll.rollout.status import RunStatus
from deskroll.rollout.train_status import EvaluationNote, TrainStatus

_PASSED = {"no_signal": "without signal", "withheld": "too old", "failed": "failed"}
"""Groups that no step was taken on."""
_GENERATING = (LoopWait.GROUPS, LoopWait.NOTHING)
"""While the loop waits for these, it goes without saying whether groups run."""


def train_line(status: RunStatus, training: TrainStatus) -> str:
    """How it stands, in one line."""
    parts = [
        f"step {training.step}/{training.steps}" if training.steps else "",
        "" if training.last is None else f"reward {training.last.reward:.3f}",
        _evaluated(training.baseline or training.evaluation) if training.last is None else "",
        _evaluated(training.evaluation) if training.last is not None else "",
        f"version {training.version}",
        _lag(training),
        f"{status.in_flight} in flight",
        f"limit: {status.limit}",
    ]
    return " | ".join(filter(None, parts))


def train_head(status: RunStatus, training: TrainStatus) -> Table:
    """The bar: steps of those that are to be taken."""
    elapsed = status.at - status.started_at
    head = Table.grid(padding=(0, 1))
    head.add_row(
        ProgressBar(
            total=training.steps, completed=training.step, width=40, complete_style="green", finished_style="green"
        ),
        Text(f"step {training.step}/{training.steps}", style="bold"),
        Text(span(elapsed) + _left(training, elapsed), style="dim"),
    )
    return head


def add_training(table: Table, training: TrainStatus, now: float) -> None:
    """Rows of a training loop."""
    last = training.last
    recent = "" if training.recent_reward is None else f"; the last steps: {training.recent_reward:.3f}"
    if training.steps:
        table.add_row("reward", Text("no step was taken yet" if last is None else f"{last.reward:.3f}{recent}"))
    for number, each in enumerate(_evaluations(training, now)):
        table.add_row("" if number else "evaluation", Text(each))
    table.add_row("weights", Text(", ".join(filter(None, (f"version {training.version}", _lag(training))))))
    if training.steps:
        table.add_row("groups", Text(_groups(training)))
    if training.failures:
        said = ", ".join(f"{counted(count, each)}" for each, count in training.failures.items())
        table.add_row("failed", Text(said, style="yellow"))
    table.add_row("waits", Text(_waits(training, now)))


def _evaluations(training: TrainStatus, now: float) -> Iterable[str]:
    for note in (training.baseline, training.evaluation):
        if note is not None:
            yield _evaluated(note)
    for each in training.running:
        yield f"{_named(each.phase, each.step)}: {each.done} of {each.episodes} done, {span(now - each.since)}"


def _evaluated(note: EvaluationNote | None) -> str:
    if note is None:
        return ""
    mean = "nothing was scored" if note.mean_score is None else f"{note.mean_score:.3f} of {note.scored} scored"
    version = f" (version {', '.join(note.versions)})" if note.versions else ""
    return f"{_named(note.phase, note.step)}: {mean}{version}"


def _named(phase: str, step: int) -> str:
    return f"{phase} after step {step}" if step else phase


def _lag(training: TrainStatus) -> str:
    return "" if (last := training.last) is None else f"lag {last.lag_p50:g} (most {last.lag_max})"


def _groups(training: TrainStatus) -> str:
    ready = f"{training.ready} of {training.groups_per_batch} ready for the next step"
    passed = [f"{training.groups[name]} {word}" for name, word in _PASSED.items() if training.groups.get(name)]
    return "; ".join(filter(None, (f"{training.in_flight} in flight, {ready}", ", ".join(passed))))


def _waits(training: TrainStatus, now: float) -> str:
    """What waits for what, and for how long."""
    step = training.on_the_way
    said = {
        LoopWait.GROUPS: f"step {step} waits for groups",
        LoopWait.EVALUATION: f"step {step} waits for the evaluation",
        LoopWait.TRAINER: f"the trainer takes step {step}",
        LoopWait.CHECKPOINT: f"the weights of step {step} are being saved",
        LoopWait.SERVERS: f"the servers load version {step}",
        LoopWait.NOTHING: "the last evaluation is under way" if training.running else "no step is left to take",
    }[training.waits_for]
    idle = "" if training.in_flight or training.waits_for in _GENERATING else "; no group runs meanwhile"
    return said if training.over else f"{said}, since {span(max(0.0, now - training.since))}{idle}"


def _left(training: TrainStatus, elapsed: float) -> str:
    taken, left = training.step - training.before, training.steps - training.step
    return f", about {span(elapsed / taken * left)} left" if taken >= 2 and left else ""
