"""Judges a desktop's state by a task's `evaluator`, in OSWorld's format.

Guarantees: what cannot be judged raises `EvaluatorError`, with the reason; it is never a 0.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from deskroll.desktops.base import Desktop
from deskroll.envs.base import Ending
from deskroll.errors import EvaluatorError
from deskroll.scoring import score_answer
from deskroll.types import Score, StopReason, Task

_RUN_S = 120.0


async def evaluate(task: Task, desktop: Desktop, ending: Ending) -> Score:
    """The score of what was left behind."""
    func = task.evaluator.get("func")
    if func == "infeasible":
        found = ending.stop is StopReason.FAIL
        said = "said so" if found else "did not say so"
        return Score(value=float(found), reason=f"the task cannot be done, and the agent {said}")
    if func is None:
        return score_answer("exact_match", ending.answer, task.answer)
    if func != "exact_match":
        raise EvaluatorError(f"task {task.id!r}: there is no evaluator {func!r}; known: exact_match, infeasible")
    if ending.stop is StopReason.FAIL:
        return Score(value=0.0, reason="the agent gave up")
    result = await _result(task, desktop)
    expected = str(_rules(task).get("expected", ""))
    same = result.strip() == expected.strip()
    return Score(value=float(same), reason=f"the desktop's state {'is' if same else 'is not'} what was expected")


async def _result(task: Task, desktop: Desktop) -> str:
    getter = _part(task, "result")
    match getter.get("type"):
        case "vm_command_line":
            done = await desktop.run(getter.get("command", ""), timeout=_RUN_S)
            return done.output
        case "vm_file":
            return (await desktop.read_file(str(getter.get("path", "")))).decode(errors="replace")
        case other:
            raise EvaluatorError(f"task {task.id!r}: there is no getter {other!r}; known: vm_command_line, vm_file")


def _rules(task: Task) -> Mapping[str, Any]:
    expected = _part(task, "expected")
    rules = expected.get("rules")
    if expected.get("type") != "rule" or not isinstance(rules, Mapping):
        raise EvaluatorError(f"task {task.id!r}: evaluator.expected must be of type rule, with rules")
    return rules


def _part(task: Task, name: str) -> Mapping[str, Any]:
    part = task.evaluator.get(name)
    if not isinstance(part, Mapping):
        raise EvaluatorError(f"task {task.id!r}: evaluator.{name} is missing, or no object")
    return part
