"""Judges an answer: a number with its reason, or 'not scored' with its reason.

`compare` applies a metric that asks no model, `score_answer` any of them; `METRICS` names them all.
"""

from deskroll.scoring.metrics import METRICS, Metric, compare, score_answer
from deskroll.scoring.numbers import Tolerance

__all__ = ["METRICS", "Metric", "Tolerance", "compare", "score_answer"]
