"""Judges parts by native getters and metrics.

Guarantees: no file that an agent leaves on its desktop keeps an attempt from being scored. What is there and cannot be
read, what was to be compared with and lies within the agent's reach, a command whose program is gone: each is a 0. Only
what the task brings, a command that was cut off (by a signal, by its time limit), a desktop that is dead, and this
machine are others' failures. A value is from 0 to 1.
"""

from __future__ import annotations

from deskroll.desktops.base import Desktop
from deskroll.envs.osworld.evaluate.native import bounded
from deskroll.envs.osworld.evaluate.native.getters import GETTERS
from deskroll.envs.osworld.evaluate.native.metrics import METRICS
from deskroll.envs.osworld.evaluate.native.showing import is_broken, show
from deskroll.envs.osworld.evaluate.native.support import supports
from deskroll.envs.osworld.evaluate.native.values import NotComparable, Unreadable
from deskroll.envs.osworld.evaluate.parts import Getter, Part
from deskroll.envs.osworld.evaluate.verdict import Verdict
from deskroll.errors import EvaluatorError, GuestError, plain
from deskroll.scoring.excerpt import excerpts

_REFUSED = (400, 403, 404, 413, 500)
"""How a guest that is well answers what it cannot read or run."""
_OF_THE_TASK = ("rule", "inline_file")
"""Getters of what stands in the task, where no agent can reach it."""
_SLACK = 1e-9


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
        expected = await get(part.expected, desktop)
    except Unreadable as error:
        return Verdict(value=0.0, reason=f"what was to be compared with cannot be read: {error}")
    if expected is None:  # on the desktop, where the agent can remove it: no way to remain unscored
        return Verdict(value=0.0, reason="the file that was to be compared with is not there")
    try:
        result = await get(part.result, desktop)
    except Unreadable as error:
        return await verdict(0.0, str(error), None, expected)
    if result is None:
        return await verdict(0.0, "the file that was to be judged is not there", None, expected)
    return await _measured(part, result, expected)


async def get(getter: Getter, desktop: Desktop) -> object:
    """What a getter finds; None: no such file. `Unreadable` where the agent's doing keeps it from being read."""
    try:
        return await GETTERS[getter.type](desktop, getter.config)
    except GuestError as error:  # the desktop is well: it is this question that it does not answer
        if error.status in _REFUSED:
            raise Unreadable(f"{getter.type}: {plain(str(error))}") from error
        raise EvaluatorError(f"{getter.type}: {error}") from error
    except (NotComparable, IndexError) as error:
        raise EvaluatorError(f"{getter.type}: {error}") from error


def in_range(metric: str, value: float) -> float:
    """A metric's value as a score: less than nothing is nothing; what is no number, or more than 1, is a mistake."""
    if not value <= 1.0 + _SLACK:
        raise EvaluatorError(f"{metric} gave {value:g}, which is no score: one is from 0 to 1")
    return min(max(value, 0.0), 1.0)


async def _measured(part: Part, result: object, expected: object) -> Verdict:
    try:
        value = in_range(part.func, await bounded.measure(part.func, result, expected, part.options))
    except Unreadable as error:
        if not await is_broken(result):
            await _require_readable(part, expected)
        return await verdict(0.0, str(error), await show(result, read=False), expected)
    except NotComparable as error:
        raise EvaluatorError(f"{part.func}: {error}") from error
    if part.func == "exact_match":
        return await verdict(
            value, f"the desktop's state {'is' if value else 'is not'} what was expected", result, expected
        )
    return await verdict(value, f"{part.func}: {value:g}", result, expected)


async def verdict(value: float, reason: str, result: object, expected: object) -> Verdict:
    """With what was compared; documents are opened only where somebody will ask why they differ."""
    read = value < 1.0 - _SLACK
    brief = excerpts(await show(result, read=read), await show(expected, read=read))
    return Verdict(value=value, reason=reason, found=brief[0], expected=brief[1])


async def _require_readable(part: Part, expected: object) -> None:
    """Where what the agent made can be read, what the task brings must be readable, too."""
    if part.expected is None or part.expected.type not in _OF_THE_TASK:
        return
    try:
        await bounded.measure(part.func, expected, expected, part.options)
    except Unreadable as error:
        raise EvaluatorError(f"{part.func}: what is expected cannot be read: {error}") from error
    except (NotComparable, EvaluatorError):
        return  # it is no document at all
