"""Which code judges a part of a task: the one rule, in this one place.

A function of the task's own judges wherever it is named, and a model where the metric is `llm_judgement`. Else the task
decides: in one of OSWorld's own tasks, upstream's code judges every part that it has; in any other, native code does. A
part that only one of the two has is judged by that one. What is installed on a machine changes nothing about that, so
that a task has the same score everywhere: where upstream's code is to judge and is not installed, the task is refused
(`require_evaluator`).
`evaluators` says `native` or `upstream` for all tasks alike.
"""

from __future__ import annotations

import enum
from collections.abc import Iterable, Sequence

from deskroll.envs.osworld.evaluate.asked import check_asked
from deskroll.envs.osworld.evaluate.native.getters import GETTERS
from deskroll.envs.osworld.evaluate.native.metrics import METRICS
from deskroll.envs.osworld.evaluate.own.named import Function, is_own
from deskroll.envs.osworld.evaluate.parts import INFEASIBLE, Part, evaluation_of
from deskroll.envs.osworld.evaluate.upstream import names
from deskroll.envs.osworld.evaluate.upstream.place import find_environment, missing
from deskroll.errors import InputError, did_you_mean
from deskroll.tasks.sources import JUDGED_BY_MODEL
from deskroll.types import Task

_FIRST = ("exact_match", INFEASIBLE, JUDGED_BY_MODEL)
"""Of the evaluators, those that are told first."""
_KEYS = ("snapshot", "source", "trajectory")
"""What every task file of OSWorld's has, and nobody else has a use for."""


class Evaluators(enum.StrEnum):
    """Whose getters and metrics judge, where both have them."""

    AUTO = "auto"
    NATIVE = "native"
    UPSTREAM = "upstream"


class Judge(enum.StrEnum):
    """Who judges one part."""

    NATIVE = "native"
    UPSTREAM = "upstream"
    OWN = "own"
    """A function of the task's own, in a file beside it."""
    MODEL = "model"
    """A model, which is told what the screen shows."""


def is_osworlds(task: Task) -> bool:
    """Whether a task is one of OSWorld's own, by the keys of its file."""
    return all(key in task.metadata for key in _KEYS)


def choose(task: Task, evaluators: Evaluators = Evaluators.AUTO) -> Sequence[Judge]:
    """Who judges each part of a task; `InputError` says what does not exist."""
    evaluation = evaluation_of(task.evaluator)
    if evaluation.infeasible:
        return [Judge.NATIVE] * len(evaluation.parts)
    if evaluators is Evaluators.AUTO:
        prefer = Judge.UPSTREAM if is_osworlds(task) else Judge.NATIVE
    else:
        prefer = Judge(evaluators)
    judges = [_judge(part, prefer) for part in evaluation.parts]
    for part, judge in zip(evaluation.parts, judges, strict=True):
        if evaluators is Evaluators.NATIVE and judge is Judge.UPSTREAM:
            raise InputError(f"{_label(part)}: there is no native evaluator for this; set evaluators to auto")
    return judges


def check_evaluator(task: Task) -> None:
    """Refuse a task whose evaluator does not exist."""
    if task.evaluator.get("func") is not None:
        choose(task)


def require_evaluator(task: Task, evaluators: Evaluators | str = Evaluators.AUTO) -> None:
    """Refuse a task whose evaluator does not exist, or is not installed on this machine."""
    if task.evaluator.get("func") is None:
        return
    for part, judge in zip(evaluation_of(task.evaluator).parts, choose(task, Evaluators(evaluators)), strict=True):
        if judge is Judge.UPSTREAM and find_environment() is None:
            instead = ", or set evaluators to native" if has_part(Judge.NATIVE, part) else ""
            raise InputError(f"{_label(part)}: {missing()}{instead}")


def _judge(part: Part, prefer: Judge) -> Judge:
    if is_own(part.func):
        return _own(part)
    if part.func == JUDGED_BY_MODEL:
        check_asked(part)
        return Judge.MODEL
    having = [judge for judge in (Judge.NATIVE, Judge.UPSTREAM) if has_part(judge, part)]
    if not having:
        raise InputError(_unknown(part))
    return prefer if prefer in having else having[0]


def has_part(judge: Judge, part: Part) -> bool:
    """Whether the part's metric and all of its getters are there."""
    metrics, getters = (METRICS, GETTERS) if judge is Judge.NATIVE else (names.METRICS, names.GETTERS)
    return part.func in metrics and all(getter.type in getters for getter in part.getters)


def _own(part: Part) -> Judge:
    """A function of the task's own takes what native getters give, whosever evaluators are wanted otherwise."""
    Function.parse(part.func)
    if part.result is None:
        raise InputError(f"evaluator.result is missing: {part.func} is given what it finds")
    for getter in part.getters:
        if getter.type not in GETTERS:
            near = did_you_mean(getter.type, GETTERS)
            raise InputError(f"there is no getter {getter.type!r} for {part.func}{near}; known: {', '.join(GETTERS)}")
    return Judge.OWN


def _label(part: Part) -> str:
    return " with ".join([part.func, *(getter.type for getter in part.getters)])


def _unknown(part: Part) -> str:
    if part.func not in METRICS and part.func not in names.METRICS:
        return f"there is no evaluator {part.func!r}{_known(part.func, (*_FIRST, *METRICS), names.METRICS)}"
    for getter in part.getters:
        if getter.type not in GETTERS and getter.type not in names.GETTERS:
            return f"there is no getter {getter.type!r}{_known(getter.type, GETTERS, names.GETTERS)}"
    return f"{_label(part)}: some of this is ours and some is OSWorld's own, and they do not go together"


def _known(name: str, ours: Iterable[str], theirs: Iterable[str]) -> str:
    shown = list(dict.fromkeys(ours))
    others = set(theirs) - set(shown)
    near = did_you_mean(name, [*shown, *sorted(others)])
    return f"{near}; known: {', '.join(shown)}, and {len(others)} of OSWorld's own"
