"""Judges parts by native getters and metrics."""

from __future__ import annotations

import asyncio
import re
from typing import Any

from deskroll.desktops.base import Desktop
from deskroll.envs.osworld.evaluate.native.getters import GETTERS
from deskroll.envs.osworld.evaluate.native.metrics import METRICS, Measure
from deskroll.envs.osworld.evaluate.native.support import supports
from deskroll.envs.osworld.evaluate.native.values import NotComparable, Unreadable
from deskroll.envs.osworld.evaluate.parts import Getter, Part
from deskroll.envs.osworld.evaluate.verdict import Verdict
from deskroll.errors import EvaluatorError, GuestError


def has_part(part: Part) -> bool:
    """Whether the part's metric, with its options, and all of its getters are here."""
    known = part.func in METRICS and all(getter.type in GETTERS for getter in part.getters)
    return known and supports(part)


async def judge(part: Part, desktop: Desktop) -> Verdict:
    """The value of one part; `EvaluatorError` where it cannot be judged."""
    if part.expected is None:
        raise EvaluatorError("evaluator.expected is missing, or no object")
    if part.result is None:
        raise EvaluatorError("evaluator.result is missing, or no object")
    try:
        expected = await _get(part.expected, desktop)
    except Unreadable as error:
        raise EvaluatorError(f"evaluator.expected: {error}") from error
    if expected is None:  # on the desktop, where the agent can remove it: no way to remain unscored
        return Verdict(value=0.0, reason="the file that was to be compared with is not there")
    try:
        result = await _get(part.result, desktop)
    except Unreadable as error:
        return Verdict(value=0.0, reason=str(error))
    if result is None:
        return Verdict(value=0.0, reason="the file that was to be judged is not there")
    return await asyncio.to_thread(_measured, part, result, expected)


async def _get(getter: Getter, desktop: Desktop) -> object:
    try:
        return await GETTERS[getter.type](desktop, getter.config)
    except GuestError as error:  # the desktop is well: it is this question that it does not answer
        raise EvaluatorError(f"{getter.type}: {error}") from error
    except (NotComparable, IndexError) as error:
        raise EvaluatorError(f"{getter.type}: {error}") from error


def _measured(part: Part, result: Any, expected: Any) -> Verdict:
    measure = METRICS[part.func]
    try:
        value = measure(result, expected, part.options)
    except Unreadable as error:
        _require_readable(measure, part, expected)
        return Verdict(value=0.0, reason=str(error))
    except (NotComparable, LookupError, TypeError, ValueError, re.error) as error:
        raise EvaluatorError(f"{part.func}: {error}") from error
    if part.func == "exact_match":
        return Verdict(value=value, reason=f"the desktop's state {'is' if value else 'is not'} what was expected")
    return Verdict(value=value, reason=f"{part.func}: {value:g}")


def _require_readable(measure: Measure, part: Part, expected: Any) -> None:
    """What the agent made may be broken; what the task brings must not be: it has to be readable as the result is."""
    try:
        measure(expected, expected, part.options)
    except Unreadable as error:
        raise EvaluatorError(f"{part.func}: what is expected cannot be read: {error}") from error
    except (NotComparable, LookupError, TypeError):
        return  # it is no document at all
