"""A training run's numbers as a file for other programs: one row a step, one an evaluation, in their order."""

from __future__ import annotations

import msgspec

from deskroll.report.rows import Cell, csv_text
from deskroll.report.summary import Evaluation, Training, TrainStep
from deskroll.store.training import TRAIN, StepReport

_PARTS = ("generate", "hold", "train", "save", "refresh")
_TOLD = tuple(each.name for each in msgspec.structs.fields(StepReport))
COLUMNS = (
    "phase", "step", "version", "elapsed_s", "score", "score_low", "score_high", "success", "success_low",
    "success_high", "episodes", "scored", "successes", "seconds", "held_s", "groups", "no_signal", "withheld", "failed",
    "lag_p50", "lag_p95", "lag_max", "sequences", *_TOLD, *(f"{part}_s" for part in _PARTS), "in_flight", "trainer_use",
    "desktop_use",
)  # fmt: skip
"""`score` is the mean score of an evaluation, the mean reward of a step; `version` that of the weights that answered,
and for a step that were served."""


def training_csv(training: Training) -> str:
    """One row a step, one an evaluation; an empty cell where there is nothing."""
    rows = [*map(_evaluation, training.evaluations), *map(_step, training.steps)]
    rows.sort(key=lambda row: (row["step"], row["phase"] != TRAIN))
    return csv_text(COLUMNS, ([row.get(name) for name in COLUMNS] for row in rows))


def _evaluation(each: Evaluation) -> dict[str, Cell]:
    score, rate = each.score, each.outcomes.over_scored
    return {
        "phase": each.phase, "step": each.step, "version": " ".join(each.versions), "elapsed_s": each.elapsed_s,
        "score": score.value, "score_low": score.low, "score_high": score.high, "success": rate.value,
        "success_low": rate.low, "success_high": rate.high, "episodes": each.outcomes.attempted,
        "scored": each.outcomes.scored, "successes": each.outcomes.successes, "seconds": each.seconds,
        "held_s": each.held_s,
    }  # fmt: skip


def _step(each: TrainStep) -> dict[str, Cell]:
    return {
        "phase": TRAIN, "step": each.step, "version": each.served, "elapsed_s": each.elapsed_s, "score": each.reward,
        "seconds": round(sum(each.seconds.values()), 3), "groups": each.groups, "no_signal": each.no_signal,
        "withheld": each.withheld, "failed": each.failed, "lag_p50": each.lag_p50, "lag_p95": each.lag_p95,
        "lag_max": each.lag_max, "sequences": each.sequences, **msgspec.structs.asdict(each.report),
        **{f"{part}_s": each.seconds.get(part) for part in _PARTS},
        "in_flight": round(sum(each.use.episodes.values()), 3), "trainer_use": each.use.trainer,
        "desktop_use": each.use.desktops,
    }  # fmt: skip
