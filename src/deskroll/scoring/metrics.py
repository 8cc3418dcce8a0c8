"""The metrics by the names that configurations use, and the two ways to apply one.

Guarantees: every metric treats what is missing alike. Without a reference nothing can be said (no score, with the
reason); no answer at all is a wrong one (0). What cannot be judged raises `EvaluatorError`; it is never a 0.
Every score says what was compared with what.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping

import msgspec

from deskroll.errors import ConfigError, EvaluatorError
from deskroll.models.base import Model
from deskroll.scoring.excerpt import excerpts
from deskroll.scoring.judge import DEFAULT_RUBRIC
from deskroll.scoring.judge import judge as ask_judge
from deskroll.scoring.numbers import DEFAULT_TOLERANCE, Tolerance, numeric_match
from deskroll.scoring.text import contains_answer, exact_match, f1_score, similarity
from deskroll.types import Record, Score


class Metric(Record, frozen=True):
    """One way to compare an answer with a reference."""

    name: str
    summary: str
    judged: bool = False
    """Whether a model has to be asked."""


_ALL = (
    Metric(name="exact_match", summary="the same text, character by character"),
    Metric(name="f1_score", summary="how many words they share (token F1, as SQuAD counts)"),
    Metric(name="similarity", summary="how few edits turn one text into the other (Levenshtein)"),
    Metric(name="contains_answer", summary="the reference stands in the answer, as whole words"),
    Metric(name="numeric_match", summary="the same number, whatever its notation and unit"),
    Metric(name="llm_judgement", summary="a model judges whether the answer is correct", judged=True),
)
METRICS: Mapping[str, Metric] = {each.name: each for each in _ALL}
"""By the names that configurations use."""

_LONG = 20_000
"""Characters that are compared in no time."""
_NO_REFERENCE = Score(value=None, reason="the task has no reference answer")
_NO_ANSWER = Score(value=0.0, reason="no answer was given")
_COMPARED: Mapping[str, Callable[[str, str], Score]] = {
    "exact_match": exact_match,
    "f1_score": f1_score,
    "similarity": similarity,
    "contains_answer": contains_answer,
}


def compare(
    metric: str, answer: str | None, reference: str | None, *, tolerance: Tolerance = DEFAULT_TOLERANCE
) -> Score:
    """Score an answer by a metric that asks no model; `tolerance` is for `numeric_match`."""
    if _known(metric).judged:
        raise EvaluatorError(f"{metric} asks a model: use score_answer, with a judge")
    if reference is None:
        return _told(_NO_REFERENCE, answer, reference)
    if answer is None:
        return _told(_NO_ANSWER, answer, reference)
    if metric == "numeric_match":
        return _told(numeric_match(answer, reference, tolerance), answer, reference)
    return _told(_COMPARED[metric](answer, reference), answer, reference)


async def score_answer(
    metric: str,
    answer: str | None,
    reference: str | None,
    *,
    question: str = "",
    judge: Model | None = None,
    tolerance: Tolerance = DEFAULT_TOLERANCE,
    rubric: str = "",
) -> Score:
    """Score an answer by any metric; `question`, `judge` and `rubric` are for those that ask a model."""
    if not _known(metric).judged:
        if metric == "numeric_match" or max(len(answer or ""), len(reference or "")) > _LONG:
            # Reading units for the first time takes a second, and so may a text of a megabyte: others share this loop.
            return await asyncio.to_thread(compare, metric, answer, reference, tolerance=tolerance)
        return compare(metric, answer, reference, tolerance=tolerance)
    if reference is None:
        return _told(_NO_REFERENCE, answer, reference)
    if answer is None:
        return _told(_NO_ANSWER, answer, reference)
    if judge is None:
        raise EvaluatorError(f"{metric} needs a model that judges, and there is none: set `judge` (or `model`)")
    score = await ask_judge(judge, question, answer, reference, rubric=rubric or DEFAULT_RUBRIC)
    return _told(score, answer, reference)


def _told(score: Score, answer: str | None, reference: str | None) -> Score:
    found, expected = excerpts(answer, reference)
    return msgspec.structs.replace(score, found=found, expected=expected)


def _known(metric: str) -> Metric:
    if metric not in METRICS:
        raise ConfigError(f"evaluation_metric is {metric!r}; allowed: {', '.join(METRICS)}")
    return METRICS[metric]
