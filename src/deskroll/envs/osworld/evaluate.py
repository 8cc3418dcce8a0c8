"""Judges a desktop's state by a task's `evaluator`, in OSWorld's format.

Guarantees: what cannot be judged raises `EvaluatorError`, with the reason; it is never a 0.
"""

from __future__ import annotations

from collections.abc import Mapping
from http import HTTPStatus
from typing import Any

from deskroll.desktops.base import Desktop
from deskroll.envs.base import Ending
from deskroll.errors import EvaluatorError, GuestError, InputError
from deskroll.types import Score, StopReason, Task

_RUN_S = 120.0
_FUNCTIONS = ("exact_match", "infeasible")
_GETTERS = ("vm_command_line", "vm_file")


def check_evaluator(task: Task) -> None:
    """Refuse a task whose evaluator does not exist."""
    func = task.evaluator.get("func")
    if func not in (None, *_FUNCTIONS):
        raise InputError(f"evaluator.func is {func!r}; known: {', '.join(_FUNCTIONS)}")
    result = task.evaluator.get("result")
    if isinstance(result, Mapping) and result.get("type") not in _GETTERS:
        raise InputError(f"evaluator.result.type is {result.get('type')!r}; known: {', '.join(_GETTERS)}")


async def evaluate(task: Task, desktop: Desktop, ending: Ending) -> Score:
    """The score of what was left behind."""
    func = task.evaluator.get("func")
    if func == "infeasible":
        found = ending.stop is StopReason.FAIL
        said = "said so" if found else "did not say so"
        return Score(value=float(found), reason=f"the task cannot be done, and the agent {said}")
    if func != "exact_match":
        raise EvaluatorError(f"task {task.id!r}: there is no evaluator {func!r}; known: exact_match, infeasible")
    if ending.stop is StopReason.FAIL:
        return Score(value=0.0, reason="the agent gave up")
    expected = str(_rules(task).get("expected", ""))
    result = await _result(task, desktop)
    if result is None:
        return Score(value=0.0, reason="the file that was to be judged is not there")
    same = result.strip() == expected.strip()
    return Score(value=float(same), reason=f"the desktop's state {'is' if same else 'is not'} what was expected")


async def _result(task: Task, desktop: Desktop) -> str | None:
    """What the desktop's state is; None where the agent left no such file."""
    getter = _part(task, "result")
    kind = getter.get("type")
    try:
        match kind:
            case "vm_command_line":
                done = await desktop.run(getter.get("command", ""), timeout=_RUN_S)
                return done.output
            case "vm_file":
                return (await desktop.read_file(str(getter.get("path", "")))).decode(errors="replace")
    except GuestError as error:
        if kind == "vm_file" and error.status == HTTPStatus.NOT_FOUND:
            return None
        raise EvaluatorError(f"task {task.id!r}: {kind}: {error}") from error
    raise EvaluatorError(f"task {task.id!r}: there is no getter {kind!r}; known: vm_command_line, vm_file")


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
