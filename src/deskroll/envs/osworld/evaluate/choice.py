"""Which code judges a part: ours, or upstream's own.

`auto`: ours where it has all of a part, else upstream's where that is installed. `native` and `upstream` take that one
alone, save that what upstream's package lacks is always ours. A function of the task's own judges wherever it is named.
"""

from __future__ import annotations

import enum
from collections.abc import Iterable, Sequence

from deskroll.envs.osworld.evaluate.native import engine
from deskroll.envs.osworld.evaluate.native.getters import GETTERS
from deskroll.envs.osworld.evaluate.native.metrics import METRICS
from deskroll.envs.osworld.evaluate.own.named import Function, is_own
from deskroll.envs.osworld.evaluate.parts import INFEASIBLE, Evaluation, Part
from deskroll.envs.osworld.evaluate.upstream import names
from deskroll.envs.osworld.evaluate.upstream.place import find_environment
from deskroll.errors import InputError, did_you_mean

_FIRST = ("exact_match", INFEASIBLE)
"""Of the evaluators, those that are told first."""


class Evaluators(enum.StrEnum):
    """Whose getters and metrics judge."""

    AUTO = "auto"
    NATIVE = "native"
    UPSTREAM = "upstream"


class Judge(enum.StrEnum):
    """Who judges one part."""

    NATIVE = "native"
    UPSTREAM = "upstream"
    OWN = "own"
    """A function of the task's own, in a file beside it."""


def choose(evaluation: Evaluation, evaluators: Evaluators = Evaluators.AUTO) -> Sequence[Judge]:
    """Who judges each part; `InputError` says what does not exist, or what to install."""
    if evaluation.infeasible:
        return [Judge.NATIVE] * len(evaluation.parts)
    return [_judge(part, evaluators) for part in evaluation.parts]


def _judge(part: Part, evaluators: Evaluators) -> Judge:
    if is_own(part.func):
        return _own(part)
    ours, theirs = engine.has_part(part), names.has_part(part)
    if not ours and not theirs:
        raise InputError(_unknown(part))
    if evaluators is Evaluators.NATIVE:
        if not ours:
            raise InputError(f"{_named(part)}: there is no native evaluator for this; set evaluators to auto")
        return Judge.NATIVE
    if ours and (evaluators is Evaluators.AUTO or not theirs):
        return Judge.NATIVE
    if find_environment() is None:
        raise InputError(f"{_named(part)}: OSWorld's own evaluators judge this; run: deskroll osworld install")
    return Judge.UPSTREAM


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


def _named(part: Part) -> str:
    return " with ".join([part.func, *(getter.type for getter in part.getters)])


def _unknown(part: Part) -> str:
    if part.func not in METRICS and part.func not in names.METRICS:
        return f"there is no evaluator {part.func!r}{_known(part.func, (*_FIRST, *METRICS), names.METRICS)}"
    for getter in part.getters:
        if getter.type not in GETTERS and getter.type not in names.GETTERS:
            return f"there is no getter {getter.type!r}{_known(getter.type, GETTERS, names.GETTERS)}"
    return f"{_named(part)}: some of this is ours and some is OSWorld's own, and they do not go together"


def _known(name: str, ours: Iterable[str], theirs: Iterable[str]) -> str:
    shown = list(dict.fromkeys(ours))
    others = set(theirs) - set(shown)
    near = did_you_mean(name, [*shown, *sorted(others)])
    return f"{near}; known: {', '.join(shown)}, and {len(others)} of OSWorld's own"
