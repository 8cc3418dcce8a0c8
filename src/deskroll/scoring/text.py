"""Metrics that compare an answer with a reference, as texts: pure functions from two texts to a number in 0..1."""

from __future__ import annotations

import unicodedata
from collections.abc import Callable, Mapping

from deskroll.errors import ConfigError
from deskroll.types import Score


def exact_match(answer: str, reference: str) -> float:
    """1 when both are the same text, but for case, width and the white space around and between words."""
    return float(_folded(answer) == _folded(reference))


def contains_answer(answer: str, reference: str) -> float:
    """1 when the reference stands somewhere in the answer, compared as `exact_match` does."""
    return float(bool(_folded(reference)) and _folded(reference) in _folded(answer))


METRICS: Mapping[str, Callable[[str, str], float]] = {
    "exact_match": exact_match,
    "contains_answer": contains_answer,
}
"""By the names that configurations use."""


def score_answer(metric: str, answer: str | None, reference: str | None) -> Score:
    """Judge an answer. Without a reference nothing can be said; no answer at all is a wrong one."""
    if metric not in METRICS:
        raise ConfigError(f"evaluation_metric is {metric!r}; allowed: {', '.join(METRICS)}")
    if reference is None:
        return Score(value=None, reason="the task has no reference answer")
    if answer is None:
        return Score(value=0.0, reason="no answer was given")
    value = METRICS[metric](answer, reference)
    return Score(value=value, reason=f"{metric} with the reference answer")


def _folded(text: str) -> str:
    return " ".join(unicodedata.normalize("NFKC", text).casefold().split())
