"""Judges an answer: a number with its reason, or 'not scored' with its reason."""

from deskroll.scoring.text import METRICS, score_answer

__all__ = ["METRICS", "score_answer"]
