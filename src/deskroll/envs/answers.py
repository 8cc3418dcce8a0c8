"""How answers are judged, for every environment whose tasks have a reference answer: the options, and the judging."""

from __future__ import annotations

from pydantic import Field, field_validator

from deskroll.config import Settings
from deskroll.models.base import Model
from deskroll.scoring import METRICS, Tolerance, score_answer
from deskroll.types import Score, Task


class AnswerSettings(Settings):
    """Options of environments that compare answers."""

    evaluation_metric: str = "exact_match"
    """How answers are compared with the reference; docs/metrics.md says which metric is for what."""
    numeric_tolerance: float = Field(default=1e-6, ge=0, allow_inf_nan=False)
    """By how much of its size a number may be off (numeric_match)."""
    judge_rubric: str = ""
    """What the judge goes by (llm_judgement); empty: the usual rubric."""

    @field_validator("evaluation_metric")
    @classmethod
    def _known(cls, name: str) -> str:
        if name not in METRICS:
            raise ValueError(f"allowed: {', '.join(METRICS)}")
        return name


async def judge_answer(task: Task, answer: str | None, settings: AnswerSettings, judge: Model | None) -> Score:
    """Judge an answer to a task."""
    return await score_answer(
        settings.evaluation_metric,
        answer,
        task.answer,
        question=task.instruction,
        judge=judge,
        tolerance=Tolerance(relative=settings.numeric_tolerance),
        rubric=settings.judge_rubric,
    )
