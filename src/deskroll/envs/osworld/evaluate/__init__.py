"""Judges a desktop's state by a task's `evaluator`, in OSWorld's format.

The rules (`postconfig`, `conj`, lists, options, `infeasible`, FAIL) are ours. Getters and metrics are upstream's own,
in an environment and a sandbox of their own, or native ones; a metric may be a task's own (`own`). Guarantees: what
cannot be judged raises `EvaluatorError`, with the reason; it is never a 0.
"""

from __future__ import annotations

from deskroll.envs.osworld.evaluate.choice import Evaluators, check_evaluator, require_evaluator
from deskroll.envs.osworld.evaluate.evaluation import evaluate, evaluator_files, looks_at_desktop
from deskroll.envs.osworld.evaluate.upstream.judging import close_workers

__all__ = [
    "Evaluators",
    "check_evaluator",
    "close_workers",
    "evaluate",
    "evaluator_files",
    "looks_at_desktop",
    "require_evaluator",
]
