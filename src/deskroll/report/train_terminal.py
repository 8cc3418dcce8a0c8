"""A training run for the terminal: each evaluation with its interval and its version, and steps, some to a row."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from deskroll.errors import plain
from deskroll.report import words
from deskroll.report.grid import Column, fitting, narrowing
from deskroll.report.summary import Evaluation, Training, TrainStep
from deskroll.store.training import EVAL

_MOST_EVALUATIONS = 30
_MOST_ROWS = 12
_PARTS = {"generate": "GROUPS", "hold": "EVAL", "train": "TRAIN", "save": "SAVE", "refresh": "REFRESH"}
"""What a step's time was spent on, as columns."""
_EXPLAINED = (
    "Reward: mean over the groups of each step. Lag: steps since the oldest weights that sampled a group, median. "
    "Seconds of a step: until there were groups enough, until an evaluation had ended, by the trainer, to save, and "
    "(of the step before) until servers had the weights."
)


def training_parts(training: Training, width: int) -> Iterable[RenderableType]:
    """What is shown of a training run, for a terminal of so many columns."""
    if training.evaluations:
        yield _evaluations(training.evaluations, width)
        yield Text("Each evaluation, after so many steps, stands for itself. In brackets: 95% intervals.", style="dim")
        yield Text()
    yield Text(in_words(training))
    if training.steps:
        yield Text()
        yield _steps(training.steps, width)
        yield Text(_EXPLAINED, style="dim")


def in_words(training: Training) -> str:
    """How far it came, and what held it up."""
    steps = training.steps
    of = "" if training.wanted is None else f" of {training.wanted:,}"
    taken = f"{len(steps):,}{of} {'step' if training.wanted == 1 or (not of and len(steps) == 1) else 'steps'} taken"
    passed = {
        "without signal": sum(each.no_signal for each in steps),
        "too old": sum(each.withheld for each in steps),
        "failed": sum(each.failed for each in steps),
    }
    used = words.counted(sum(each.groups for each in steps), "group")
    groups = ", ".join([f"on {used}", *(f"{count:,} {why}" for why, count in passed.items() if count)])
    held = sum(each.held_s or 0.0 for each in training.evaluations)
    parts = [f"{taken} {groups}" if steps else taken]
    if held >= 0.05:
        parts.append(f"evaluations held training up for {words.duration(held)}")
    return "; ".join(parts)


def _evaluations(rows: Sequence[Evaluation], width: int) -> Table:
    shown = rows if len(rows) <= _MOST_EVALUATIONS else [*rows[:1], *rows[1 - _MOST_EVALUATIONS :]]
    columns = [
        Column("EVALUATION", [_name(each) for each in shown], text=True),
        Column("VERSION", [Text(plain(", ".join(each.versions), 20) or words.NOTHING) for each in shown]),
        Column("ATTEMPTED", [f"{each.outcomes.attempted:,}" for each in shown]),
        Column("SCORED", [f"{each.outcomes.scored:,}" for each in shown]),
        Column("SUCCESS", [words.rate(each.outcomes.over_scored) for each in shown]),
        Column("MEAN SCORE", [words.score(each.score) for each in shown]),
        Column("TOOK", [words.NOTHING if each.seconds is None else words.duration(each.seconds) for each in shown]),
        Column("HELD UP", [words.NOTHING if each.held_s is None else words.duration(each.held_s) for each in shown]),
    ]
    return fitting(width, *narrowing(columns, "ATTEMPTED", "TOOK", "HELD UP", "SCORED", "SUCCESS"))


def _name(each: Evaluation) -> str:
    """Short, so that it stays in one line on a narrow terminal."""
    name = f"step {each.step}" if each.phase == EVAL else each.outcomes.name
    return name if each.whole else f"{name}, a part"


def _steps(steps: Sequence[TrainStep], width: int) -> Table:
    size = -(-len(steps) // _MOST_ROWS)
    rows = [steps[start : start + size] for start in range(0, len(steps), size)]
    columns = [
        Column("STEPS", [_range(row) for row in rows], text=True),
        Column("REWARD", [words.number(_mean([each.reward for each in row]), 3) for row in rows]),
        Column("LAG", [f"{_mean([each.lag_p50 for each in row]):.1f}" for row in rows]),
        Column("MOST", [str(max(each.lag_max for each in row)) for row in rows]),
        Column("NO SIGNAL", [f"{sum(each.no_signal for each in row):,}" for row in rows]),
        *(
            Column(head, [words.duration(_mean([each.seconds.get(part, 0.0) for each in row])) for row in rows])
            for part, head in _PARTS.items()
        ),
    ]
    return fitting(width, *narrowing(columns, "SAVE", "EVAL", "REFRESH", "NO SIGNAL", "TRAIN", "GROUPS", "MOST"))


def _range(row: Sequence[TrainStep]) -> str:
    return str(row[0].step) if len(row) == 1 else f"{row[0].step}–{row[-1].step}"


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values)
